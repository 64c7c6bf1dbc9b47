//! Tests of models with relations and attention: what they learn, and that threads, workers and ranks do not change the
//! weights.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln::graph::EdgeColumn;
use std::path::Path;

use kiln::nn::{AttentionKind, BlockModel, GatConfig, RgcnConfig};
use kiln::prelude::*;
use kiln::train::weights_to_bytes;

/// The nodes that are classified; each has an in-edge from as many carriers of each relation.
const N_NODES: u32 = 1_200;
const N_CARRIERS: u32 = 64;
const N_EDGES_PER_RELATION: u32 = 4;

/// Returns hashed bits, a different number for each `i`.
fn hashed(i: u32) -> u32 {
    i.wrapping_mul(2_654_435_769).rotate_left(13).wrapping_mul(0x85EB_CA6B) >> 8
}

/// A graph whose labels depend on the relation. Carriers have one of two signs as their feature. A node's neighbours of
/// relation 0 have the sign of its class, those of relation 1 the other one, so without types both classes have the same
/// neighbours. A node's own feature is noise.
fn two_relations() -> Dataset {
    let n_nodes = N_NODES + N_CARRIERS;
    let class = |node: u32| hashed(node) & 1;
    let (mut srcs, mut dsts, mut types) = (vec![], vec![], vec![]);
    for node in 0..N_NODES {
        for relation in 0..2 {
            for k in 0..N_EDGES_PER_RELATION {
                // Carriers with an even number have one sign, the others the other one.
                let sign = class(node) ^ relation;
                let pair = hashed(31 * node + 7 * k + relation) % (N_CARRIERS / 2);
                srcs.push(N_NODES + 2 * pair + sign);
                dsts.push(node);
                types.push(relation as u8);
            }
        }
    }
    let features: Vec<f32> = (0..n_nodes)
        .flat_map(|node| {
            let sign = if node % 2 == 0 { 1.0 } else { -1.0 };
            let noise = (hashed(node + 77) % 1000) as f32 / 500.0 - 1.0;
            if node < N_NODES { [0.0, noise] } else { [sign, 0.0] }
        })
        .collect();
    let labels: Vec<i32> = (0..n_nodes).map(|node| class(node) as i32).collect();
    let nodes = |range: std::ops::Range<u32>| range.map(NodeId).collect::<Vec<_>>();
    Dataset::builder(n_nodes as usize)
        .edges(&srcs, &dsts)
        .edge_types(&types)
        .features(features, 2)
        .labels(labels, 2)
        .split(nodes(0..600), nodes(600..900), nodes(900..N_NODES))
        .build()
        .unwrap()
}

fn test_accuracy<C: ModelConfig>(data: &Dataset, model: C, loader: &NeighborLoader, out: &Path) -> f64
where
    C::Model: BlockModel,
{
    let fit = FitConfig::epochs(30).out(out).quiet();
    let best = Trainer::new(model, AdamConfig::new(2e-2)).seed(3).fit(loader, fit).unwrap();
    assert_eq!(data.split().test.len(), 300);
    best.evaluate(loader, Phase::Test).unwrap().accuracy()
}

#[test]
fn rgcn_learns_labels_that_depend_on_the_relation_and_graphsage_cannot() {
    let (data, folder) = (two_relations(), tempfile::tempdir().unwrap());
    let loader = NeighborLoader::new(&data, [3]).batch_size(100);
    let rgcn = RgcnConfig::new(2, 2, 2).layers(1).bases(2);
    let typed = test_accuracy(&data, rgcn, &loader.clone().edge_types(), &folder.path().join("rgcn"));
    let sage = SageConfig::new(2, 2).layers(1);
    let untyped = test_accuracy(&data, sage, &loader, &folder.path().join("sage"));
    // Three sampled neighbours of eight are of one relation in one of seven draws, and tell nothing about their types.
    println!("R-GCN {typed}, GraphSAGE {untyped}");
    assert!(0.95 <= typed && untyped <= 0.70, "R-GCN {typed}, GraphSAGE {untyped}");
}

/// Returns the set with features of edges from which their relations can be computed: a noisy sum and a difference.
fn with_edge_features(data: Dataset) -> Dataset {
    let types = data.csc().unwrap().edge_types().unwrap();
    let rows = types.iter().enumerate().flat_map(|(edge, &relation)| {
        let noise = (hashed(edge as u32) % 1000) as f32 / 1000.0;
        [noise, noise + f32::from(relation), 1.0]
    });
    let rows = EdgeColumn::new(rows.collect::<Vec<f32>>(), 3).unwrap();
    data.with_edge_column(0, "features", rows).unwrap()
}

#[test]
fn gine_learns_labels_that_depend_on_edge_features_or_edge_types() {
    let (data, folder) = (with_edge_features(two_relations()), tempfile::tempdir().unwrap());
    let loader = NeighborLoader::new(&data, [Fanout::All]).batch_size(100);
    let of_types = GineConfig::new(2, 2, EdgeInput::Types(2)).layers(1).hidden(16);
    let typed = test_accuracy(&data, of_types, &loader.clone().edge_types(), &folder.path().join("types"));
    let of_features = GineConfig::for_data(&data).layers(1).hidden(16);
    assert_eq!(of_features.edges, EdgeInput::Features(3));
    let features =
        test_accuracy(&data, of_features, &loader.edge_features(), &folder.path().join("features"));
    println!("types {typed}, features {features}");
    assert!(0.95 <= typed && 0.95 <= features, "types {typed}, features {features}");
}

/// The rows of sampled batches with whole neighbourhoods, of exact evaluation and of predictions have the same features.
#[test]
fn exact_evaluation_and_predictions_read_the_edge_features_of_training() {
    let (data, folder) = (with_edge_features(two_relations()), tempfile::tempdir().unwrap());
    let config = GineConfig::for_data(&data).layers(2).hidden(8);
    let sampled = NeighborLoader::new(&data, [Fanout::All; 2]).batch_size(150).edge_features();
    let exact = sampled.clone().evaluation(EvalMode::Exact { memory_bytes: None });
    let out = folder.path().join("run");
    let fit = FitConfig::epochs(1).out(&out).quiet();
    let best = Trainer::new(config, AdamConfig::new(1e-2)).seed(5).fit(&exact, fit).unwrap();
    let accuracy = best.evaluate(&exact, Phase::Test).unwrap().accuracy();
    assert_eq!(accuracy, best.evaluate(&sampled, Phase::Test).unwrap().accuracy());
    let nodes: Vec<NodeId> = (900..N_NODES).map(NodeId).collect();
    let model = SavedModel::open(&out).unwrap();
    let predictor = model.on_nodes(&data).unwrap();
    let exactly = predictor.predict(&nodes, &PredictMode::AsEvaluated).unwrap();
    let mode = PredictMode::Sampled { fanouts: vec![Fanout::All; 2], seed: 0 };
    let by_batches = predictor.predict(&nodes, &mode).unwrap();
    for (one, other) in exactly.values().iter().zip(by_batches.values()) {
        assert!((one - other).abs() < 1e-5, "{one} {other}");
    }
    let without = data.clone().without_edge_rows().unwrap();
    let error = model.on_nodes(&without).unwrap().predict(&nodes, &mode).unwrap_err();
    assert!(error.to_string().contains("edge features with 3 columns, which are missing"), "{error}");
    let n_edges = data.graph.n_edges() as usize;
    let narrow = EdgeColumn::new(vec![0.0_f32; n_edges], 1).unwrap();
    let error = model.on_nodes(&data.with_edge_column(0, "features", narrow).unwrap()).unwrap_err();
    assert!(error.to_string().contains("1 columns, but the model was trained with 3"), "{error}");
}

/// Neighbours that do not ascend are sorted when reverse edges are added, which changes the ids of the edges. The rows move
/// with them.
#[test]
fn predictions_read_the_rows_of_edges_that_the_preparation_reorders() {
    let folder = tempfile::tempdir().unwrap();
    let built = Dataset::builder(3)
        .edges(&[0, 2], &[1, 1])
        .edge_features(vec![0.5, 1.5], 1)
        .features(vec![1.0, 2.0, 3.0], 1)
        .labels(vec![0, 1, 0], 2)
        .split(vec![NodeId(0)], vec![NodeId(1)], vec![NodeId(2)])
        .symmetrize()
        .build()
        .unwrap();
    let loader = NeighborLoader::new(&built, [Fanout::All]).edge_features();
    let out = folder.path().join("run");
    let config = GineConfig::for_data(&built).layers(1).hidden(4);
    let fit = FitConfig::epochs(1).out(&out).quiet();
    Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, fit).unwrap();
    let model = SavedModel::open(&out).unwrap();
    let predict = |data: &Dataset| {
        model.on_nodes(data).map(|predictor| {
            predictor.predict(&[NodeId(1)], &PredictMode::default()).unwrap().values().to_vec()
        })
    };
    let expected = predict(&built).unwrap();
    // The same graph as it was loaded, without a record of the step.
    let loaded = Dataset { preparation: Default::default(), ..built.clone() };
    assert_eq!(predict(&loaded).unwrap(), expected);
    let columns = built.csc().unwrap().columns();
    let indptr = built.csc().unwrap().indptr().to_vec();
    let mut indices = built.csc().unwrap().indices().to_vec();
    let of_one = indptr[1] as usize..indptr[2] as usize;
    indices[of_one.clone()].reverse();
    let mut edges: Vec<u64> = (0..indices.len() as u64).collect();
    edges[of_one].reverse();
    let graph = kiln::graph::Csc::new(indptr.into(), indices.into()).unwrap();
    let graph = graph.with_columns(&columns.select(edges.into_iter()).unwrap()).unwrap();
    assert_eq!(predict(&Dataset { graph: graph.into(), ..loaded.clone() }).unwrap(), expected);
    // The same edges as they were before the step.
    let directed = Dataset::builder(3)
        .edges(&[0, 2], &[1, 1])
        .edge_features(vec![0.5, 1.5], 1)
        .features(vec![1.0, 2.0, 3.0], 1)
        .build()
        .unwrap();
    assert_eq!(predict(&directed).unwrap(), expected);
}

#[test]
fn unsuitable_edge_features_are_errors_that_say_what_to_do() {
    let data = with_edge_features(two_relations());
    let config = GineConfig::for_data(&data).layers(1).hidden(8);
    let loader = NeighborLoader::new(&data, [3]);
    let error = |config: &GineConfig, loader: &NeighborLoader| {
        let folder = tempfile::tempdir().unwrap();
        let fit = FitConfig::epochs(1).out(folder.path().join("run")).quiet();
        let mut trainer = Trainer::new(config.clone(), AdamConfig::new(1e-2));
        trainer.fit(loader, fit).map(|_| ()).unwrap_err().to_string()
    };
    let with_rows = loader.clone().edge_features();
    let missing = NeighborLoader::new(&data.clone().without_edge_rows().unwrap(), [3]).edge_features();
    let narrow = GineConfig { edges: EdgeInput::Features(2), ..config.clone() };
    let amounts = EdgeColumn::new(vec![0.5_f32; data.graph.n_edges() as usize], 1).unwrap();
    let amounts = data.clone().with_edge_column(0, "amount", amounts).unwrap();
    let looped = NeighborLoader::new(&amounts, [3]).edge_features().edge_column("amount");
    let looped = looped.add_self_loops().unwrap();
    let looped_on_device = looped.clone().graph_mode(GraphMode::Device);
    let cases = [
        (&config, &loader, "call .edge_features() on it"),
        (&config, &missing, "the loader's graph has no edge features"),
        (&narrow, &with_rows, "the edge features have 3 columns, but the model reads 2: "),
        (&config, &looped, "add self loops or reverse edges, with features, before the dataset is built"),
        (
            &config,
            &looped_on_device,
            "add self loops or reverse edges, with features, before the dataset is built",
        ),
    ];
    for (config, loader, expected) in cases {
        let got = error(config, loader);
        assert!(got.contains(expected), "{got}, expected {expected}");
    }
}

/// Trains two epochs and returns the weights.
fn weights<C: ModelConfig>(model: &C, loader: &NeighborLoader, out: &Path) -> Vec<u8>
where
    C::Model: BlockModel,
{
    let fit = FitConfig::epochs(2).out(out).quiet();
    let best = Trainer::new(model.clone(), AdamConfig::new(1e-2)).seed(5).fit(loader, fit).unwrap();
    weights_to_bytes(&best.model).unwrap()
}

fn check_threads_and_workers<C: ModelConfig>(model: &C, loader: &NeighborLoader)
where
    C::Model: BlockModel,
{
    let folder = tempfile::tempdir().unwrap();
    let run = |n_threads: usize, n_workers: usize| {
        let out = folder.path().join(format!("{n_threads}-{n_workers}"));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        pool.install(|| weights(model, &loader.clone().workers(n_workers), &out))
    };
    let one = run(1, 0);
    assert!(one == run(3, 0), "the weights depend on the number of threads");
    assert!(one == run(2, 2), "the weights depend on the number of workers");
}

#[test]
fn threads_and_workers_do_not_change_the_weights() {
    let data = two_relations();
    let loader = NeighborLoader::new(&data, [3, 4]).batch_size(150);
    let gat = GatConfig::new(2, 2).layers(2).hidden(8).heads(2).attention_dropout(0.3);
    let looped = loader.clone().add_self_loops().unwrap();
    check_threads_and_workers(&gat, &looped);
    check_threads_and_workers(&gat.attention(AttentionKind::GatV2), &looped);
    let rgcn = RgcnConfig::new(2, 2, 2).layers(2).hidden(8).bases(2);
    check_threads_and_workers(&rgcn, &loader.clone().edge_types());
    let data = with_edge_features(data);
    let gine = GineConfig::for_data(&data).layers(2).hidden(8);
    check_threads_and_workers(&gine, &NeighborLoader::new(&data, [3, 4]).batch_size(150).edge_features());
}

#[test]
fn the_place_of_batches_does_not_change_the_weights_of_a_model_of_edge_features() {
    let (data, folder) = (with_edge_features(two_relations()), tempfile::tempdir().unwrap());
    let config = GineConfig::for_data(&data).layers(2).hidden(8);
    let loader = NeighborLoader::new(&data, [3, 4]).batch_size(150);
    let with_rows = loader.clone().edge_features();
    let trained = |loader: &NeighborLoader, name: &str| {
        let fit = FitConfig::epochs(2).out(folder.path().join(name)).quiet();
        let best = Trainer::new(config.clone(), AdamConfig::new(1e-2)).seed(5).fit(loader, fit).unwrap();
        let accuracy = best.evaluate(loader, Phase::Test).unwrap().accuracy();
        (weights_to_bytes(&best.model).unwrap(), accuracy)
    };
    let expected = trained(&with_rows, "host");
    assert!(with_rows.device_copies().is_empty());
    for mode in [GraphMode::Device, GraphMode::ZeroCopy] {
        // A loader without edge features whose copy is made first, which must not be shared.
        let placed = loader.clone().graph_mode(mode);
        let sage = SageConfig::for_data(&data).layers(2).hidden(8);
        weights(&sage, &placed, &folder.path().join(format!("{mode:?}-sage")));
        assert!(placed.device_copies()[0].edge_columns.is_empty());
        let placed = placed.edge_features();
        assert!(placed.device_copies().is_empty());
        assert!(trained(&placed, &format!("{mode:?}")) == expected, "{mode:?}");
        // Training, validation and test share one copy.
        assert_eq!(placed.device_copies().len(), 1);
        assert_eq!(placed.device_copies()[0].edge_columns[0].dim(), 3);
        let cached = placed.feature_cache(1 << 10);
        assert!(trained(&cached, &format!("{mode:?}-cached")) == expected, "{mode:?} with a cache");
        let rows = EdgeColumn::new(vec![0.5_f32; 3 * data.graph.n_edges() as usize], 3).unwrap();
        let other = data.clone().with_edge_column(0, "features", rows).unwrap();
        let other = NeighborLoader::new(&other, [3, 4]).batch_size(150).edge_features().graph_mode(mode);
        assert!(trained(&other, &format!("{mode:?}-other")) != expected, "the model should read the rows");
    }
}

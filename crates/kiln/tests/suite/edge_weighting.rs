//! Models that read the weights of edges: the class of a node is that of its one neighbour of weight 100 among nine of 0.01.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln::graph::{NodeTypes, RelationEdges};
use kiln::prelude::*;
use kiln::train::LayerWiseConfig;

use crate::fit::Notes;
use crate::frozen::partitions::Parts;

const N_SRCS: usize = 100;
const N_DSTS: usize = 400;
const N_NEIGHBORS: usize = 10;

/// The edges from sources to destinations, both counted from 0, with their weights, and the classes.
struct Edges {
    srcs: Vec<u32>,
    dsts: Vec<u32>,
    weights: Vec<f32>,
    of_srcs: Vec<i32>,
    of_dsts: Vec<i32>,
}

fn hash(value: usize) -> usize {
    (value as u32).wrapping_mul(0x9E37_79B9).rotate_left(15).wrapping_mul(0x85EB_CA6B) as usize >> 7
}

fn edges() -> Edges {
    let of_srcs: Vec<i32> = (0..N_SRCS).map(|src| (hash(src + 7) % 2) as i32).collect();
    let mut edges = Edges { srcs: vec![], dsts: vec![], weights: vec![], of_srcs, of_dsts: vec![] };
    for dst in 0..N_DSTS {
        let heavy = hash(3 * dst) % N_NEIGHBORS;
        for neighbor in 0..N_NEIGHBORS {
            let src = (hash(dst) + neighbor * 10 + hash(dst * N_NEIGHBORS + neighbor) % 10) % N_SRCS;
            edges.srcs.push(src as u32);
            edges.dsts.push(dst as u32);
            edges.weights.push(if neighbor == heavy { 100.0 } else { 0.01 });
            if neighbor == heavy {
                edges.of_dsts.push(edges.of_srcs[src]);
            }
        }
    }
    edges
}

fn features_of(classes: &[i32]) -> Vec<f32> {
    classes.iter().flat_map(|class| if *class == 0 { [1.0, 0.0] } else { [0.0, 1.0] }).collect()
}

fn split(first: u32) -> [Vec<u32>; 3] {
    [0..200, 200..300, 300..400].map(|part| part.map(|node| first + node).collect())
}

/// Sources and destinations are nodes of one type, and the edges have one of two types.
fn plain() -> Dataset {
    let Edges { srcs, dsts, weights, of_srcs, of_dsts } = edges();
    let first = N_SRCS as u32;
    let [train, val, test] = split(first);
    let mut features = features_of(&of_srcs);
    features.resize(2 * (N_SRCS + N_DSTS), 0.0);
    Dataset::builder(N_SRCS + N_DSTS)
        .edges(&srcs, &dsts.iter().map(|dst| first + dst).collect::<Vec<_>>())
        .edge_weights(&weights)
        .edge_types(&(0..srcs.len()).map(|edge| (edge % 2) as u8).collect::<Vec<_>>())
        .features(features, 2)
        .labels([vec![-1; N_SRCS], of_dsts].concat(), 2)
        .split(train, val, test)
        .build()
        .unwrap()
}

/// Of the relations, `rates` has weights and `is like` has none.
fn heterogeneous() -> Dataset {
    let Edges { srcs, dsts, weights, of_srcs, of_dsts } = edges();
    let ring: Vec<u32> = (0..N_DSTS as u32).collect();
    let next: Vec<u32> = ring.iter().map(|node| (node + 1) % N_DSTS as u32).collect();
    let rates = RelationEdges::new("rates", "user", "item", &srcs, &dsts);
    let [train, val, test] = split(0);
    Dataset::builder_with_types(NodeTypes::new([("user", N_SRCS), ("item", N_DSTS)]).unwrap())
        .relation(RelationEdges { weights: Some(&weights), ..rates })
        .relation(RelationEdges::new("is like", "item", "item", &ring, &next))
        .nodes("user")
        .features(features_of(&of_srcs), 2)
        .nodes("item")
        .features(vec![0.0; 2 * N_DSTS], 2)
        .labels(of_dsts, 2)
        .split(train, val, test)
        .build()
        .unwrap()
}

/// The result of a run: the accuracy on the test split and the weights of the model.
#[derive(Debug, Clone, PartialEq)]
struct Learned {
    accuracy: f64,
    weights: Vec<u8>,
}

/// Trains for 20 epochs on one thread.
fn train<C>(
    config: &C,
    loader: impl Fn(&RankHandle) -> kiln::Result<NeighborLoader> + Sync,
    out: &Path,
) -> Learned
where
    C: ModelConfig,
    C::Model: kiln::nn::BlockModel,
{
    let accuracy = launch(RankConfig::threads(1).threads_per_rank(1), |rank| {
        let loader = loader(&rank)?.batch_size(32).workers(0);
        let mut trainer = Trainer::new(config.clone(), AdamConfig::new(0.05)).seed(1).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(20).out(out).quiet())?;
        Ok(best.evaluate(&loader, Phase::Test)?.accuracy())
    });
    Learned { accuracy: accuracy.unwrap()[0], weights: std::fs::read(out.join("best.safetensors")).unwrap() }
}

fn sage(data: &Dataset, weighting: EdgeWeighting) -> SageConfig {
    SageConfig::for_data(data).layers(1).dropout(0.0).edge_weighting(weighting)
}

fn rsage(data: &Dataset, weighting: EdgeWeighting) -> HeteroModelConfig<RsageConfig> {
    let config = RsageConfig::new(8, 2).metagraph(&data.graph.metagraph()).layers(1).dropout(0.0);
    HeteroModelConfig::new(data.dims(), config.edge_weighting(weighting))
}

fn weighted(loader: NeighborLoader, weighting: EdgeWeighting) -> NeighborLoader {
    match weighting {
        EdgeWeighting::None => loader,
        EdgeWeighting::Scale | EdgeWeighting::Normalize => loader.edge_weights(EdgeWeights::Stored),
    }
}

#[test]
fn models_learn_from_weights_only_if_they_read_them() {
    let root = tempfile::tempdir().unwrap();
    let data = [plain(), heterogeneous()];
    let [plain, typed] = &data;
    for weighting in [EdgeWeighting::None, EdgeWeighting::Scale, EdgeWeighting::Normalize] {
        let loader = |data: &Dataset| weighted(NeighborLoader::new(data, [Fanout::All]), weighting);
        let out = |name: &str| root.path().join(format!("{name}-{weighting:?}"));
        let rgcn = RgcnConfig::new(2, 2, 2).layers(1).dropout(0.0).edge_weighting(weighting);
        let typed_rgcn = HeteroModelConfig::new(
            typed.dims(),
            RgcnConfig::new(8, 2, 2).layers(1).dropout(0.0).edge_weighting(weighting),
        );
        let learned = [
            ("sage", train(&sage(plain, weighting), |_| Ok(loader(plain)), &out("sage"))),
            ("rgcn", train(&rgcn, |_| Ok(loader(plain).edge_types()), &out("rgcn"))),
            ("typed sage", train(&rsage(typed, weighting), |_| Ok(loader(typed)), &out("typed-sage"))),
            ("typed rgcn", train(&typed_rgcn, |_| Ok(loader(typed)), &out("typed-rgcn"))),
        ];
        for (name, Learned { accuracy, .. }) in learned {
            match weighting {
                EdgeWeighting::None => assert!(accuracy < 0.8, "{name}: {accuracy}"),
                _ => assert!(0.95 < accuracy, "{name} with {weighting:?}: {accuracy}"),
            }
        }
    }
}

/// The same weights of the model result on the whole graph, on a device and on servers, and its predictions are those of its
/// evaluation.
#[test]
fn weighted_models_do_not_depend_on_the_place_of_the_graph() {
    let root = tempfile::tempdir().unwrap();
    let weighting = EdgeWeighting::Normalize;
    let data = plain();
    let parts = Parts::of(&data).serve();
    let plain = [
        train(
            &sage(&data, weighting),
            |_| Ok(weighted(NeighborLoader::new(&data, [4]), weighting)),
            &root.path().join("whole"),
        ),
        train(
            &sage(&data, weighting),
            |_| Ok(weighted(NeighborLoader::new(&data, [4]).graph_mode(GraphMode::Device), weighting)),
            &root.path().join("device"),
        ),
        train(
            &sage(&data, weighting),
            |rank| Ok(weighted(NeighborLoader::new(&parts.graph.join(rank)?, [4]), weighting)),
            &root.path().join("servers"),
        ),
    ];
    assert!(plain.iter().all(|learned| *learned == plain[0]));
    let typed = heterogeneous();
    let parts = Parts::of_typed(&typed).serve();
    let of_typed = [
        train(
            &rsage(&typed, weighting),
            |_| Ok(weighted(NeighborLoader::new(&typed, [4]), weighting)),
            &root.path().join("typed"),
        ),
        train(
            &rsage(&typed, weighting),
            |_| Ok(weighted(NeighborLoader::new(&typed, [4]).graph_mode(GraphMode::Device), weighting)),
            &root.path().join("typed-device"),
        ),
        train(
            &rsage(&typed, weighting),
            |rank| Ok(weighted(NeighborLoader::new(&parts.graph.join(rank)?, [4]), weighting)),
            &root.path().join("typed-servers"),
        ),
    ];
    assert!(of_typed.iter().all(|learned| *learned == of_typed[0]));
    for (name, data) in [("whole", &data), ("typed", &typed)] {
        let predictor = SavedModel::open(root.path().join(name)).unwrap().on_nodes(data).unwrap();
        // Those of a heterogeneous graph are numbered within their type.
        let first = if data.is_heterogeneous() { 0 } else { N_SRCS };
        let test: Vec<NodeId> = split(first as u32)[2].iter().copied().map(NodeId).collect();
        for mode in [PredictMode::default(), PredictMode::Exact(LayerWiseConfig::default())] {
            let classes = predictor.predict(&test, &mode).unwrap().classes();
            let of_dsts = edges().of_dsts;
            let is_right = |node: &NodeId, class: &Option<u32>| {
                class.map(|class| class as i32) == Some(of_dsts[node.index() - first])
            };
            let n_right = test.iter().zip(&classes).filter(|(node, class)| is_right(node, class)).count();
            // Four of ten neighbours are sampled, and often not the heavy one.
            let at_least = if matches!(mode, PredictMode::Exact(_)) { 95 } else { 55 };
            assert!(at_least <= n_right, "{name} in {mode:?}: {n_right}");
        }
    }
}

#[test]
fn a_run_names_the_columns_that_its_model_does_not_read() {
    let root = tempfile::tempdir().unwrap();
    let notes_of = |config: &SageConfig, loader: NeighborLoader, name: &str| {
        let notes = Notes::default();
        let fit = FitConfig::epochs(1).out(root.path().join(name)).quiet().callback(notes.clone());
        Trainer::new(config.clone(), AdamConfig::new(0.05)).fit(&loader.batch_size(8), fit).unwrap();
        notes.0.lock().unwrap().clone()
    };
    let data = plain();
    let none = sage(&data, EdgeWeighting::None);
    let types = "the model does not read the edge column `types`: rgcn, gine can";
    let weights =
        "the model does not read the edge column `weights`: gcn does, and sage, rgcn with edge weighting";
    assert_eq!(notes_of(&none, NeighborLoader::new(&data, [2]), "none"), [types, weights]);
    let scaled = sage(&data, EdgeWeighting::Scale);
    let loader = weighted(NeighborLoader::new(&data, [2]), EdgeWeighting::Scale);
    assert_eq!(notes_of(&scaled, loader, "scaled"), [types]);
    let typed = heterogeneous();
    let notes = <NeighborLoader as DataLoader<kiln::nn::Sage>>::notes(&NeighborLoader::new(&typed, [2]));
    assert_eq!(
        notes,
        ["the model does not read the edge column `weights` of `rates`: sage, rgcn can, with edge weighting"]
    );
}

#[test]
fn a_model_that_reads_weights_is_rejected_without_them() {
    let root = tempfile::tempdir().unwrap();
    let data = plain();
    let fit = || FitConfig::epochs(1).out(root.path().join("run")).quiet();
    let mut trainer = Trainer::new(sage(&data, EdgeWeighting::Scale), AdamConfig::new(0.05));
    let error = trainer.fit(&NeighborLoader::new(&data, [2]), fit()).unwrap_err();
    assert!(matches!(error, Error::NoEdgeWeights), "{error}");
}

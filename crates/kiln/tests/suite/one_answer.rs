//! One answer per item: an item has the same prediction, bit for bit, whatever else is requested or evaluated with it, in
//! whatever order, in batches of whatever size.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use kiln::data::synthetic;
use kiln::graph::{EdgeColumn, Links};
use kiln::nn::{AttentionKind, JumpingKnowledge, Normalization};
use kiln::prelude::*;
use kiln::sample::{KeyDomain, RngKey};
use kiln::train::{LinkPrediction, OutputRows};

use crate::heterogeneous::predictions::{N_ITEMS, named_shop};

/// The sizes of evaluation batches that each model is tried with.
const BATCH_SIZES: [usize; 5] = [1, 7, 32, 100, 1000];

/// Returns a graph with edge features and edge types, whose nodes have more neighbours than the loaders sample.
fn data() -> Dataset {
    let config = synthetic::FakeConfig {
        avg_num_nodes: 300,
        avg_degree: 12.0,
        num_channels: 16,
        seed: 3,
        ..Default::default()
    };
    let data = synthetic::fake(config).unwrap();
    let n_edges = data.graph.n_edges();
    let types: Vec<u8> = (0..n_edges).map(|edge| (edge % 3) as u8).collect();
    let graph = (**data.csc().unwrap()).clone().with_edge_types(types.into()).unwrap();
    let rows: Vec<f32> = (0..3 * n_edges).map(|value| (value * 7 % 11) as f32 / 11.0).collect();
    let graph = graph.with_column("features", EdgeColumn::new(rows, 3).unwrap()).unwrap();
    Dataset { graph: graph.into(), ..data }
}

fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [3, 3]).batch_size(64).workers(0)
}

/// Trains for an epoch.
fn train<C: ModelConfig, L: DataLoader<C::Model>>(
    model: C,
    loader: &L,
    out: &Path,
) -> TrainedModel<C::Model> {
    let fit = FitConfig::epochs(1).out(out).quiet();
    Trainer::new(model, AdamConfig::new(1e-2)).seed(7).fit(loader, fit).unwrap()
}

/// Returns up to `n` of the items `0..n_items`, drawn at random: in any order, some of them twice.
fn request(number: u64, n_items: u32, n: u32) -> Vec<u32> {
    let mut rng = RngKey::new(number).fold_in(KeyDomain::Step, 0).node(NodeId(0)).rng();
    let n = 1 + rng.below(n);
    (0..n).map(|_| rng.below(n_items)).collect()
}

/// Compares the rows of random requests with those of one request of all items. `predict` returns the row of each item.
fn check(run: &Path, n_items: u32, predict: impl Fn(&SavedModel, &[u32]) -> Vec<Vec<f32>>) {
    let all: Vec<u32> = (0..n_items).collect();
    let expected = predict(&SavedModel::open(run).unwrap(), &all);
    assert!(expected.iter().any(|row| *row != expected[0]), "a constant is always the same");
    let path = run.join("model.json");
    let mut info: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    for (number, batch_size) in BATCH_SIZES.into_iter().enumerate() {
        info["evaluation"]["batch_size"] = batch_size.into();
        fs::write(&path, info.to_string()).unwrap();
        let model = SavedModel::open(run).unwrap();
        let kind = &model.info().kind;
        let n = if batch_size == 1 { 20 } else { 200 };
        for items in [request(number as u64, n_items, n), vec![number as u32]] {
            let found = predict(&model, &items);
            assert_eq!(found.len(), items.len());
            for (item, row) in items.iter().zip(found) {
                assert_eq!(row, expected[*item as usize], "{kind}, item {item}, batches of {batch_size}");
            }
        }
    }
}

fn rows(outputs: &OutputRows) -> Vec<Vec<f32>> {
    outputs.rows().map(<[f32]>::to_vec).collect()
}

fn nodes(ids: &[u32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// Checks predictions of a model of nodes, and that they are those of the run's test split.
fn check_nodes<C: ModelConfig>(model: C, data: &Dataset, loader: &NeighborLoader)
where
    NeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let best = train(model, loader, &run);
    let predict = |model: &SavedModel, ids: &[u32]| {
        let predictor = model.on_nodes(data).unwrap();
        rows(&predictor.predict(&nodes(ids), &PredictMode::AsEvaluated).unwrap())
    };
    check(&run, data.graph.n_nodes() as u32, predict);
    let predictor = SavedModel::open(&run).unwrap().on_nodes(data).unwrap();
    let classes = predictor.predict(&data.split().test, &PredictMode::AsEvaluated).unwrap().classes();
    let of_run = best.predict(loader, Phase::Test).unwrap();
    let mut expected: Vec<(NodeId, Option<u32>)> = data.split().test.iter().copied().zip(classes).collect();
    expected.sort_unstable();
    let of_run: Vec<(NodeId, Option<u32>)> =
        of_run.predictions().iter().map(|of_node| (NodeId(of_node.item), of_node.predicted)).collect();
    assert_eq!(of_run, expected);
}

#[test]
fn nodes_have_one_prediction() {
    let data = data();
    let loader = loader(&data);
    let sage = SageConfig::for_data(&data).layers(2).hidden(16);
    check_nodes(sage.clone(), &data, &loader);
    let frame = sage.norm(Normalization::Layer).residual(true).jumping(JumpingKnowledge::Cat);
    check_nodes(frame, &data, &loader);
    check_nodes(GcnConfig::for_data(&data).layers(2).hidden(16), &data, &loader.clone().gcn_norm().unwrap());
    let with_loops = loader.clone().add_self_loops().unwrap();
    for attention in [AttentionKind::Gat, AttentionKind::GatV2] {
        let gat = GatConfig::for_data(&data).layers(2).hidden(16).heads(2).attention(attention);
        check_nodes(gat, &data, &with_loops);
    }
    check_nodes(RgcnConfig::for_data(&data).layers(2).hidden(16), &data, &loader.clone().edge_types());
    check_nodes(GineConfig::for_data(&data).layers(2).hidden(16), &data, &loader.clone().edge_features());
}

/// Products of more than 512 terms, and with a single column.
#[test]
fn nodes_with_wide_features_and_one_output_have_one_prediction() {
    const N_NODES: u32 = 200;
    let hashed = |value: u32| value.wrapping_mul(2_654_435_761) >> 8;
    let srcs: Vec<u32> = (0..10 * N_NODES).map(|edge| hashed(edge) % N_NODES).collect();
    let dsts: Vec<u32> = (0..10 * N_NODES).map(|edge| edge % N_NODES).collect();
    let features: Vec<f32> =
        (0..700 * N_NODES).map(|value| hashed(value) as f32 / (1 << 24) as f32).collect();
    let part = |range: std::ops::Range<u32>| range.map(NodeId).collect::<Vec<NodeId>>();
    let builder = Dataset::builder(N_NODES as usize).edges(&srcs, &dsts).features(features, 700).split(
        part(0..100),
        part(100..150),
        part(150..200),
    );
    let targets: Vec<f32> = (0..N_NODES).map(|node| (node % 7) as f32).collect();
    let data = builder.regression(targets, 1).build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    train(SageConfig::for_data(&data).layers(2).hidden(8), &loader(&data), &run);
    check(&run, N_NODES, |model, ids| {
        let predictor = model.on_nodes(&data).unwrap();
        rows(&predictor.predict(&nodes(ids), &PredictMode::AsEvaluated).unwrap())
    });
}

fn check_typed<C: ModelConfig>(model: C, data: &Dataset)
where
    NeighborLoader: DataLoader<C::Model>,
{
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let loader = NeighborLoader::new(data, [3, 3]).batch_size(64).workers(0);
    train(model, &loader, &run);
    check(&run, N_ITEMS, |model, ids| {
        let predictor = model.on_nodes(data).unwrap();
        rows(&predictor.predict(&nodes(ids), &PredictMode::AsEvaluated).unwrap())
    });
}

#[test]
fn nodes_of_heterogeneous_graphs_have_one_prediction() {
    let data = named_shop(1, 0);
    let metagraph = data.graph.metagraph();
    check_typed(HeteroModelConfig::new(data.dims(), RgcnConfig::new(8, 2, 2).layers(2).hidden(16)), &data);
    let rsage = RsageConfig::new(8, 2).metagraph(&metagraph).layers(2).hidden(16);
    check_typed(HeteroModelConfig::new(data.dims(), rsage), &data);
    let hgt = HgtConfig::new(8, 2).metagraph(&metagraph).layers(2).hidden(16).heads(2);
    check_typed(HeteroModelConfig::new(data.dims(), hgt), &data);
}

/// Returns the pairs with these numbers, of which there are `side * side`.
fn pairs(side: u32, numbers: &[u32]) -> Links {
    let [srcs, dsts]: [Vec<NodeId>; 2] = [
        numbers.iter().map(|number| NodeId(number / side)).collect(),
        numbers.iter().map(|number| NodeId(number % side)).collect(),
    ];
    Links::new(srcs, dsts).unwrap()
}

/// Checks that the pairs of the first 20 nodes have one score each, and that the test links have those of the run.
fn check_links(run: &Path, of_run: &[LinkPrediction], score: impl Fn(&SavedModel, &Links) -> Vec<f32>) {
    const SIDE: u32 = 20;
    check(run, SIDE * SIDE, |model, numbers| {
        score(model, &pairs(SIDE, numbers)).into_iter().map(|score| vec![score]).collect()
    });
    let test = Links::new(
        of_run.iter().map(|link| link.src).collect::<Vec<_>>(),
        of_run.iter().map(|link| link.dst).collect::<Vec<_>>(),
    );
    let expected: Vec<f32> = of_run.iter().map(|link| link.score).collect();
    assert_eq!(score(&SavedModel::open(run).unwrap(), &test.unwrap()), expected);
}

#[test]
fn links_have_one_score() {
    let data = data();
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 3).unwrap();
    let loader = LinkNeighborLoader::new(loader(&data), &split).unwrap();
    let message = Dataset { graph: split.message().clone(), ..data.clone() };
    let encoder = SageConfig::new(16, 16).layers(2).hidden(16).dropout(0.0);
    for decoder in [LinkDecoderConfig::Dot, LinkDecoderConfig::Mlp { hidden: 16, n_layers: 2, dropout: 0.0 }]
    {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let best = train(LinkModelConfig { encoder: encoder.clone(), decoder }, &loader, &run);
        let of_run = best.predict(&loader, Phase::Test).unwrap().link_predictions();
        check_links(&run, &of_run, |model, links| {
            model.on_links(&message).unwrap().score_links(links, &PredictMode::AsEvaluated).unwrap()
        });
    }
}

#[test]
fn links_of_heterogeneous_graphs_have_one_score() {
    let data = named_shop(1, 0);
    let split =
        LinkSplit::random_relation(&data.graph, "buys", Some("bought by"), &LinkSplitConfig::default(), 3);
    let split = split.unwrap();
    let nodes = NeighborLoader::new(&data, [3, 3]).batch_size(64).workers(0);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    let model = RsageConfig::new(8, 8).metagraph(&data.graph.metagraph()).layers(2).hidden(16);
    let encoder = HeteroModelConfig::new(data.dims(), model);
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let best = train(LinkModelConfig { encoder, decoder: LinkDecoderConfig::Dot }, &loader, &run);
    let message = Dataset { graph: split.message().clone(), ..data.clone() };
    let of_run = best.predict(&loader, Phase::Test).unwrap().link_predictions();
    check_links(&run, &of_run, |model, links| {
        model.on_links(&message).unwrap().score_links(links, &PredictMode::AsEvaluated).unwrap()
    });
}

#[test]
fn graphs_have_one_prediction() {
    let graphs = GraphDataset::open("mutag").unwrap();
    let features = graphs.node_features(NodeFeatures::Auto).unwrap();
    let split = Split::random(graphs.n_graphs(), [0.6, 0.1], 0).unwrap();
    let loader = GraphLoader::new(&graphs, features.clone(), &split).batch_size(16).workers(0);
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    train(GinConfig::paper(features.dim(), 16, graphs.labels().n_classes()), &loader, &run);
    check(&run, graphs.n_graphs() as u32, |model, ids| {
        let items: Vec<GraphId> = ids.iter().copied().map(GraphId).collect();
        rows(&model.predict_dataset(&graphs, &features, &items).unwrap())
    });
}

/// The test accuracy of one model, and its classes, for other batches and ranks.
#[test]
fn evaluations_do_not_depend_on_batches_and_ranks() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let config = SageConfig::for_data(&data).layers(2).hidden(16);
    let best = train(config.clone(), &loader(&data), &folder.path().join("run"));
    let evaluations = |loader: &NeighborLoader| {
        [Phase::Validation, Phase::Test].map(|phase| best.predict(loader, phase).unwrap().predictions())
    };
    let expected = evaluations(&loader(&data));
    for batch_size in [1, 32, 100, 1024] {
        assert_eq!(evaluations(&loader(&data).batch_size(batch_size)), expected, "batches of {batch_size}");
    }
    // The nodes of one split are evaluated as nodes of the other.
    let Split { train: of_training, val, test } = data.split().clone();
    let swapped = Split { train: of_training, val: test, test: val };
    let swapped = data.clone().with_split(swapped).unwrap();
    let [of_test, of_validation] = evaluations(&loader(&swapped));
    assert_eq!([of_validation, of_test], expected);
}

/// A run with 96 nodes per step, in any number of batches and ranks: the metrics of each epoch. The trained weights differ by
/// the rounding of sums of gradients, in the last digits, which changes no class here.
#[test]
fn validation_and_test_of_a_run_depend_on_the_step_only() {
    let data = data();
    let run = |n_ranks: usize, batch_size: usize, accumulate: usize| {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Mutex::new(Vec::new());
        launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
            let loader = loader(&data).batch_size(batch_size);
            let config = SageConfig::for_data(&data).layers(2).hidden(16);
            let mut trainer = Trainer::new(config, AdamConfig::new(1e-2)).seed(7).accumulate(accumulate);
            trainer = trainer.rank(&rank);
            let best = trainer.fit(&loader, FitConfig::epochs(3).out(folder.path().join("run")).quiet())?;
            let test = best.evaluate(&loader, Phase::Test)?;
            metrics.lock().unwrap().push([best.best.epoch as f64, best.best.val.accuracy(), test.accuracy()]);
            Ok(())
        })
        .unwrap();
        metrics.into_inner().unwrap()[0]
    };
    let expected = run(1, 96, 1);
    for (n_ranks, batch_size, accumulate) in [(1, 48, 2), (1, 32, 3), (2, 48, 1), (3, 32, 1), (2, 16, 3)] {
        assert_eq!(run(n_ranks, batch_size, accumulate), expected, "{n_ranks} x {batch_size} x {accumulate}");
    }
}

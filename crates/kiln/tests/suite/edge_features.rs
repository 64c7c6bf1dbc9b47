//! Edge features in models: labels that only the features of edges determine, the same weights and predictions wherever the graph
//! is, and errors for data without the features that a model reads.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;

use kiln::DataDims;
use kiln::graph::{EdgeColumn, EdgeColumns, NodeTypes, RelationEdges, features_with_self_loops};
use kiln::nn::{AttentionKind, BlockModel};
use kiln::prelude::*;
use kiln::train::LayerWiseConfig;

use crate::frozen::partitions::Parts;

const N_SRCS: usize = 40;
const N_DSTS: usize = 600;
const N_EDGES_OF_DST: usize = 6;

/// Returns a hashed number between 0 and 1, a different one for each `i`.
fn number(i: usize) -> f32 {
    ((i as u32).wrapping_mul(2_654_435_769).rotate_left(13).wrapping_mul(0x85EB_CA6B) >> 8) as f32
        / 16_777_216.0
}

fn label(dst: usize) -> i32 {
    i32::from(number(dst + 7_000) < 0.5)
}

/// Returns the sources of the edges of all destinations: half of them are even, half of them odd.
fn srcs() -> Vec<u32> {
    let pick = |i: usize| 2 * (number(i) * (N_SRCS / 2) as f32) as u32 + (i % 2) as u32;
    (0..N_DSTS * N_EDGES_OF_DST).map(pick).collect()
}

fn dsts(first: usize) -> Vec<u32> {
    (0..N_DSTS * N_EDGES_OF_DST).map(|i| (first + i / N_EDGES_OF_DST) as u32).collect()
}

/// Returns two columns for each edge: the sign of the label of its destination with some noise, and noise.
fn rows() -> Vec<f32> {
    let row = |i: usize| {
        let sign = if label(i / N_EDGES_OF_DST) == 1 { 1.0 } else { -1.0 };
        [sign + number(i + 20_000) - 0.5, number(i + 40_000) - 0.5]
    };
    (0..N_DSTS * N_EDGES_OF_DST).flat_map(row).collect()
}

/// The parity of a source, which half of the sources of each destination have.
fn features(n: usize) -> Vec<f32> {
    (0..n).map(|node| if node % 2 == 0 { 1.0 } else { -1.0 }).collect()
}

fn split(first: usize) -> [Vec<u32>; 3] {
    [0..250, 250..300, 300..N_DSTS].map(|nodes| nodes.map(|node| (first + node) as u32).collect())
}

/// Returns a set of one type of nodes, of which the last are labelled. Edges have the types 0 and 1, at random.
fn plain() -> Dataset {
    let [train, val, test] = split(N_SRCS);
    let labels: Vec<i32> = (0..N_SRCS).map(|_| -1).chain((0..N_DSTS).map(label)).collect();
    let types: Vec<u8> = (0..N_DSTS * N_EDGES_OF_DST).map(|i| u8::from(number(i + 9) < 0.5)).collect();
    Dataset::builder(N_SRCS + N_DSTS)
        .edges(&srcs(), &dsts(N_SRCS))
        .edge_types(&types)
        .edge_features(rows(), 2)
        .features(features(N_SRCS + N_DSTS), 1)
        .labels(labels, 2)
        .split(train, val, test)
        .build()
        .unwrap()
}

/// Returns a set of two types of nodes and three relations: with the features of [`plain`], with none, and with one column of
/// noise in half precision.
fn heterogeneous() -> Dataset {
    let [train, val, test] = split(0);
    let others: Vec<u32> = srcs().into_iter().rev().collect();
    let payees = dsts(0);
    let payers = srcs();
    let built = Dataset::builder_with_types(NodeTypes::new([("user", N_SRCS), ("item", N_DSTS)]).unwrap())
        .relation(RelationEdges::new("pays", "user", "item", &payers, &payees))
        .relation(RelationEdges::new("views", "user", "item", &others, &payees))
        .relation(RelationEdges::new("rates", "user", "item", &others, &payees))
        .nodes("user")
        .features(features(N_SRCS), 1)
        .nodes("item")
        .features(features(N_DSTS), 1)
        .labels((0..N_DSTS).map(label).collect::<Vec<_>>(), 2)
        .split(train, val, test)
        .build()
        .unwrap();
    let noise: Vec<half::f16> =
        (0..N_DSTS * N_EDGES_OF_DST).map(|i| half::f16::from_f32(number(i + 60_000))).collect();
    // The edges of a destination are in the order of their sources in the graph, which no label depends on.
    let built = built.with_edge_column(2, EdgeColumns::FEATURES, EdgeColumn::new(noise, 1).unwrap()).unwrap();
    let payments = Dataset::builder(N_SRCS + N_DSTS)
        .edges(&srcs(), &dsts(N_SRCS))
        .edge_features(rows(), 2)
        .features(features(N_SRCS + N_DSTS), 1)
        .build()
        .unwrap();
    let payments = payments.csc().unwrap().columns().get(EdgeColumns::FEATURES).unwrap().clone();
    built.with_edge_column(0, EdgeColumns::FEATURES, payments).unwrap()
}

/// The accuracy on the test split and the weights of a model.
#[derive(Debug, Clone, PartialEq)]
struct Learned {
    accuracy: f64,
    weights: Vec<u8>,
}

type Adapt<'a> = &'a (dyn Fn(NeighborLoader) -> NeighborLoader + Sync);

/// Trains on one thread.
fn train<C>(
    config: &C,
    n_epochs: usize,
    loader: impl Fn(&RankHandle) -> kiln::Result<NeighborLoader> + Sync,
    out: &Path,
) -> Learned
where
    C: ModelConfig,
    C::Model: BlockModel,
{
    let accuracy = launch(RankConfig::threads(1).threads_per_rank(1), |rank| {
        let loader = loader(&rank)?.batch_size(50).workers(0);
        let mut trainer = Trainer::new(config.clone(), AdamConfig::new(0.02)).seed(1).rank(&rank);
        let best = trainer.fit(&loader, FitConfig::epochs(n_epochs).out(out).quiet())?;
        Ok(best.evaluate(&loader, Phase::Test)?.accuracy())
    });
    Learned { accuracy: accuracy.unwrap()[0], weights: std::fs::read(out.join("best.safetensors")).unwrap() }
}

fn gatv2() -> GatConfig {
    GatConfig::new(1, 2).attention(AttentionKind::GatV2).layers(1).output_heads(4).dropout(0.0)
}

fn transformer() -> TransformerConfig {
    TransformerConfig::new(1, 2).layers(1).output_heads(4).dropout(0.0)
}

fn rgcn() -> RgcnConfig {
    RgcnConfig::new(1, 2, 2).layers(1).bases(2).dropout(0.0)
}

fn gine(edges: EdgeInput) -> GineConfig {
    GineConfig::new(1, 2, edges).layers(1).hidden(16).dropout(0.0)
}

fn typed<C: ModelConfig>(data: &Dataset, model: C) -> HeteroModelConfig<C> {
    HeteroModelConfig::new(data.dims(), model)
}

fn rsage(data: &Dataset) -> RsageConfig {
    RsageConfig::new(8, 2).metagraph(&data.graph.metagraph()).layers(1).dropout(0.0)
}

fn typed_rgcn() -> RgcnConfig {
    RgcnConfig::new(8, 2, 3).layers(1).dropout(0.0)
}

#[test]
fn labels_of_edge_features_are_learned_with_them_only() {
    let root = tempfile::tempdir().unwrap();
    let [data, of_types] = [plain(), heterogeneous()];
    let widths = of_types.edge_widths().unwrap();
    assert_eq!(widths, [Some(2), None, Some(1)]);
    let mut n_runs = 0;
    let mut check = |name: &str, reads: bool, learned: Learned| {
        let Learned { accuracy, .. } = learned;
        match reads {
            true => assert!(0.95 <= accuracy, "{name} with edge features: {accuracy}"),
            false => assert!(accuracy <= 0.6, "{name} without edge features: {accuracy}"),
        }
        n_runs += 1;
    };
    let out = |name: &str, reads: bool| root.path().join(format!("{name}-{reads}"));
    let loader = |reads: bool| {
        let loader = NeighborLoader::new(&data, [Fanout::All]);
        if reads { loader.edge_features() } else { loader }
    };
    let of_types_loader = |reads: bool| {
        let loader = NeighborLoader::new(&of_types, [Fanout::All]);
        if reads { loader.edge_features_by_relation() } else { loader }
    };
    for reads in [true, false] {
        let edges = if reads { EdgeInput::Features(2) } else { EdgeInput::Types(2) };
        let adapted = |_: &RankHandle| Ok(if reads { loader(true) } else { loader(false).edge_types() });
        check("gine", reads, train(&gine(edges), 20, adapted, &out("gine", reads)));
        let config = if reads { gatv2().edge_features(2) } else { gatv2() };
        let learned = train(&config, 20, |_| loader(reads).add_self_loops(), &out("gatv2", reads));
        check("gatv2", reads, learned);
        let config = if reads { transformer().edge_features(2) } else { transformer() };
        check("transformer", reads, train(&config, 20, |_| Ok(loader(reads)), &out("transformer", reads)));
        let config = if reads { rgcn().edge_features([Some(2); 2]) } else { rgcn() };
        let learned = train(&config, 20, |_| Ok(loader(reads).edge_types()), &out("rgcn", reads));
        check("rgcn", reads, learned);
        let config = rsage(&of_types);
        let config = if reads { config.edge_features(widths.clone()) } else { config };
        let config = typed(&of_types, config);
        check("rsage", reads, train(&config, 20, |_| Ok(of_types_loader(reads)), &out("rsage", reads)));
        let config = if reads { typed_rgcn().edge_features(widths.clone()) } else { typed_rgcn() };
        let config = typed(&of_types, config);
        let learned = train(&config, 20, |_| Ok(of_types_loader(reads)), &out("typed-rgcn", reads));
        check("typed rgcn", reads, learned);
    }
    assert_eq!(n_runs, 12);
}

/// Checks that the weights of a model do not depend on the place of the graph, and that it predicts the same for whole and
/// partitioned graphs, with sampled and with all neighbours.
fn check_places<C: ModelConfig>(config: &C, data: &Dataset, adapt: Adapt<'_>, root: &Path)
where
    C::Model: BlockModel,
{
    let parts = if data.is_heterogeneous() { Parts::of_typed(data) } else { Parts::of(data) };
    let served = parts.serve();
    let whole = train(config, 1, |_| Ok(adapt(NeighborLoader::new(data, [3, 2]))), &root.join("whole"));
    let on_device =
        |_: &RankHandle| Ok(adapt(NeighborLoader::new(data, [3, 2]).graph_mode(GraphMode::Device)));
    assert!(train(config, 1, on_device, &root.join("device")) == whole, "{config:?} on the device");
    let on_servers = |rank: &RankHandle| Ok(adapt(NeighborLoader::new(&served.graph.join(rank)?, [3, 2])));
    assert!(train(config, 1, on_servers, &root.join("servers")) == whole, "{config:?} on servers");

    let first = if data.is_heterogeneous() { 0 } else { N_SRCS };
    let nodes: Vec<NodeId> = split(first)[2].iter().copied().map(NodeId).collect();
    let model = SavedModel::open(root.join("whole")).unwrap();
    let predictor = model.on_nodes(data).unwrap();
    let sampled = predictor.predict(&nodes, &PredictMode::default()).unwrap().values().to_vec();
    let exact = PredictMode::Exact(LayerWiseConfig::default());
    let exact = predictor.predict(&nodes, &exact).unwrap().values().to_vec();
    let all = PredictMode::Sampled { fanouts: vec![Fanout::All; 2], seed: 0 };
    let all = predictor.predict(&nodes, &all).unwrap().values().to_vec();
    let close = |(one, other): (&f32, &f32)| (one - other).abs() < 1e-4;
    assert!(
        exact.iter().zip(&all).all(close),
        "{config:?}: exact outputs differ from those of all neighbours"
    );
    let of_parts = launch(RankConfig::threads(1), |rank| {
        let joined = served.graph.join(&rank)?;
        let predictor = SavedModel::open(root.join("whole"))?.on_nodes(&joined)?;
        Ok(predictor.predict(&nodes, &PredictMode::default())?.values().to_vec())
    });
    assert!(of_parts.unwrap()[0] == sampled, "{config:?}: the predictions on partitions differ");
}

#[test]
fn models_of_edge_features_do_not_depend_on_the_place_of_the_graph() {
    let root = tempfile::tempdir().unwrap();
    let data = plain();
    let features: Adapt<'_> = &|loader| loader.edge_features();
    let config = transformer().layers(2).hidden(8).heads(2).edge_features(2);
    check_places(&config, &data, features, &root.path().join("transformer"));
    let typed_edges: Adapt<'_> = &|loader| loader.edge_features().edge_types();
    let config = rgcn().layers(2).hidden(8).edge_features([Some(2); 2]);
    check_places(&config, &data, typed_edges, &root.path().join("rgcn"));
    let data = data.add_self_loops().unwrap();
    let looped: Adapt<'_> = &|loader| loader.add_self_loops().unwrap().edge_features();
    let config = gatv2().layers(2).hidden(8).heads(2).attention_dropout(0.3).edge_features(2);
    check_places(&config, &data, looped, &root.path().join("gatv2"));

    let data = heterogeneous();
    let widths = data.edge_widths().unwrap();
    let by_relation: Adapt<'_> = &|loader| loader.edge_features_by_relation();
    let config = typed(&data, rsage(&data).layers(2).edge_features(widths.clone()));
    check_places(&config, &data, by_relation, &root.path().join("rsage"));
    let config = typed(&data, typed_rgcn().layers(2).hidden(8).edge_features(widths));
    check_places(&config, &data, by_relation, &root.path().join("typed-rgcn"));
}

/// The features of an added loop are the mean of those of the edges into its node. A loader adds the loops that the set has, and so
/// does a prediction.
#[test]
fn added_self_loops_have_the_mean_features_of_a_node() {
    let root = tempfile::tempdir().unwrap();
    let data = plain();
    let config = gatv2().layers(2).hidden(8).heads(2).edge_features(2);
    let looped = data.clone().add_self_loops().unwrap();
    let column = |data: &Dataset| data.csc().unwrap().columns().get(EdgeColumns::FEATURES).unwrap().clone();
    let expected = features_with_self_loops(data.csc().unwrap(), looped.csc().unwrap()).unwrap();
    assert_eq!(column(&looped).as_bytes(), expected.as_bytes());
    let run = |data: &Dataset, mode: GraphMode, name: &str| {
        let loader = |_: &RankHandle| {
            NeighborLoader::new(data, [3, 2]).graph_mode(mode).edge_features().add_self_loops()
        };
        train(&config, 1, loader, &root.path().join(name))
    };
    let added = run(&data, GraphMode::Host, "added");
    assert!(added == run(&looped, GraphMode::Host, "present"));
    assert!(added == run(&data, GraphMode::Device, "device"));
    let nodes = [NodeId(N_SRCS as u32), NodeId(3)];
    let predict = |name: &str, data: &Dataset| {
        let predictor = SavedModel::open(root.path().join(name)).unwrap().on_nodes(data).unwrap();
        predictor.predict(&nodes, &PredictMode::default()).unwrap().values().to_vec()
    };
    let expected = predict("added", &data);
    assert_eq!(predict("added", &looped), expected);
    assert_eq!(predict("present", &looped), expected);
}

#[test]
fn data_without_the_features_of_a_model_is_rejected() {
    let root = tempfile::tempdir().unwrap();
    let data = heterogeneous();
    let widths = data.edge_widths().unwrap();
    let fit = || FitConfig::epochs(1).out(root.path().join("run")).quiet();
    let refused = |widths: Vec<Option<usize>>, loader: NeighborLoader| {
        let config = typed(&data, rsage(&data).edge_features(widths));
        Trainer::new(config, AdamConfig::new(0.01)).fit(&loader, fit()).map(|_| ()).unwrap_err()
    };
    let loader = || NeighborLoader::new(&data, [2]);
    assert!(matches!(refused(widths.clone(), loader()), Error::NoEdgeFeatures));
    let by_relation = || loader().edge_features_by_relation();
    let error = refused(vec![Some(2), None, Some(2)], by_relation());
    let is_it = matches!(&error, Error::EdgeFeatureWidths { got, .. } if *got == widths);
    assert!(is_it, "{error}");
    // Relations of different widths have no rows of one width, and equal ones have no number for the other relation.
    let error = refused(widths.clone(), loader().edge_features()).to_string();
    assert!(error.contains("1 columns of f16") && error.contains("2 columns of f32"), "{error}");
    let equal = EdgeColumn::new(vec![0.5_f32; 2 * N_DSTS * N_EDGES_OF_DST], 2).unwrap();
    let equal = data.clone().with_edge_column(2, EdgeColumns::FEATURES, equal).unwrap();
    let error = refused(vec![Some(2), None, Some(2)], NeighborLoader::new(&equal, [2]).edge_features());
    let expected = "the edge features have 2, no, 2 columns, but the model reads 2, no, 2: ";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(error.to_string().contains("let the loader gather edge features by relation"), "{error}");

    let config = typed(&data, rsage(&data).edge_features(widths));
    Trainer::new(config, AdamConfig::new(0.01)).fit(&by_relation(), fit()).unwrap();
    let model = SavedModel::open(root.path().join("run")).unwrap();
    assert_eq!(model.edge_columns(), [EdgeColumns::FEATURES]);
    let error = model.on_nodes(&equal).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("[Some(2), None, Some(2)] columns"), "{error}");
    let without = data.clone().without_edge_rows().unwrap();
    let predictor = model.on_nodes(&without).unwrap();
    let error = predictor.predict(&[NodeId(0)], &PredictMode::default()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("the model reads edge features with 2 columns, which are missing"), "{error}");
}

#[test]
fn a_run_names_the_models_that_read_edge_features() {
    let notes = |data: &Dataset| {
        let loader = NeighborLoader::new(data, [2]).edge_types();
        <NeighborLoader as DataLoader<kiln::nn::Sage>>::notes(&loader)
    };
    assert_eq!(
        notes(&plain()),
        [
            "the model does not read the edge column `features`: gine does, and gatv2, transformer, rgcn with edge features as \
          input"
        ]
    );
    assert_eq!(
        notes(&heterogeneous()),
        [
            "the model does not read the edge column `features` of `pays`, `rates`: sage, rgcn can, with edge features as input"
        ]
    );
}

//! Tests of training on features of half precision: models, metrics and predictions are bit-identical to those of the
//! same values in f32.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};
use kiln::feature::{DenseFeatures, EdgeFeatures, FeatureArray, FeatureStore};
use kiln::nn::{AttentionKind, BlockModel};
use kiln::prelude::*;
use kiln::train::{LayerWiseConfig, weights_to_bytes};

const N_NODES: u32 = 600;

/// More columns than the hidden rows of the models have, so that some layers multiply before they aggregate.
const DIM: usize = 24;

/// Returns hashed numbers between -1 and 1, a different one for each `i`.
fn number(i: u32) -> f32 {
    (i.wrapping_mul(2_654_435_769).rotate_left(13).wrapping_mul(0x85EB_CA6B) >> 8) as f32 / 8_388_608.0 - 1.0
}

/// Values in half precision, and the same values as f32.
fn stored(n_values: usize, is_f16: bool) -> [FeatureArray; 2] {
    let values = (0..n_values as u32).map(number);
    if is_f16 {
        let values: Vec<f16> = values.map(f16::from_f32).collect();
        let widened: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
        [FeatureArray::F16(values.into()), FeatureArray::F32(widened.into())]
    } else {
        let values: Vec<bf16> = values.map(bf16::from_f32).collect();
        let widened: Vec<f32> = values.iter().map(|value| value.to_f32()).collect();
        [FeatureArray::BF16(values.into()), FeatureArray::F32(widened.into())]
    }
}

/// Returns a set whose features of nodes and edges are of half precision, and the same set in f32.
fn data(is_f16: bool) -> [Dataset; 2] {
    let srcs: Vec<u32> =
        (0..8 * N_NODES).map(|i| i.wrapping_mul(2_654_435_769) >> 8).map(|i| i % N_NODES).collect();
    let dsts: Vec<u32> = (0..8 * N_NODES).map(|i| i % N_NODES).collect();
    let types: Vec<u8> = (0..8 * N_NODES).map(|i| (i % 3) as u8).collect();
    let labels: Vec<i32> = (0..N_NODES).map(|node| i32::from(0.0 < number(node * DIM as u32))).collect();
    let nodes = |range: std::ops::Range<u32>| range.map(NodeId).collect::<Vec<_>>();
    let built = Dataset::builder(N_NODES as usize)
        .edges(&srcs, &dsts)
        .edge_types(&types)
        .features(vec![0.0; N_NODES as usize * DIM], DIM)
        .labels(labels, 2)
        .split(nodes(0..300), nodes(300..400), nodes(400..N_NODES))
        .build()
        .unwrap();
    let of_edges =
        stored(3 * built.graph.n_edges() as usize, is_f16).map(|rows| EdgeFeatures::new(rows, 3).unwrap());
    let of_nodes = stored(N_NODES as usize * DIM, is_f16).map(|rows| DenseFeatures::new(rows, DIM).unwrap());
    let mut sets = of_nodes.into_iter().zip(of_edges).map(|(features, rows)| {
        let data = Dataset { features: vec![Some(Arc::new(features))], ..built.clone() };
        data.with_edge_column(0, "features", rows.to_column()).unwrap()
    });
    [sets.next().unwrap(), sets.next().unwrap()]
}

/// The results of a run.
#[derive(PartialEq)]
struct Results {
    weights: Vec<u8>,
    accuracies: Vec<f64>,
    scores: Vec<Vec<f32>>,
}

fn run<C: ModelConfig>(config: &C, data: &Dataset, loader: &NeighborLoader, out: &Path) -> Results
where
    C::Model: BlockModel,
{
    let fit = FitConfig::epochs(2).out(out).quiet();
    let best = Trainer::new(config.clone(), AdamConfig::new(1e-2)).seed(5).fit(loader, fit).unwrap();
    let exact = loader.clone().evaluation(EvalMode::Exact { memory_bytes: None });
    let accuracy = |loader: &NeighborLoader| best.evaluate(loader, Phase::Test).unwrap().accuracy();
    let predictor = SavedModel::open(out).unwrap().on_nodes(data).unwrap();
    let scores = [PredictMode::AsEvaluated, PredictMode::Exact(LayerWiseConfig::default())].map(|mode| {
        let predicted = predictor.predict(&data.split().test, &mode).unwrap();
        predicted.values().to_vec()
    });
    Results {
        weights: weights_to_bytes(&best.model).unwrap(),
        accuracies: vec![accuracy(loader), accuracy(&exact)],
        scores: scores.into(),
    }
}

/// Checks a model with a loader, which `adapt` derives from a plain one.
fn check<C: ModelConfig>(config: &C, adapt: impl Fn(NeighborLoader) -> NeighborLoader)
where
    C::Model: BlockModel,
{
    for is_f16 in [true, false] {
        let results = data(is_f16).map(|data| {
            let folder = tempfile::tempdir().unwrap();
            let loader = adapt(NeighborLoader::new(&data, [5, 4]).batch_size(150));
            run(config, &data, &loader, folder.path())
        });
        assert!(results[0] == results[1], "{config:?}, f16: {is_f16}");
    }
}

#[test]
fn sage_trains_the_same_weights_on_half_precision_features() {
    let sage = SageConfig::new(DIM, 2).layers(2);
    for hidden in [8, 32] {
        check(&sage.clone().hidden(hidden), |loader| loader);
        check(&sage.clone().hidden(hidden).input_dropout(0.3).aggregate(Aggregate::Max), |loader| loader);
    }
    // Rows of the hidden width have a residual connection.
    check(&sage.clone().hidden(DIM).residual(true).jumping(JumpingKnowledge::Cat), |loader| loader);
    check(&sage.hidden(8), |loader| loader.graph_mode(GraphMode::Device));
}

#[test]
fn gcn_trains_the_same_weights_on_half_precision_features() {
    for hidden in [8, 32] {
        check(&GcnConfig::new(DIM, 2).layers(2).hidden(hidden), |loader| loader.gcn_norm().unwrap());
    }
}

#[test]
fn gat_trains_the_same_weights_on_half_precision_features() {
    let gat = GatConfig::new(DIM, 2).layers(2).hidden(8).heads(2).attention_dropout(0.3);
    check(&gat, |loader| loader.add_self_loops().unwrap());
    check(&gat.attention(AttentionKind::GatV2), |loader| loader.add_self_loops().unwrap());
}

#[test]
fn models_of_relations_and_edge_features_train_the_same_weights_on_half_precision_features() {
    let rgcn = RgcnConfig::new(DIM, 2, 3).layers(2).hidden(8).bases(2);
    check(&rgcn, |loader| loader.edge_types());
    let gine = GineConfig::new(DIM, 2, EdgeInput::Features(3)).layers(2).hidden(8);
    check(&gine, |loader| loader.edge_features());
    check(&gine, |loader| loader.edge_features().graph_mode(GraphMode::Device));
    let of_types = GineConfig::new(DIM, 2, EdgeInput::Types(3)).layers(2).hidden(8);
    check(&of_types, |loader| loader.edge_types());
}

#[test]
fn links_and_graphs_train_the_same_weights_on_half_precision_features() {
    for is_f16 in [true, false] {
        let of_links = data(is_f16).map(|data| {
            let folder = tempfile::tempdir().unwrap();
            let nodes = NeighborLoader::new(&data, [5, 4]).batch_size(150);
            let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 3).unwrap();
            let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
            let encoder = SageConfig::new(DIM, 16).layers(2).hidden(8);
            let config = LinkModelConfig { encoder, decoder: LinkDecoderConfig::default() };
            let fit = FitConfig::epochs(1).out(folder.path()).quiet();
            let best = Trainer::new(config, AdamConfig::new(1e-2)).seed(5).fit(&loader, fit).unwrap();
            weights_to_bytes(&best.model).unwrap()
        });
        assert!(of_links[0] == of_links[1], "links, f16: {is_f16}");

        let graphs = GraphDataset::open("mutag").unwrap();
        let n_nodes = graphs.graph().n_nodes();
        let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0).unwrap();
        let of_graphs = stored(n_nodes * DIM, is_f16).map(|rows| {
            let folder = tempfile::tempdir().unwrap();
            let features: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::new(rows, DIM).unwrap());
            let loader = GraphLoader::new(&graphs, features, &split).batch_size(32);
            let config = GinConfig::simplified(DIM, 8, 2);
            let fit = FitConfig::epochs(2).out(folder.path()).quiet();
            let best = Trainer::new(config, AdamConfig::new(1e-2)).seed(5).fit(&loader, fit).unwrap();
            let accuracy = best.evaluate(&loader, Phase::Test).unwrap().accuracy();
            (weights_to_bytes(&best.model).unwrap(), accuracy)
        });
        assert!(of_graphs[0] == of_graphs[1], "graphs, f16: {is_f16}");
    }
}

use std::sync::Arc;

use burn::tensor::Tensor;
use half::bf16;
use kiln_comm::SingleRank;
use kiln_data::{Dataset, synthetic};
use kiln_feature::{DenseFeatures, FeatureArray};
use kiln_graph::NodeTypes;
use kiln_loader::{FeatureStores, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, Phase};
use kiln_nn::{BlockModel, ForwardContext, GcnConfig, Mode, ModelConfig, SageConfig};
use kiln_sample::{EdgeWeights, Fanout, NeighborSampler, RngKey, Rule, SamplerConfig};

use super::*;
use crate::{NodeClassification, OptimizerConfig, TaskTrainer, TrainerConfig, weights_to_bytes};

type SizeRule = fn(BlockSize, usize) -> bool;

const ALWAYS: SizeRule = |_, _| true;

fn data(n_nodes: usize) -> Dataset {
    let (n_classes, dim) = (4, 12);
    let config =
        synthetic::SbmConfig { n_nodes, n_classes, degree: 4, homophily: 0.8, dim, noise: 1.5, seed: 5 };
    synthetic::sbm(config).expect("the configuration should be valid")
}

/// Returns the same features rounded to bf16.
fn rounded(features: &dyn FeatureStore) -> Arc<dyn FeatureStore> {
    let dense = features.as_dense().expect("generated features should be dense");
    let FeatureArray::F32(values) = dense.rows() else { panic!("{dense:?}") };
    let values: Vec<bf16> = values.iter().copied().map(bf16::from_f32).collect();
    Arc::new(DenseFeatures::new(values.into(), dense.dim()).expect("the rows should be whole"))
}

/// Returns features of this width for all nodes.
fn wide(n_nodes: usize, dim: usize) -> Arc<dyn FeatureStore> {
    let values = (0..n_nodes * dim).map(|place| (place * 37 % 251) as f32 / 125.0 - 1.0);
    Arc::new(DenseFeatures::from_f32(values.collect::<Vec<_>>(), dim).expect("the rows should be whole"))
}

/// The weights after an epoch of two steps, and whether the batches had aggregated rows.
#[derive(Debug, PartialEq)]
struct Trained {
    weights: Vec<u8>,
    is_aggregated: Vec<bool>,
    n_bytes: Vec<usize>,
}

/// Trains a model on batches that are aggregated by this rule; `None` gathers all rows.
fn train<C: ModelConfig<Model: BlockModel>>(
    config: &C,
    data: &Dataset,
    features: impl Into<FeatureStores>,
    rule: Option<SizeRule>,
) -> Trained {
    let device = Device::flex();
    let mut sampling = SamplerConfig::new([Fanout::UpTo(2), Fanout::UpTo(2)]);
    let mut graph = data.csc().unwrap().clone();
    if config.requirements().edge_weights {
        graph = Arc::new(kiln_graph::gcn_norm(&graph).expect("the graph should be valid"));
        (sampling.rule, sampling.weights) = (Rule::UniformKeepSelfLoops, EdgeWeights::Unbiased);
    }
    let sampler = NeighborSampler::with_config(graph, sampling).expect("the graph should be valid");
    let trainer_config = TrainerConfig { seed: 1, ..TrainerConfig::new(OptimizerConfig::adam(0.01, 0.0)) };
    let init = |key, device: &Device| config.init(key, device);
    let task = NodeClassification::<C::Model>::new();
    let mut trainer = TaskTrainer::new(task, &trainer_config, Box::new(SingleRank), init).unwrap();
    let batcher = NodeBatcher::new(Arc::new(sampler), features, data.labels());
    let mut batcher = HostNodeBatcher::new(batcher, &device);
    if let Some(rule) = rule {
        batcher = batcher.input_aggregation(trainer.model().input_aggregation());
        batcher.is_faster = rule;
    }
    let nodes: Vec<NodeId> = (0..4000).map(NodeId).collect();
    let items = ItemSamplerConfig { batch_size: 2000, seed: 1, ..ItemSamplerConfig::default() };
    let items = ItemSampler::new(nodes, items).unwrap();
    let loader = Loader::new(items, batcher, LoaderConfig { workers: 1, ..LoaderConfig::default() }).unwrap();
    let batches: Vec<_> = loader.epoch(Phase::Train { epoch: 0 }).map(Result::unwrap).collect();
    trainer.epoch(&loader, |_| ()).unwrap();
    Trained {
        weights: weights_to_bytes(trainer.model()).unwrap(),
        is_aggregated: batches.iter().map(|b| matches!(b.input.x, InputRows::Aggregated { .. })).collect(),
        n_bytes: batches.iter().map(|batch| batch.n_bytes).collect(),
    }
}

/// Checks that batches that are aggregated by this rule train bit-identical weights, also if the only type of nodes has a
/// name.
fn check<C: ModelConfig<Model: BlockModel>>(
    config: &C,
    data: &Dataset,
    features: &Arc<dyn FeatureStore>,
    rule: SizeRule,
) {
    let gathered = train(config, data, Arc::clone(features), None);
    let aggregated = train(config, data, Arc::clone(features), Some(rule));
    let types = NodeTypes::new([("node", data.graph.n_nodes())]).unwrap();
    let of_type = FeatureStores::new(Arc::new(types), vec![Some(Arc::clone(features))]);
    assert_eq!(train(config, data, of_type, Some(rule)), aggregated);
    assert_eq!(gathered.is_aggregated, [false; 2]);
    assert_eq!(aggregated.is_aggregated, [true; 2]);
    assert!(gathered.weights == aggregated.weights, "{config:?}, {}", features.dtype());
    assert_ne!(gathered.n_bytes, aggregated.n_bytes);
}

#[test]
fn aggregated_batches_train_bit_identical_weights() {
    let data = data(6000);
    let features = data.node_features().unwrap();
    for features in [features.clone(), rounded(&**features)] {
        check(&SageConfig::new(12, 4).hidden(16).layers(2), &data, &features, ALWAYS);
        check(&GcnConfig::new(12, 4).hidden(16).layers(2), &data, &features, ALWAYS);
    }
}

#[test]
fn the_rule_aggregates_large_batches() {
    let n_nodes = 40_000;
    check(&SageConfig::new(1024, 4).hidden(64).layers(2), &data(n_nodes), &wide(n_nodes, 1024), is_faster);
}

#[test]
fn rows_are_gathered_if_the_model_or_the_store_needs_it() {
    let data = data(6000);
    let narrow = SageConfig::new(12, 4).hidden(1).layers(2);
    let max = SageConfig::new(12, 4).layers(2).aggregate(kiln_nn::Aggregate::Max);
    for config in [narrow, max] {
        let trained = train(&config, &data, data.node_features().unwrap().clone(), Some(ALWAYS));
        assert_eq!(trained.is_aggregated, [false; 2], "{config:?}");
    }
    let config = SageConfig::new(12, 4).layers(2);
    let small = train(&config, &data, data.node_features().unwrap().clone(), Some(is_faster));
    assert_eq!(small.is_aggregated, [false; 2]);
}

#[test]
fn aggregation_is_faster_for_large_batches_that_read_few_rows_twice() {
    let products = BlockSize { n_src: 604_317, n_dst: 59_294, n_edges: 887_802 };
    assert!(is_faster(products, 400));
    assert!(!is_faster(products, 4), "the gathered rows stay in a cache");
    assert!(!is_faster(BlockSize { n_edges: 4 * 604_317, ..products }, 400), "most rows are read again");
    assert!(!is_faster(BlockSize { n_src: 0, n_dst: 0, n_edges: 0 }, 400));
}

#[test]
#[should_panic(expected = "the rows are of another aggregation than the model's")]
fn panics_on_rows_of_another_aggregation_than_the_models() {
    let device = Device::flex();
    let model = SageConfig::new(5, 3).hidden(4).layers(1).init(RngKey::new(0), &device).unwrap();
    let input = model.input_aggregation().unwrap();
    let input = InputAggregation { aggregation: FeatureAggregation::ConcatSelfSum, ..input };
    let rows = InputRows::Aggregated { rows: Tensor::zeros([2, 10], &device), input };
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
    let _ = rows.forward(&model, &[], &[], &ctx);
}

//! Graph classification: loss, metrics, and models that learn.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_comm::SingleRank;
use kiln_feature::{DenseFeatures, FeatureStore, Labels};
use kiln_graph::{CscBuilder, GraphId};
use kiln_kernels::DeviceGraphs;
use kiln_kernels::ops::{self, Reduction};
use kiln_loader::{
    Batcher, GraphBatch, GraphBatcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, SeedBatch,
    StageTimes,
};
use kiln_nn::{Epsilon, ForwardContext, GinConfig, GraphModel, Mode, Readout};
use kiln_sample::RngKey;
use kiln_train::{
    DeviceBatcher, Evaluation, FitConfig, GraphClassification, GraphInput, MetricSums, OptimizerConfig,
    Prediction, Run, RunFolder, RunIdentity, TEST, Task, TaskTrainer, ToDevice, TrainerConfig, VALIDATION,
    evaluate_best, fit, weights_to_bytes,
};

/// Returns a batcher of graphs of undirected edges, with one feature per node and one class per graph.
fn batcher(
    graphs: &[(u32, Vec<(u32, u32)>)],
    x: Vec<f32>,
    labels: Vec<i32>,
) -> GraphBatcher<dyn FeatureStore> {
    let (mut offsets, mut srcs, mut dsts) = (vec![0], Vec::new(), Vec::new());
    for (n_nodes, edges) in graphs {
        let start = offsets[offsets.len() - 1];
        for (src, dst) in edges {
            srcs.push(start + src);
            dsts.push(start + dst);
        }
        offsets.push(start + n_nodes);
    }
    let graph = CscBuilder::new(x.len()).symmetrize().build(&srcs, &dsts).unwrap();
    let features: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(x, 1).unwrap());
    GraphBatcher::new(Arc::new(graph), offsets.into(), features, Arc::new(Labels::new(labels, 2)))
}

/// Generates rings (class 0) and stars (class 1) in turn, of 4 to 12 nodes. All features are 1, so only the edges
/// distinguish the classes.
fn rings_and_stars(n_graphs: u32) -> GraphBatcher<dyn FeatureStore> {
    let graph = |graph: u32| {
        let n_nodes = 4 + graph * 5 % 9;
        let edge = |node: u32| if graph.is_multiple_of(2) { (node, (node + 1) % n_nodes) } else { (0, node) };
        (n_nodes, (graph % 2..n_nodes).map(edge).collect())
    };
    let graphs: Vec<_> = (0..n_graphs).map(graph).collect();
    let n_nodes: u32 = graphs.iter().map(|(n_nodes, _)| n_nodes).sum();
    let labels = (0..n_graphs as i32).map(|graph| graph % 2).collect();
    batcher(&graphs, vec![1.0; n_nodes as usize], labels)
}

fn loader(
    n_graphs: u32,
    items: std::ops::Range<u32>,
) -> Loader<DeviceBatcher<GraphBatcher<dyn FeatureStore>>> {
    let config = ItemSamplerConfig { batch_size: 16, seed: 1, ..Default::default() };
    let items = ItemSampler::new(items.map(GraphId).collect::<Vec<_>>(), config).unwrap();
    let batcher = DeviceBatcher::new(rings_and_stars(n_graphs), &Device::flex());
    Loader::new(items, batcher, LoaderConfig::default()).unwrap()
}

/// Configures Adam on the CPU, with the seed of [`loader`].
fn config() -> TrainerConfig {
    TrainerConfig { seed: 1, ..TrainerConfig::new(OptimizerConfig::adam(0.01, 0.0)) }
}

/// Returns a batch of these graphs.
fn batch(batcher: &GraphBatcher<dyn FeatureStore>, graphs: &[u32]) -> GraphBatch {
    let seeds = graphs.iter().copied().map(GraphId).collect();
    let seeds = SeedBatch::new(TEST, 0, RngKey::new(1), seeds);
    batcher.batch(seeds, &mut (), &mut StageTimes::default()).unwrap()
}

/// A model that sums a graph's features. Each of its two outputs is the sum multiplied by a factor.
#[derive(Module, Debug)]
struct SumOfFeatures {
    factors: Param<Tensor<2>>,
}

impl GraphModel for SumOfFeatures {
    fn forward(&self, graphs: &DeviceGraphs, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        ops::segment_reduce(graphs.segments(), x, Reduction::Sum).matmul(self.factors.val())
    }
}

/// Creates four graphs with the features (1), (2, 2), () and (1, -3, 1).
fn four() -> GraphBatcher<dyn FeatureStore> {
    let graphs = [(1, vec![]), (2, vec![(0, 1)]), (0, vec![]), (3, vec![(0, 1), (1, 2)])];
    batcher(&graphs, vec![1.0, 2.0, 2.0, 1.0, -3.0, 1.0], vec![0, 1, 1, 0])
}

fn sum_of_features(device: &Device) -> SumOfFeatures {
    SumOfFeatures { factors: Param::from_tensor(Tensor::from_data([[1.0, 0.5]], device)) }
}

#[test]
fn graphs_have_equal_weight_and_outputs_keep_the_batch_order() {
    let device = Device::flex().autodiff();
    let task = GraphClassification::new();
    let uploaded = batch(&four(), &[3, 1, 2, 0]).to_device(&device.clone().inner());
    assert_eq!((uploaded.n_items, uploaded.key), (4, RngKey::new(1)));
    let input = &uploaded.input;
    assert_eq!(input.items, [3, 1, 2, 0].map(GraphId));
    let ctx = ForwardContext { key: uploaded.key, mode: Mode::Train };
    let forward = task.forward(&sum_of_features(&device), input, &[], &ctx);
    let outputs = kiln_kernels::to_vec_f32(forward.outputs.clone());
    assert_eq!(outputs, [-1.0, -0.5, 4.0, 2.0, 0.0, 0.0, 1.0, 0.5]);
    // The loss of a graph is -ln softmax = ln(1 + e^(other - own)), for the classes 0, 1, 1, 0.
    let expected: f64 = [0.5_f64, 2.0, 0.0, -0.5].iter().map(|gap| (1.0 + gap.exp()).ln()).sum();
    let loss = kiln_kernels::to_vec_f32(forward.loss_sum.clone())[0];
    assert!((f64::from(loss) - expected).abs() < 1e-5, "{loss}, expected {expected}");
    assert_eq!(forward.weight, 4.0);
    let mut counts = MetricSums::default();
    GraphClassification::<SumOfFeatures>::count(&task.targets(input), &forward.outputs, &mut counts);
    // The outputs of graph 2 tie, so class 0 is predicted.
    assert_eq!((counts.hits, counts.total), (1, 4));
}

#[test]
fn an_evaluation_identifies_graphs_by_their_positions() {
    let init = |_, device: &Device| Ok(sum_of_features(device));
    let mut trainer =
        TaskTrainer::new(GraphClassification::new(), &config(), Box::new(SingleRank), init).unwrap();
    let mut said = Evaluation::default();
    let batches =
        [&[3, 1][..], &[], &[0, 2]].map(|graphs| Ok(batch(&four(), graphs).to_device(&Device::flex())));
    let visit = |input: &GraphInput, forward: &_| said.add(&input.items, &input.labels, forward);
    let counts = trainer.evaluate(batches, visit).unwrap();
    let expected = [(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 0, 1)];
    let expected = expected.map(|(item, label, class)| Prediction { item, label, predicted: Some(class) });
    assert_eq!(said.predictions(), expected);
    let again = said.counts().unwrap();
    assert_eq!((again.hits, again.total, again.weight), (counts.hits, counts.total, counts.weight));
    assert!((again.loss_sum - counts.loss_sum).abs() < 1e-5);
}

#[test]
#[should_panic(expected = "an item has class 1, but the model has 1 outputs")]
fn rejects_a_class_without_an_output() {
    let device = Device::flex();
    let model = SumOfFeatures { factors: Param::from_tensor(Tensor::from_data([[1.0]], &device)) };
    let task = GraphClassification::new();
    let uploaded = batch(&four(), &[1]).to_device(&device);
    task.forward(&model, &uploaded.input, &[], &ForwardContext { key: RngKey::new(0), mode: Mode::Eval });
}

/// Checks the accuracy on test graphs with the best epoch's weights, which include the running statistics of that
/// epoch.
fn check_learns(model: &GinConfig, n_epochs: usize) {
    let init = |key, device: &Device| model.init(key, device);
    let mut trainer =
        TaskTrainer::new(GraphClassification::new(), &config(), Box::new(SingleRank), init).unwrap();
    let (train, val, test) = (loader(300, 0..160), loader(300, 160..220), loader(300, 220..300));
    let folder = tempfile::tempdir().unwrap();
    let mut run =
        Run::start(&mut trainer, || RunFolder::create(folder.path()), RunIdentity::default()).unwrap();
    let validate = |trainer: &mut TaskTrainer<_>| trainer.evaluate(val.epoch(VALIDATION), |_, _| ());
    let epochs = FitConfig { n_epochs, patience: None, checkpoint_every: None };
    fit(&mut trainer, &train, epochs, validate, &mut run, &mut ()).unwrap();
    assert_eq!(run.best().unwrap().val.accuracy(), 1.0, "{model:?}");
    let mut bytes = Vec::new();
    let said = evaluate_best(trainer, &run, |trainer| {
        bytes = weights_to_bytes(trainer.model()).unwrap();
        let mut said = Evaluation::default();
        trainer
            .evaluate(test.epoch(TEST), |input, forward| said.add(&input.items, &input.labels, forward))?;
        Ok(said)
    });
    assert_eq!(said.unwrap().metrics().accuracy, 1.0, "{model:?}");
    assert_eq!(bytes, std::fs::read(folder.path().join("best.safetensors")).unwrap());
}

#[test]
fn gin_learns_to_distinguish_rings_from_stars() {
    let config = GinConfig { n_layers: 2, dropout: 0.2, ..GinConfig::paper(1, 16, 2) };
    check_learns(&config, 8);
    check_learns(&GinConfig { epsilon: Epsilon::Learnable(0.0), readout: Readout::Mean, ..config }, 8);
}

#[test]
fn simplified_gin_learns_to_distinguish_rings_from_stars() {
    check_learns(&GinConfig::simplified(1, 16, 2), 30);
}

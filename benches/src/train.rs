//! The training that benches and the program of the first step share: GraphSAGE, three layers of 256, over batches
//! that a worker makes beside it.

use burn::tensor::Device;
use kiln_comm::SingleRank;
use kiln_feature::FeatureStore;
use kiln_graph::NodeId;
use kiln_loader::{Batcher, Loader, LoaderConfig, NodeBatcher};
use kiln_nn::{Aggregate, Sage, SageConfig};
use kiln_sample::{NeighborSampler, SampledBlocks};
use kiln_train::{DeviceBatcher, NodeClassification, OptimizerConfig, TaskTrainer, TrainerConfig};

use crate::{BATCH_SIZE, Endless, Input, Result};

/// Width of the hidden layers.
pub const HIDDEN: usize = 256;

/// What makes the batches.
pub type SageBatches = Endless<DeviceBatcher<NodeBatcher<NeighborSampler, dyn FeatureStore>>>;

/// Fresh batches of an input on a device, made by one worker ahead of the trainer.
///
/// # Errors
/// What the loader says.
pub fn batches(input: &Input, device: &Device) -> Result<SageBatches> {
    let data = &input.dataset;
    let batcher = NodeBatcher::new(input.sampler().into(), data.features.clone(), data.labels.clone());
    Ok(Endless::new(loader(input, DeviceBatcher::new(batcher, device))?))
}

/// A loader of one worker over an input's training nodes.
///
/// # Errors
/// What the loader says.
pub fn loader<F: Batcher<Item = NodeId>>(input: &Input, batcher: F) -> Result<Loader<F>> {
    let config = LoaderConfig { workers: 1, ..LoaderConfig::default() };
    Ok(Loader::new(input.items(BATCH_SIZE)?, batcher, config)?)
}

/// A trainer on a device of GraphSAGE with as many layers as the input has fanouts: means, no dropout, Adam 0.01.
///
/// # Errors
/// When the set has no class or no column.
pub fn trainer(input: &Input, device: &Device) -> Result<TaskTrainer<NodeClassification<Sage>>> {
    let data = &input.dataset;
    let model = SageConfig {
        d_in: data.features.dim(),
        hidden: HIDDEN,
        n_classes: data.labels.n_classes(),
        n_layers: input.fanouts.len(),
        aggregate: Aggregate::Mean,
        input_dropout: 0.0,
        dropout: 0.0,
    };
    let optimizer = OptimizerConfig::adam(0.01, 0.0);
    let config = TrainerConfig { seed: 0, device: device.clone(), optimizer };
    let init = |key, device: &Device| model.init(key, device);
    Ok(TaskTrainer::new(NodeClassification::new(), &config, Box::new(SingleRank), init)?)
}

/// Floating-point operations of the dense products of a step on these blocks, in the cheaper order of projecting
/// and aggregating: a layer has two products forward, two for its weights' gradients and, but for the first
/// layer, two for its input's. 18 GFLOP for three layers of 256 on a graph like ogbn-arxiv.
pub fn flop(input: &Input, sampled: &SampledBlocks) -> u64 {
    let (d_in, n_classes) = (input.dataset.features.dim(), input.dataset.labels.n_classes());
    let n_layers = sampled.blocks.len();
    let width = |layer: usize| match layer {
        0 => d_in,
        layer if layer == n_layers => n_classes,
        _ => HIDDEN,
    };
    let of_layer = |(layer, block): (usize, &kiln_graph::Block)| {
        let n_products = if layer == 0 { 4 } else { 6 };
        n_products * 2 * (block.n_dst() * width(layer) * width(layer + 1)) as u64
    };
    sampled.blocks.iter().enumerate().map(of_layer).sum()
}

//! The training that the benches and the program `first_step` share: GraphSAGE with three layers of 256, on batches
//! that a worker prefetches.

use burn::tensor::Device;
use kiln_comm::SingleRank;
use kiln_graph::NodeId;
use kiln_loader::{Batcher, Loader, LoaderConfig, NodeBatcher};
use kiln_nn::{Aggregate, BlockModel, Sage, SageConfig};
use kiln_sample::{NeighborSampler, SampledBlocks};
use kiln_train::{HostNodeBatcher, NodeClassification, OptimizerConfig, TaskTrainer, TrainerConfig};

use crate::{BATCH_SIZE, Endless, Input, Result};

/// The width of the hidden layers.
pub const HIDDEN: usize = 256;

/// An endless iterator over the batches of GraphSAGE training.
pub type SageBatches = Endless<HostNodeBatcher<NeighborSampler>>;

/// Returns an endless iterator over the batches of an input for a model, on a device. One worker prefetches them and, as in
/// `kiln train` with few threads, aggregates the input rows of large batches.
///
/// # Errors
/// Returns the errors of [`loader`].
pub fn batches(input: &Input, model: &Sage, device: &Device) -> Result<SageBatches> {
    let data = &input.dataset;
    let batcher = NodeBatcher::new(input.sampler().into(), data.node_features()?.clone(), data.labels());
    let batcher = HostNodeBatcher::new(batcher, device).input_aggregation(model.input_aggregation());
    Ok(Endless::new(loader(input, batcher)?))
}

/// Returns a loader with one worker over an input's training nodes.
///
/// # Errors
/// Returns the errors of [`Input::items`] and [`Loader::new`].
pub fn loader<F: Batcher<Item = NodeId>>(input: &Input, batcher: F) -> Result<Loader<F>> {
    let config = LoaderConfig { workers: 1, ..LoaderConfig::default() };
    Ok(Loader::new(input.items(BATCH_SIZE)?, batcher, config)?)
}

/// Returns a trainer of GraphSAGE on a device, with a layer per fanout of the input, mean aggregation, no dropout, and
/// Adam with a learning rate of 0.01.
///
/// # Errors
/// Returns an error if the data set has no classes or no feature columns.
pub fn trainer(input: &Input, device: &Device) -> Result<TaskTrainer<NodeClassification<Sage>>> {
    let data = &input.dataset;
    let model = SageConfig {
        d_in: data.node_features()?.dim(),
        hidden: HIDDEN,
        n_classes: data.labels().n_classes(),
        n_layers: input.fanouts.len(),
        aggregate: Aggregate::Mean,
        input_dropout: 0.0,
        dropout: 0.0,
        ..SageConfig::new(data.node_features()?.dim(), data.labels().n_classes())
    };
    let optimizer = OptimizerConfig::adam(0.01, 0.0);
    let config = TrainerConfig { device: device.clone(), ..TrainerConfig::new(optimizer) };
    Ok(TaskTrainer::new(NodeClassification::new(), &config, Box::new(SingleRank), |key, device: &Device| {
        model.init(key, device)
    })?)
}

/// Returns the number of floating-point operations of the dense products of a training step on these blocks. It assumes
/// that each layer aggregates before it multiplies by its weights, which needs the fewest operations. Each layer has
/// two products in the forward pass, two for the gradients of its weights and, except in the first layer, two for the
/// gradient of its input.
///
/// # Errors
/// Returns an error if the set of the input has several node types.
pub fn flop(input: &Input, sampled: &SampledBlocks) -> Result<u64> {
    let d_in = input.dataset.node_features()?.dim();
    let n_classes = input.dataset.labels().n_classes();
    let n_layers = sampled.blocks.len();
    let width = |layer: usize| match layer {
        0 => d_in,
        layer if layer == n_layers => n_classes,
        _ => HIDDEN,
    };
    Ok(sampled
        .blocks
        .iter()
        .enumerate()
        .map(|(layer, block): (usize, &kiln_graph::Block)| {
            let n_products = if layer == 0 { 4 } else { 6 };
            n_products * 2 * (block.n_dst() * width(layer) * width(layer + 1)) as u64
        })
        .sum())
}

use std::marker::PhantomData;

use burn::tensor::{Device, Int, Tensor, TensorData};
use kiln_graph::{Block, NodeId};
use kiln_kernels::{BlockSize, DeviceBlock, upload_features};
use kiln_loader::{EdgeRows, MiniBatch, Phase, SampledBatch, StageTimes};
use kiln_nn::{BlockModel, ForwardContext};
use kiln_sample::RngKey;

use crate::step::batch::{DeviceBatch, ToDevice};
use crate::step::input_rows::InputRows;
use crate::step::metric_sums::MetricSums;
use crate::step::objective::{BatchTargets, Objective};
use crate::step::task::{StepOutput, Task};

/// A task on nodes: classification, several labels per node, or regression.
#[derive(Debug, Clone)]
pub struct NodeTask<M> {
    objective: Objective,
    model: PhantomData<fn() -> M>,
}

/// Node classification by cross entropy, a [`NodeTask`] with the default objective. Every seed has the same weight.
pub type NodeClassification<M> = NodeTask<M>;

impl<M> NodeTask<M> {
    /// Creates the task of node classification for models of type `M`.
    pub fn new() -> Self {
        Self::with_objective(Objective::default())
    }

    /// Creates a task with this objective.
    pub fn with_objective(objective: Objective) -> Self {
        Self { objective, model: PhantomData }
    }

    /// Returns the objective.
    pub fn objective(&self) -> &Objective {
        &self.objective
    }
}

impl<M> Default for NodeTask<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// The input of a model of a task on nodes.
#[derive(Debug, Clone)]
pub struct NodeInput {
    /// One block per layer, input layer first.
    pub blocks: Vec<DeviceBlock>,
    /// The features of the input nodes, or their aggregates.
    pub x: InputRows,
    /// The seeds in the given order; they may repeat.
    pub seeds: Vec<NodeId>,
    /// For each seed, the index of its row in the model's output.
    pub seed_index: Vec<usize>,
    /// The class of each seed. Empty for target values.
    pub labels: Vec<i32>,
    /// The target values of each seed, `[n_seeds, n_columns]`, NaN if missing. Empty for class labels.
    pub target_values: Vec<f32>,
}

impl NodeInput {
    /// Wraps this input, which is on `device`, as a batch.
    pub(crate) fn into_batch(self, key: RngKey, times: StageTimes, device: &Device) -> DeviceBatch<Self> {
        let block_bytes = self.blocks.iter().map(DeviceBlock::n_bytes).sum::<usize>();
        let n_bytes = block_bytes + self.x.n_bytes();
        let device = device.clone().inner();
        DeviceBatch { key, n_items: self.seeds.len(), n_bytes, times, device, input: self }
    }
}

impl ToDevice for MiniBatch {
    type Input = NodeInput;

    fn to_device(self, device: &Device) -> DeviceBatch<NodeInput> {
        let MiniBatch {
            phase,
            step,
            key,
            seeds,
            blocks,
            seed_index,
            x,
            x_dim,
            edge_x,
            labels,
            target_values,
            times,
        } = self;
        let x = upload_features(x, x_dim, device);
        let sampled =
            SampledBatch { phase, step, key, seeds, blocks, seed_index, edge_x, labels, target_values };
        sampled_to_device(sampled, InputRows::Gathered(x), times, device)
    }
}

/// Copies a batch to a device that already has the rows of its input nodes.
///
/// # Panics
/// Panics if `x` does not have one row per input node, or per destination of the first block if it is aggregated.
pub(crate) fn sampled_to_device(
    batch: SampledBatch,
    x: InputRows,
    times: StageTimes,
    device: &Device,
) -> DeviceBatch<NodeInput> {
    let expected = match &x {
        InputRows::Gathered(_) => batch.input_nodes().len(),
        InputRows::Aggregated { .. } => batch.blocks.first().map_or(0, Block::n_dst),
    };
    assert_eq!(x.tensor().dims()[0], expected, "the batch should have a row per input node or aggregate");
    let input = NodeInput {
        blocks: blocks_to_device(batch.blocks, batch.edge_x, nominal_size(batch.phase), device),
        x,
        seeds: batch.seeds.as_nodes().to_vec(),
        seed_index: batch.seed_index.iter().map(|row| row.index()).collect(),
        labels: batch.labels,
        target_values: batch.target_values,
    };
    input.into_batch(batch.key, times, device)
}

/// Returns the size that stands for the sampled blocks of a phase; `None` in training.
pub(crate) fn nominal_size(phase: Phase) -> Option<BlockSize> {
    (!phase.is_training()).then_some(BlockSize::SAMPLED)
}

/// Moves blocks to a device, with the feature rows of their edges if there are any. `size` stands for their sizes if it is
/// given.
pub(crate) fn blocks_to_device(
    blocks: Vec<Block>,
    edge_rows: Option<EdgeRows>,
    size: Option<BlockSize>,
    device: &Device,
) -> Vec<DeviceBlock> {
    let blocks = blocks.into_iter().map(|block| match size {
        Some(size) => DeviceBlock::new(block, device).standing_for(size),
        None => DeviceBlock::new(block, device),
    });
    let Some(EdgeRows { blocks: of_blocks, dim }) = edge_rows else { return blocks.collect() };
    let with_rows =
        |(block, rows): (DeviceBlock, _)| block.with_edge_features(upload_features(rows, dim, device));
    blocks.zip(of_blocks).map(with_rows).collect()
}

/// Returns the output row of each seed. The rows are already in the order of the seeds if no seed is repeated.
pub(crate) fn rows_of_seeds(outputs: Tensor<2>, seed_index: &[usize]) -> Tensor<2> {
    if seed_index.iter().enumerate().all(|(seed, &row)| seed == row) {
        return outputs;
    }
    let rows: Vec<i32> = seed_index.iter().map(|&row| row as i32).collect();
    let rows = TensorData::new(rows, [seed_index.len()]);
    let device = outputs.device().inner();
    outputs.select(0, Tensor::<1, Int>::from_data(rows, &device))
}

impl<M: BlockModel> Task for NodeTask<M> {
    type Input = NodeInput;
    type Model = M;
    type Targets = BatchTargets;

    fn uses_burn_rng(&self, model: &M) -> bool {
        model.uses_burn_rng()
    }

    fn forward(&self, model: &M, input: &NodeInput, _: &[Tensor<2>], ctx: &ForwardContext) -> StepOutput {
        let outputs = rows_of_seeds(input.x.forward(model, &input.blocks, ctx), &input.seed_index);
        self.objective.forward(outputs, &input.labels, &input.target_values)
    }

    fn targets(&self, input: &NodeInput) -> BatchTargets {
        self.objective.targets(&input.labels, &input.target_values, input.seeds.len())
    }

    fn count(targets: &BatchTargets, outputs: &Tensor<2>, counts: &mut MetricSums) {
        targets.count(outputs, counts);
    }

    fn count_finite(&self, input: &NodeInput, outputs: &Tensor<2>) -> Option<MetricSums> {
        self.objective.count_finite(outputs, &input.labels, &input.target_values)
    }
}

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use kiln_graph::{Block, NodeId};
use kiln_kernels::ops::gather_rows;
use kiln_kernels::{BlockSize, DeviceBlock, DeviceRows, upload_features};
use kiln_loader::{EdgeRows, FeatureRows, MiniBatch, Phase, SampledBatch, StageTimes};
use kiln_nn::{BlockModel, ForwardContext};
use kiln_sample::{KeyDomain, RngKey};

use crate::error::Result;
use crate::step::batch::input_rows::{GatheredRows, InputRows};
use crate::step::batch::{DeviceBatch, ToDevice};
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::embedding_error::EmbeddingError;
use crate::step::embedding::node_keys::NodeKeys;
use crate::step::task::custom_loss::LossTargets;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::objective::BatchTargets;
use crate::step::task::task_objective::TaskObjective;
use crate::step::task::{StepOutput, Task};

/// A task on the nodes of a graph, or of one type of a heterogeneous graph: classification, several labels per node, or
/// regression. `M` is the type of the model; for a heterogeneous graph a [`HeteroModel`](kiln_nn::HeteroModel).
///
/// Types without features have an embedding each, in the order of the types: a trainable row per node.
#[derive(Debug, Clone)]
pub struct NodeTask<M> {
    objective: TaskObjective,
    /// The types of nodes of the data; empty for data of one type with features.
    types: Arc<[InputType]>,
    /// The keys of the nodes of each type, `[n_types]`, or empty.
    keys: Arc<[Option<NodeKeys>]>,
    model: PhantomData<fn() -> M>,
}

/// Node classification by cross entropy, a [`NodeTask`] with the default objective. Every seed has the same weight.
pub type NodeClassification<M> = NodeTask<M>;

/// A type of nodes of the data of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputType {
    /// The number of nodes.
    pub n_nodes: usize,
    /// The number of feature columns; `None` for a type without features, whose rows are trainable.
    pub width: Option<usize>,
}

impl<M> NodeTask<M> {
    /// Creates the task of node classification for models of type `M`.
    pub fn new() -> Self {
        Self::with_objective(TaskObjective::default())
    }

    /// Creates a task with this objective.
    pub fn with_objective(objective: impl Into<TaskObjective>) -> Self {
        Self { objective: objective.into(), types: Arc::default(), keys: Arc::default(), model: PhantomData }
    }

    /// Sets the types of nodes of the data. The default is one type with features.
    #[must_use]
    pub fn on_types(self, types: impl Into<Arc<[InputType]>>) -> Self {
        Self { types: types.into(), ..self }
    }

    /// Sets the keys of the nodes of each type, `[n_types]`, by which their trainable rows are found in other data
    /// ([`NodeEmbedding::with_keys`]); `None` for a type with features, or whose nodes have no names.
    #[must_use]
    pub fn with_keys(self, keys: impl Into<Arc<[Option<NodeKeys>]>>) -> Self {
        Self { keys: keys.into(), ..self }
    }

    /// Returns the objective.
    pub fn objective(&self) -> &TaskObjective {
        &self.objective
    }

    fn widths(&self) -> Vec<Option<usize>> {
        self.types.iter().map(|of_type| of_type.width).collect()
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
    /// The rows of the input nodes, or their aggregates.
    pub x: InputRows,
    /// The seeds in the given order, numbered from 0 within their types; they may repeat.
    pub seeds: Vec<NodeId>,
    /// For each seed, the index of its row in the model's output.
    pub seed_index: Vec<usize>,
    /// The class of each seed. Empty for target values.
    pub labels: Vec<i32>,
    /// The target values of each seed, `[n_seeds, n_columns]`, NaN if missing. Empty for class labels.
    pub target_values: Vec<f32>,
}

impl NodeInput {
    /// Returns the targets of the batch with these outputs, for a loss of one's own ([`TaskTrainer::gradients`](crate::TaskTrainer::gradients)).
    pub fn loss_targets(&self, outputs: &Tensor<2>) -> LossTargets<'_> {
        LossTargets::new(outputs, &self.labels, &self.target_values)
    }

    /// Wraps this input, which is on `device`, as a batch.
    pub(crate) fn into_batch(self, key: RngKey, times: StageTimes, device: &Device) -> DeviceBatch<Self> {
        let block_bytes = self.blocks.iter().map(DeviceBlock::n_bytes).sum::<usize>();
        let n_bytes = block_bytes + self.x.n_bytes();
        let device = device.clone().inner();
        DeviceBatch { key, n_items: self.seeds.len(), n_bytes, times, device, input: self }
    }

    /// Runs a model on the batch, and returns its outputs, `[n_seeds, n_outputs]`, in the order of the seeds: for a
    /// [`Task`](crate::Task) of one's own. `embedded` has the rows of the nodes of types without features
    /// ([`Task::embedded_nodes`](crate::Task::embedded_nodes)); it is empty if all have some.
    pub fn outputs<M: BlockModel>(
        &self,
        model: &M,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        rows_of_seeds(self.forward(model, embedded, ctx), &self.seed_index)
    }

    /// Runs a model on the batch, with `embedded` for the types whose rows are trainable.
    pub(crate) fn forward<M: BlockModel>(
        &self,
        model: &M,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        self.x.forward(model, &self.blocks, embedded, ctx)
    }
}

impl ToDevice for MiniBatch {
    type Input = NodeInput;

    fn to_device(self, device: &Device) -> DeviceBatch<NodeInput> {
        let Self { mut sampled, input, times } = self;
        let rows = input.map(|FeatureRows { x, dim }| upload_features(x, dim, device));
        let ages = std::mem::take(&mut sampled.node_ages);
        let x = GatheredRows::new(rows, sampled.input_nodes().len(), device).with_ages(ages, device);
        sampled_to_device(sampled, InputRows::Gathered(x), times, device)
    }
}

/// Copies a batch to a device that already has the rows of its input nodes.
///
/// # Panics
/// Panics if the features of the only type do not have one row per input node, or per destination of the first block if they
/// are aggregated.
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
    if let Some(rows) = x.only() {
        assert_eq!(rows.dims()[0], expected, "the batch should have a row per input node or aggregate");
    }
    let mut blocks = blocks_to_device(batch.blocks, batch.edge_columns, nominal_size(batch.phase), device);
    if let Some(groups) = batch.groups {
        blocks = blocks
            .into_iter()
            .zip(groups)
            .map(|(block, groups): (DeviceBlock, _)| block.with_relation_groups(groups, device))
            .collect();
    }
    let input = NodeInput {
        blocks,
        x,
        seeds: batch.items,
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

/// Moves blocks to a device, with these columns of their edges. `size` stands for their sizes if it is
/// given.
pub(crate) fn blocks_to_device(
    blocks: Vec<Block>,
    edge_columns: Vec<EdgeRows>,
    size: Option<BlockSize>,
    device: &Device,
) -> Vec<DeviceBlock> {
    let mut on_device = Vec::with_capacity(blocks.len());
    for block in blocks {
        on_device.push(match size {
            Some(size) => DeviceBlock::new(block, device).standing_for(size),
            None => DeviceBlock::new(block, device),
        });
    }
    for EdgeRows { name, blocks: rows_of_blocks, dim } in edge_columns {
        let mut with_rows = Vec::with_capacity(on_device.len());
        for (block, rows) in on_device.into_iter().zip(rows_of_blocks) {
            with_rows.push(block.with_edge_column(Arc::clone(&name), upload_features(rows, dim, device)));
        }
        on_device = with_rows;
    }
    on_device
}

/// Returns the output row of each seed. The rows are already in the order of the seeds if no seed is repeated.
pub(crate) fn rows_of_seeds(outputs: Tensor<2>, seed_index: &[usize]) -> Tensor<2> {
    if seed_index.iter().enumerate().all(|(seed, &row)| seed == row) {
        return outputs;
    }
    let rows: Vec<u32> = seed_index.iter().map(|&row| row as u32).collect();
    let [n_rows, _] = outputs.dims();
    gather_rows(&DeviceRows::upload(&rows, n_rows, &outputs.device()), outputs)
}

impl<M: BlockModel> Task for NodeTask<M> {
    type Input = NodeInput;
    type Model = M;
    type Targets = BatchTargets;

    fn uses_burn_rng(&self, model: &M) -> bool {
        model.uses_burn_rng()
    }

    /// Returns an embedding for each type without features, whose rows have the width of the model's encoder. The rows of
    /// type `t` are drawn with `key.fold_in(KeyDomain::NodeType, t)`.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::OtherTypes`] or [`EmbeddingError::NoEncoder`] if the encoder of the model was created for other
    /// types than those of the data, and [`EmbeddingError::TooLarge`].
    fn embeddings(&self, model: &M, key: RngKey) -> Result<Vec<NodeEmbedding>> {
        let Some(encoder) = model.input_encoder() else {
            // A model without encoder reads the features of the only type.
            return match &self.types[..] {
                [] | [InputType { width: Some(_), .. }] => Ok(Vec::new()),
                _ => Err(EmbeddingError::NoEncoder { got: self.widths() }.into()),
            };
        };
        let expected: Vec<_> = encoder.widths();
        if self.widths() != expected {
            return Err(EmbeddingError::OtherTypes { expected, got: self.widths() }.into());
        }
        let without_features = self.types.iter().enumerate().filter(|(_, of_type)| of_type.width.is_none());
        without_features
            .map(|(node_type, of_type): (usize, &InputType)| {
                let of_rows = key.fold_in(KeyDomain::NodeType, node_type as u64);
                let table = NodeEmbedding::new(of_type.n_nodes, encoder.d_out(), of_rows)?;
                match self.keys.get(node_type) {
                    Some(Some(keys)) => table.with_keys(keys.clone()),
                    _ => Ok(table),
                }
            })
            .collect()
    }

    fn embedded_nodes(input: &NodeInput) -> &[Vec<NodeId>] {
        input.x.embedded()
    }

    fn forward(
        &self,
        model: &M,
        input: &NodeInput,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> StepOutput {
        let outputs = input.outputs(model, embedded, ctx);
        self.objective.forward(outputs, &input.labels, &input.target_values, ctx.mode)
    }

    fn targets(&self, input: &NodeInput) -> BatchTargets {
        self.objective.targets(&input.labels, &input.target_values, input.seeds.len())
    }

    fn count(targets: &BatchTargets, outputs: &Tensor<2>, counts: &mut MetricSums) {
        targets.count(outputs, counts);
    }

    fn loss_name(&self) -> Option<&str> {
        self.objective.loss_name()
    }

    fn count_finite(&self, input: &NodeInput, outputs: &Tensor<2>) -> Option<MetricSums> {
        self.objective.count_finite(outputs, &input.labels, &input.target_values)
    }
}

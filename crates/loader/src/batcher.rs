use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use kiln_feature::{EdgeFeatureStore, FeatureBuffer, FeatureStore, Targets};
use kiln_graph::{Block, ItemId, LocalId, NodeId};
use kiln_sample::{FrontierSampler, RngKey, SampledBlocks, Scratch, Seeds};

use crate::{BatchError, Phase, SeedBatch, StageTimes};

/// Makes a batch from its seeds: the task-specific part of a [`Loader`](crate::Loader).
///
/// A batcher must be a pure function of the seeds and their key: the loader calls it in any thread and, for different
/// steps, in any order. To avoid a deadlock it must not wait for the thread that takes the batches, nor for a thread
/// pool of which that thread is a part.
pub trait Batcher: Send + Sync + 'static {
    /// The type of the seeds: nodes, graphs or links.
    type Item: ItemId;

    /// The type of the batches.
    type Batch: Send + 'static;

    /// The buffers that a worker reuses from batch to batch, or `()`. A batch must not depend on earlier uses of its
    /// scratch. The loader discards a scratch after a panic.
    type Scratch: Send + Default + 'static;

    /// Makes the batch of one step. `times.seeds` is already set; the batcher sets the times of the other stages.
    ///
    /// # Errors
    /// Returns any error that occurs. The loader returns the error for this step and ends the epoch. A panic has the
    /// same effect.
    fn batch(
        &self,
        seeds: SeedBatch<Self::Item>,
        scratch: &mut Self::Scratch,
        times: &mut StageTimes,
    ) -> Result<Self::Batch, BatchError>;

    /// Returns the size of a finished batch in bytes, which counts towards the limit of the loader's queue.
    fn n_bytes(batch: &Self::Batch) -> usize;
}

/// A batcher for node tasks: samples blocks, and gathers the input features and the seeds' targets.
///
/// In training, the loader's worker also transposes each block except the first, so that the backward pass need not do
/// it. The input of the first block is usually features, which need no gradient. If parameters precede its aggregation
/// (a layer that projects wide features first), the backward pass transposes the first block.
pub struct NodeBatcher<S: ?Sized, F: ?Sized> {
    sampler: Arc<S>,
    features: Arc<F>,
    /// The features of edges; `None` for models that do not read any.
    edge_features: Option<Arc<dyn EdgeFeatureStore>>,
    /// The targets of the seeds; `None` for tasks without targets of nodes.
    targets: Option<Targets>,
}

impl<S: FrontierSampler + ?Sized, F: FeatureStore + ?Sized> NodeBatcher<S, F> {
    /// Creates a batcher from a sampler, a feature store and targets: labels, or [`Targets`].
    pub fn new(sampler: Arc<S>, features: Arc<F>, targets: impl Into<Targets>) -> Self {
        Self { sampler, features, edge_features: None, targets: Some(targets.into()) }
    }

    /// Creates a batcher whose batches have no targets, for link prediction.
    pub fn without_targets(sampler: Arc<S>, features: Arc<F>) -> Self {
        Self { sampler, features, edge_features: None, targets: None }
    }

    /// Gathers the features of the edges of each block, too. They must be those of the sampled graph's edges.
    #[must_use]
    pub fn edge_features(self, edge_features: impl Into<Arc<dyn EdgeFeatureStore>>) -> Self {
        Self { edge_features: Some(edge_features.into()), ..self }
    }

    /// Returns the feature store.
    pub fn features(&self) -> &Arc<F> {
        &self.features
    }

    /// Makes the batch of one step without the feature rows of its nodes. It is for batchers that gather the rows elsewhere, for
    /// example into memory from which a device copies. Adds to the times of the sample and gather stages.
    ///
    /// # Errors
    /// Returns the errors of the sampler, of [`EdgeFeatureStore::gather_block`] and of [`Targets::gather`].
    pub fn sample(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<SampledBatch, BatchError> {
        let start = Instant::now();
        let mut sampled = sample_step(&*self.sampler, seeds, 1, scratch)?;
        let sampled_at = Instant::now();
        if let Some(targets) = &self.targets {
            targets.gather(sampled.seeds.as_nodes(), &mut sampled.labels, &mut sampled.target_values)?;
        }
        if let Some(features) = &self.edge_features {
            sampled.edge_x = Some(EdgeRows::gather(&**features, &sampled.blocks)?);
        }
        times.sample += sampled_at - start;
        times.gather += sampled_at.elapsed();
        Ok(sampled)
    }
}

/// Samples the blocks of one step, without the features of edges and targets. In training, it transposes the blocks from
/// number `first_transposed` on.
pub(crate) fn sample_step<S: FrontierSampler + ?Sized>(
    sampler: &S,
    seeds: SeedBatch,
    first_transposed: usize,
    scratch: &mut Scratch,
) -> Result<SampledBatch, BatchError> {
    let SeedBatch { phase, step, key, seeds, excluded, .. } = seeds;
    let seeds = Seeds::nodes(seeds).excluding(excluded);
    let SampledBlocks { mut blocks, seed_index } = sampler.sample_blocks(&seeds, key, scratch)?;
    if phase.is_training() {
        blocks.iter_mut().skip(first_transposed).for_each(Block::transpose);
    }
    let (labels, target_values) = (Vec::new(), Vec::new());
    Ok(SampledBatch { phase, step, key, seeds, blocks, seed_index, edge_x: None, labels, target_values })
}

impl<S: ?Sized, F: ?Sized> fmt::Debug for NodeBatcher<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBatcher")
            .field("has_targets", &self.targets.is_some())
            .field("has_edge_features", &self.edge_features.is_some())
            .finish_non_exhaustive()
    }
}

/// The feature rows of the edges of a batch's blocks, in their stored type.
#[derive(Debug, Clone)]
pub struct EdgeRows {
    /// The rows of each block's edges, `[n_edges, dim]`, in block order; input layer first.
    pub blocks: Vec<FeatureBuffer>,
    /// The number of columns.
    pub dim: usize,
}

impl EdgeRows {
    /// Gathers the rows of the edges of each block.
    ///
    /// # Errors
    /// Returns the errors of [`EdgeFeatureStore::gather_block`].
    pub fn gather(features: &dyn EdgeFeatureStore, blocks: &[Block]) -> kiln_feature::Result<Self> {
        let of_block = |block: &Block| {
            let mut rows = FeatureBuffer::empty(features.dtype());
            features.gather_block(block, &mut rows).map(|()| rows)
        };
        Ok(Self { blocks: blocks.iter().map(of_block).collect::<Result<_, _>>()?, dim: features.dim() })
    }

    /// Returns the size of the rows in bytes.
    pub fn n_bytes(&self) -> usize {
        self.blocks.iter().map(FeatureBuffer::n_bytes).sum()
    }
}

/// The inputs of a model and its loss for one step of a node task.
#[derive(Debug, Clone)]
pub struct MiniBatch {
    /// The phase of the step.
    pub phase: Phase,
    /// The step within the phase, from 0.
    pub step: usize,
    /// The key of this step. The blocks were sampled with it, and all other random draws of the step must use it.
    pub key: RngKey,
    /// The seeds in the given order, including duplicates.
    pub seeds: Seeds,
    /// The blocks, one per layer, input layer first.
    pub blocks: Vec<Block>,
    /// For each seed, its destination in the last block, which is also its row in the model's output. A node that
    /// occurs twice in `seeds` has one destination and two entries here.
    pub seed_index: Vec<LocalId>,
    /// The features of the input nodes in their stored type, `[n_src, x_dim]`; see [`SampledBatch::input_nodes`].
    pub x: FeatureBuffer,
    /// The number of feature columns.
    pub x_dim: usize,
    /// The features of the edges; `None` unless the batcher gathers them.
    pub edge_x: Option<EdgeRows>,
    /// The class of each seed, aligned with `seeds` and `seed_index`; never negative. Empty for target values.
    pub labels: Vec<i32>,
    /// The target values of each seed, `[n_seeds, n_columns]`, NaN if missing. Empty for class labels.
    pub target_values: Vec<f32>,
    /// The durations of the stages that made this batch.
    pub times: StageTimes,
}

/// A [`MiniBatch`] without feature rows of nodes.
#[derive(Debug, Clone)]
pub struct SampledBatch {
    /// The phase of the step.
    pub phase: Phase,
    /// The step within the phase, from 0.
    pub step: usize,
    /// The key of this step.
    pub key: RngKey,
    /// The seeds in the given order, including duplicates.
    pub seeds: Seeds,
    /// The blocks, one per layer, input layer first.
    pub blocks: Vec<Block>,
    /// For each seed, its destination in the last block.
    pub seed_index: Vec<LocalId>,
    /// The features of the edges; `None` unless the batcher gathers them.
    pub edge_x: Option<EdgeRows>,
    /// The class of each seed, aligned with `seeds` and `seed_index`; never negative. Empty for target values.
    pub labels: Vec<i32>,
    /// The target values of each seed, `[n_seeds, n_columns]`, NaN if missing. Empty for class labels.
    pub target_values: Vec<f32>,
}

impl SampledBatch {
    /// Returns the nodes whose feature rows the model reads: the sources of the first block, or, for a model without
    /// layers, the distinct seeds in the order of their first appearance.
    pub fn input_nodes(&self) -> Cow<'_, [NodeId]> {
        match self.blocks.first() {
            Some(block) => Cow::Borrowed(block.srcs()),
            None => Cow::Owned(self.seeds.distinct(&self.seed_index)),
        }
    }

    /// Returns the size of the batch's arrays in bytes.
    pub fn n_bytes(&self) -> usize {
        let Self { blocks, seeds, seed_index, edge_x, labels, target_values, .. } = self;
        n_bytes(blocks, seeds, seed_index, edge_x.as_ref(), labels, target_values)
    }
}

/// Returns the size of a batch's arrays in bytes, except the rows of its nodes.
fn n_bytes(
    blocks: &[Block],
    seeds: &Seeds,
    seed_index: &[LocalId],
    edge_x: Option<&EdgeRows>,
    labels: &[i32],
    target_values: &[f32],
) -> usize {
    blocks.iter().map(Block::n_bytes).sum::<usize>()
        + size_of_val(seeds.as_nodes())
        + size_of_val(seed_index)
        + edge_x.map_or(0, EdgeRows::n_bytes)
        + size_of_val(labels)
        + size_of_val(target_values)
}

impl MiniBatch {
    /// Returns the size of the batch's arrays in bytes.
    pub fn n_bytes(&self) -> usize {
        let Self { blocks, seeds, seed_index, x, edge_x, labels, target_values, .. } = self;
        x.n_bytes() + n_bytes(blocks, seeds, seed_index, edge_x.as_ref(), labels, target_values)
    }
}

impl<S, F> Batcher for NodeBatcher<S, F>
where
    S: FrontierSampler + ?Sized + 'static,
    F: FeatureStore + ?Sized + 'static,
{
    type Item = NodeId;
    type Batch = MiniBatch;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<MiniBatch, BatchError> {
        let sampled = self.sample(seeds, scratch, times)?;
        let start = Instant::now();
        let mut x = FeatureBuffer::empty(self.features.dtype());
        self.features.gather(&sampled.input_nodes(), &mut x)?;
        times.gather += start.elapsed();
        let SampledBatch { phase, step, key, seeds, blocks, seed_index, edge_x, labels, target_values } =
            sampled;
        let (x_dim, times) = (self.features.dim(), *times);
        Ok(MiniBatch {
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
        })
    }

    fn n_bytes(batch: &MiniBatch) -> usize {
        batch.n_bytes()
    }
}

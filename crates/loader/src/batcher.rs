use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use kiln_feature::{FeatureBuffer, FeatureStore, Labels};
use kiln_graph::{Block, ItemId, LocalId, NodeId};
use kiln_sample::{FrontierSampler, RngKey, Scratch, Seeds};

use crate::{BatchError, SeedBatch, StageTimes};

/// Makes a batch of its seeds: the part of a [`Loader`](crate::Loader) that depends on the task.
///
/// It must be a pure function of the seeds and their key: the loader calls it in any thread and, for
/// different steps, in any order. It must not wait for the thread that takes the batches, nor for a thread
/// pool that this thread belongs to.
pub trait Batcher: Send + Sync + 'static {
    /// What batches are made of.
    type Item: ItemId;

    /// What comes out of the loader.
    type Batch: Send + 'static;

    /// Buffers that a worker keeps from one batch to the next; `()` when there are none. No result may
    /// depend on what a scratch was used for before. A scratch that saw a panic is not used again.
    type Scratch: Send + Default + 'static;

    /// Makes the batch of one step. `times` comes with the time of the seeds, and has the others added.
    ///
    /// # Errors
    /// Whatever goes wrong: it reaches the loader's caller at this step and ends the epoch. A panic does
    /// the same.
    fn batch(
        &self,
        seeds: SeedBatch<Self::Item>,
        scratch: &mut Self::Scratch,
        times: &mut StageTimes,
    ) -> Result<Self::Batch, BatchError>;

    /// Bytes that a finished batch holds, for the bound on the loader's queue.
    fn n_bytes(batch: &Self::Batch) -> usize;
}

/// A batcher for node tasks: samples blocks, gathers the input features and the seeds' labels.
///
/// In training each block but the first carries its transposed block, made here, in the loader's worker, where the
/// backward pass would otherwise make it. The first block's input is usually features, which get no gradient. Where
/// something before its aggregation learns (a layer that projects wide features first), its transposed block is made in
/// the backward pass.
pub struct NodeBatcher<S: ?Sized, F: ?Sized> {
    sampler: Arc<S>,
    features: Arc<F>,
    labels: Arc<Labels>,
}

impl<S: FrontierSampler + ?Sized, F: FeatureStore + ?Sized> NodeBatcher<S, F> {
    /// Batches from these parts, which are shared with the caller.
    pub fn new(sampler: Arc<S>, features: Arc<F>, labels: Arc<Labels>) -> Self {
        Self { sampler, features, labels }
    }
}

impl<S: ?Sized, F: ?Sized> fmt::Debug for NodeBatcher<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBatcher").field("labels", &self.labels.len()).finish_non_exhaustive()
    }
}

/// All that a model and its loss need of one step of a node task.
#[derive(Debug, Clone)]
pub struct MiniBatch {
    /// The step within the pass, from 0.
    pub step: usize,
    /// The key that the blocks were sampled with, for whatever else is random in this step.
    pub key: RngKey,
    /// The seeds as given, duplicates included.
    pub seeds: Seeds,
    /// One block a layer, input layer first.
    pub blocks: Vec<Block>,
    /// For each seed the destination of the last block, and so the row of the model's output, that
    /// belongs to it: a node that is a seed twice is one destination and two entries here.
    pub seed_index: Vec<LocalId>,
    /// Features of the input nodes as stored, `[n_src, x_dim]`: those of `blocks[0].srcs()`, or of the
    /// distinct seeds in the order of `seed_index` for a model without layers.
    pub x: FeatureBuffer,
    /// Number of feature columns.
    pub x_dim: usize,
    /// Each seed's class, aligned with `seeds` and `seed_index`; never negative.
    pub labels: Vec<i32>,
    /// How long the stages took.
    pub times: StageTimes,
}

impl MiniBatch {
    /// Bytes of the batch's arrays.
    pub fn n_bytes(&self) -> usize {
        self.blocks.iter().map(Block::n_bytes).sum::<usize>()
            + size_of_val(self.seeds.as_nodes())
            + size_of_val(self.seed_index.as_slice())
            + self.x.n_bytes()
            + size_of_val(self.labels.as_slice())
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
        let SeedBatch { phase, step, key, seeds } = seeds;
        let seeds = Seeds::nodes(seeds);
        let start = Instant::now();
        let mut sampled = self.sampler.sample_blocks(&seeds, key, scratch)?;
        if phase.is_training() {
            sampled.blocks.iter_mut().skip(1).for_each(Block::transpose);
        }
        let sampled_at = Instant::now();
        let mut x = FeatureBuffer::empty(self.features.dtype());
        match sampled.blocks.first() {
            Some(block) => self.features.gather(block.srcs(), &mut x)?,
            None => self.features.gather(&seeds.distinct(&sampled.seed_index), &mut x)?,
        }
        let mut labels = Vec::new();
        self.labels.gather(seeds.as_nodes(), &mut labels)?;
        times.sample += sampled_at - start;
        times.gather += sampled_at.elapsed();
        Ok(MiniBatch {
            step,
            key,
            seeds,
            blocks: sampled.blocks,
            seed_index: sampled.seed_index,
            x,
            x_dim: self.features.dim(),
            labels,
            times: *times,
        })
    }

    fn n_bytes(batch: &MiniBatch) -> usize {
        batch.n_bytes()
    }
}

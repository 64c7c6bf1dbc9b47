use std::fmt;
use std::sync::Arc;

use kiln_graph::{ItemId, NodeId};
use kiln_sample::{ExcludedEdges, RngKey};

use crate::Phase;

/// One rank's seeds of one batch, with the key for the step's random draws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedBatch<I = NodeId> {
    /// The phase; in training, batchers also prepare blocks for the backward pass.
    pub phase: Phase,
    /// The step within the phase, from 0, the same on all ranks.
    pub step: usize,
    /// The key with which neighbours are sampled, [`Phase::step_key`]. It is the same on all ranks, so each rank would
    /// sample the same neighbours for a node. The batches of one training step share it, so their samples and dropout masks
    /// are those of one batch with all their seeds.
    pub key: RngKey,
    /// The key of the phase: draws from it that are keyed by an item do not depend on the size of batches.
    pub phase_key: RngKey,
    /// The seeds of the batch.
    pub seeds: Vec<I>,
    /// The time of each seed, before which its tree is sampled; `None` if seeds have no times, or if the batcher has them
    /// ([`NodeBatcher::seed_times`](crate::NodeBatcher::seed_times)).
    pub times: Option<Vec<i64>>,
    /// The seeds of all batches of the step, over all ranks; in evaluations, of all steps.
    pub of_step: StepItems<I>,
    /// The edges that samples leave out; `None` if there are none.
    pub excluded: Option<Arc<ExcludedEdges>>,
}

impl<I: ItemId> SeedBatch<I> {
    /// Creates the only batch of a step, on a single rank, which excludes no edges. Its `phase_key` is the key of the
    /// step.
    pub fn new(phase: Phase, step: usize, key: RngKey, seeds: Vec<I>) -> Self {
        let of_step = StepItems::new(seeds.clone().into(), 0, seeds.len());
        Self { phase, step, key, phase_key: key, seeds, times: None, of_step, excluded: None }
    }
}

/// The items of a step, over all ranks and all batches, in the order of the phase. Cloning shares the order.
#[derive(Clone)]
pub struct StepItems<I> {
    /// The items of the phase in their order.
    order: Arc<[I]>,
    /// The position of the step's first item.
    start: usize,
    /// The number of the step's items, including items from the start of the order that pad the last step.
    n_items: usize,
}

impl<I> StepItems<I> {
    /// Creates the items of a step that begins at position `start` of the order.
    pub(crate) fn new(order: Arc<[I]>, start: usize, n_items: usize) -> Self {
        Self { order, start, n_items }
    }

    /// Returns the items.
    pub fn iter(&self) -> impl Iterator<Item = &I> {
        // Items after the end of the order are padding, which is taken from its start.
        self.order[self.start..].iter().chain(self.order.iter().cycle()).take(self.n_items)
    }
}

impl<I: fmt::Debug> fmt::Debug for StepItems<I> {
    /// Writes the items of the step only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<I: PartialEq> PartialEq for StepItems<I> {
    /// Compares the items.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<I: Eq> Eq for StepItems<I> {}

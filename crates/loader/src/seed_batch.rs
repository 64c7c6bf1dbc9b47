use std::fmt;
use std::sync::Arc;

use kiln_graph::{ItemId, NodeId};
use kiln_sample::{Error, ExcludedEdges, RngKey, Seeds, TimesError};

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

impl SeedBatch {
    /// Returns the seeds as samplers take them, with the times of the batch or, if it has none, those of the nodes, `[n_nodes]`.
    ///
    /// ```
    /// use kiln_graph::NodeId;
    /// use kiln_loader::{Phase, SeedBatch};
    /// use kiln_sample::RngKey;
    /// let batch = SeedBatch::new(Phase::Test, 0, RngKey::new(0), vec![NodeId(2), NodeId(0)]);
    /// assert_eq!(batch.into_seeds(Some(&[10, 20, 30]))?.times(), Some(&[30, 10][..]));
    /// # Ok::<(), kiln_sample::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TimesError::Length`] unless the batch has one time per seed, and [`Error::SeedOutOfRange`] for a seed behind the
    /// nodes that have times.
    pub fn into_seeds(self, node_times: Option<&[i64]>) -> Result<Seeds, Error> {
        let Self { seeds, times, excluded, .. } = self;
        let times = match (times, node_times) {
            (None, Some(of_nodes)) => Some(times_of(&seeds, of_nodes)?),
            (given, _) => given,
        };
        let n_times = times.as_ref().map_or(seeds.len(), Vec::len);
        if n_times != seeds.len() {
            return Err(Error::Times(TimesError::Length { n_times, n_seeds: seeds.len() }));
        }
        Ok(Seeds::nodes(seeds).excluding(excluded).with_times(times))
    }
}

fn times_of(seeds: &[NodeId], of_nodes: &[i64]) -> Result<Vec<i64>, Error> {
    let mut times = Vec::with_capacity(seeds.len());
    for (position, &node) in seeds.iter().enumerate() {
        let n_nodes = of_nodes.len();
        times.push(*of_nodes.get(node.index()).ok_or(Error::SeedOutOfRange { node, position, n_nodes })?);
    }
    Ok(times)
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

//! The batches in which a saved model computes the outputs of a request, on one rank or shared by several.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_comm::Communicator;
use kiln_graph::ItemId;
use kiln_loader::{Phase, SeedBatch};

use crate::error::{Error, Result};
use crate::saved::outputs::{OutputRows, append};

/// The outputs of consecutive items of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedRows {
    /// The positions of the items in the request.
    pub positions: Range<usize>,
    /// The scores, one row per item; `None` if they are not wanted.
    pub scores: Option<OutputRows>,
    /// The embeddings, one row per item; `None` if they are not wanted.
    pub embeddings: Option<OutputRows>,
}

/// The outputs of a saved model for a list of items, as batches that are computed one by one, so that a program need not
/// hold all outputs. A batch's outputs do not depend on the other batches, on their order, or on the rank that computes
/// them. Clones share the model.
#[derive(Clone)]
pub struct PredictionBatches {
    n_items: usize,
    n_batches: usize,
    compute: Arc<Compute>,
}

/// Computes the batch with this number.
type Compute = dyn Fn(usize) -> Result<PredictedRows> + Send + Sync;

impl PredictionBatches {
    pub(crate) fn new(
        n_items: usize,
        n_batches: usize,
        compute: impl Fn(usize) -> Result<PredictedRows> + Send + Sync + 'static,
    ) -> Self {
        Self { n_items, n_batches, compute: Arc::new(compute) }
    }

    /// Creates batches of `size` items. All have the key of evaluations with this seed, so the neighbours of an item depend
    /// neither on its batch nor on the request. `compute` gets the items of a batch and their positions.
    pub(crate) fn of_items<I: ItemId>(
        items: &[I],
        size: usize,
        seed: u64,
        compute: impl Fn(SeedBatch<I>, Range<usize>) -> Result<PredictedRows> + Send + Sync + 'static,
    ) -> Self {
        let items: Arc<[I]> = items.into();
        Self::new(items.len(), items.len().div_ceil(size), move |batch| {
            let positions = batch * size..items.len().min((batch + 1) * size);
            let key = Phase::Test.step_key(seed, batch);
            let seeds = SeedBatch::new(Phase::Test, batch, key, items[positions.clone()].to_vec());
            compute(seeds, positions)
        })
    }

    /// Returns the number of requested items.
    pub fn n_items(&self) -> usize {
        self.n_items
    }

    /// Returns the number of batches. They contain the items in the order of the request.
    pub fn n_batches(&self) -> usize {
        self.n_batches
    }

    /// Computes a batch.
    ///
    /// # Errors
    /// Returns the errors of sampling and of the features.
    ///
    /// # Panics
    /// Panics if `batch` is not below [`PredictionBatches::n_batches`].
    pub fn batch(&self, batch: usize) -> Result<PredictedRows> {
        let n_batches = self.n_batches;
        assert!(batch < n_batches, "batch {batch} is out of range: there are {n_batches}");
        (self.compute)(batch)
    }

    /// Computes the batches on all ranks, which take turns, and passes them to `each` on rank 0 in the order of the
    /// request. The outputs are bit-identical for any number of ranks. Each rank holds one batch, rank 0 one of each
    /// rank. Collective: every rank must call it, with the same request.
    ///
    /// # Errors
    /// Returns the errors of [`PredictionBatches::batch`] and of `each`, and [`Error::Ranks`] if another rank fails.
    pub fn gather<E: From<Error>>(
        &self,
        comm: &mut dyn Communicator,
        mut each: impl FnMut(PredictedRows) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let rank = comm.rank_info().rank;
        let n_ranks = comm.rank_info().world_size;
        if n_ranks == 1 {
            return (0..self.n_batches).try_for_each(|batch| each(self.batch(batch)?));
        }
        comm.set_stage("predictions");
        for first in (0..self.n_batches).step_by(n_ranks) {
            let own = Some(first + rank).filter(|&batch| batch < self.n_batches);
            let own = own.map(|batch| self.batch(batch)).transpose()?;
            let mut send = vec![Vec::new(); n_ranks];
            send[0] = own.map(|rows| rows.to_bytes()).unwrap_or_default();
            for bytes in comm.all_to_all(&send).map_err(Error::from)? {
                if let Some(rows) = PredictedRows::from_bytes(&bytes) {
                    each(rows)?;
                }
            }
        }
        Ok(())
    }

    /// Computes all batches and joins them. `widths` are those of scores and embeddings, for an empty request; `None`
    /// if they are not wanted. `report` is called with the number of finished items.
    pub(crate) fn all(&self, widths: [Option<usize>; 2], report: impl Fn(usize)) -> Result<PredictedRows> {
        let mut scores = None;
        let mut embeddings = None;
        for batch in 0..self.n_batches {
            let rows = self.batch(batch)?;
            if rows.positions.is_empty() {
                continue;
            }
            append(&mut scores, rows.scores);
            append(&mut embeddings, rows.embeddings);
            report(rows.positions.end);
        }
        let [scores, embeddings] = [(scores, widths[0]), (embeddings, widths[1])]
            .map(|(rows, width)| rows.or_else(|| Some(OutputRows::new(Vec::new(), width?))));
        Ok(PredictedRows { positions: 0..self.n_items, scores, embeddings })
    }
}

impl fmt::Debug for PredictionBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_items, n_batches, .. } = self;
        f.debug_struct("PredictionBatches")
            .field("n_items", n_items)
            .field("n_batches", n_batches)
            .finish_non_exhaustive()
    }
}

impl PredictedRows {
    /// Serializes the positions and the widths as `u64`, then the values. Rows that are not wanted have the width 0.
    fn to_bytes(&self) -> Vec<u8> {
        let outputs = [&self.scores, &self.embeddings];
        let widths = outputs.map(|rows| rows.as_ref().map_or(0, OutputRows::width) as u64);
        let sizes = [self.positions.start as u64, self.positions.end as u64, widths[0], widths[1]];
        let mut bytes: Vec<u8> = bytemuck::cast_slice(&sizes).to_vec();
        for rows in outputs.into_iter().flatten() {
            bytes.extend_from_slice(bytemuck::cast_slice(rows.values()));
        }
        bytes
    }

    /// Parses the bytes of [`PredictedRows::to_bytes`], or returns `None` for no bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (sizes, values) = bytes.split_at_checked(4 * size_of::<u64>())?;
        let sizes: Vec<u64> = bytemuck::pod_collect_to_vec(sizes);
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(values);
        let [start, end, score_width, width] = [0, 1, 2, 3].map(|at| sizes[at] as usize);
        let (scores, embeddings) = values.split_at_checked((end - start) * score_width)?;
        let rows =
            |values: &[f32], width: usize| (0 < width).then(|| OutputRows::new(values.to_vec(), width));
        Some(Self {
            positions: start..end,
            scores: rows(scores, score_width),
            embeddings: rows(embeddings, width),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kiln_graph::NodeId;

    use super::*;

    #[test]
    fn batches_contain_the_items_in_their_order_with_one_key() {
        let items: Vec<NodeId> = [7, 3, 3, 9, 1, 0, 2, 5, 4, 6, 8].map(NodeId).to_vec();
        for size in [1, 2, 4, 11, 100] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let expected = items.clone();
            let record = Arc::clone(&seen);
            let batches = PredictionBatches::of_items(&items, size, 5, move |seeds, positions| {
                assert_eq!(seeds.key, Phase::Validation.step_key(5, 0));
                assert_eq!(seeds.seeds, expected[positions.clone()]);
                record.lock().expect("no test should panic").push(positions.clone());
                Ok(PredictedRows { positions, scores: None, embeddings: None })
            });
            for batch in 0..batches.n_batches() {
                batches.batch(batch).expect("the batch should be computed");
            }
            let seen = seen.lock().expect("no test should panic");
            let positions: Vec<usize> = seen.iter().cloned().flatten().collect();
            assert_eq!(positions, (0..items.len()).collect::<Vec<_>>());
            assert!(seen.iter().all(|positions| positions.len() <= size));
        }
    }

    #[test]
    fn rows_survive_the_transfer_between_ranks() {
        let scores = Some(OutputRows::new(vec![1.0, f32::MIN_POSITIVE, -0.0, 4.0], 2));
        let embeddings = Some(OutputRows::new(vec![5.0, 6.0, 7.0, 8.0, 9.0, 10.0], 3));
        for rows in [
            PredictedRows { positions: 3..5, scores: scores.clone(), embeddings: embeddings.clone() },
            PredictedRows { positions: 3..5, scores, embeddings: None },
            PredictedRows { positions: 0..2, scores: None, embeddings },
        ] {
            assert_eq!(PredictedRows::from_bytes(&rows.to_bytes()), Some(rows));
        }
        assert_eq!(PredictedRows::from_bytes(&[]), None);
    }
}

//! The batches in which a saved model computes the outputs of a request, on one rank or shared by several.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_comm::Communicator;
use kiln_graph::ItemId;
use kiln_loader::{Phase, SeedBatch};
use kiln_store::progress::{Progress, ProgressUnit};

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
    /// The kind of the items, for the progress.
    unit: ProgressUnit,
    n_items: usize,
    /// The number of items of each batch but the last.
    size: usize,
    compute: Arc<Compute>,
}

/// Computes the batch with this number, of the items at these positions.
type Compute = dyn Fn(usize, Range<usize>) -> Result<PredictedRows> + Send + Sync;

impl PredictionBatches {
    pub(crate) fn new(
        unit: ProgressUnit,
        n_items: usize,
        size: usize,
        compute: impl Fn(usize, Range<usize>) -> Result<PredictedRows> + Send + Sync + 'static,
    ) -> Self {
        Self { unit, n_items, size, compute: Arc::new(compute) }
    }

    /// Creates batches of `size` items. All have the key of evaluations with this seed, so the neighbours of an item depend
    /// neither on its batch nor on the request. `compute` gets the items of a batch and their positions.
    pub(crate) fn of_items<I: ItemId>(
        unit: ProgressUnit,
        items: &[I],
        size: usize,
        seed: u64,
        compute: impl Fn(SeedBatch<I>, Range<usize>) -> Result<PredictedRows> + Send + Sync + 'static,
    ) -> Self {
        let items: Arc<[I]> = items.into();
        Self::new(unit, items.len(), size, move |batch, positions| {
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
        self.n_items.div_ceil(self.size)
    }

    fn positions(&self, batch: usize) -> Range<usize> {
        batch * self.size..self.n_items.min((batch + 1) * self.size)
    }

    /// Computes a batch.
    ///
    /// # Errors
    /// Returns the errors of sampling and of the features.
    ///
    /// # Panics
    /// Panics if `batch` is not below [`PredictionBatches::n_batches`].
    pub fn batch(&self, batch: usize) -> Result<PredictedRows> {
        let n_batches = self.n_batches();
        assert!(batch < n_batches, "batch {batch} is out of range: there are {n_batches}");
        (self.compute)(batch, self.positions(batch))
    }

    /// Computes consecutive batches and passes them to `each`, as a stage of progress
    /// ([`kiln_store::progress`]).
    ///
    /// ```no_run
    /// # fn example(batches: kiln_train::PredictionBatches) -> kiln_train::Result<()> {
    /// batches.for_each(0..batches.n_batches(), |rows| {
    ///     println!("items {:?}", rows.positions);
    ///     Ok::<(), kiln_train::Error>(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`PredictionBatches::batch`] and of `each`.
    ///
    /// # Panics
    /// Panics if the last batch is not below [`PredictionBatches::n_batches`].
    pub fn for_each<E: From<Error>>(
        &self,
        batches: Range<usize>,
        mut each: impl FnMut(PredictedRows) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let n_items = batches.clone().map(|batch| self.positions(batch).len()).sum();
        let progress = self.progress(n_items);
        for batch in batches {
            let rows = self.batch(batch)?;
            progress.advance(rows.positions.len() as u64);
            each(rows)?;
        }
        Ok(())
    }

    fn progress(&self, n_items: usize) -> Progress {
        Progress::start(format_args!("predicting {}", self.unit.name()), self.unit, n_items as u64)
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
            return self.for_each(0..self.n_batches(), each);
        }
        comm.set_stage("predictions");
        let n_batches = self.n_batches();
        let progress = self.progress(self.n_items);
        for first in (0..n_batches).step_by(n_ranks) {
            let own = Some(first + rank).filter(|&batch| batch < n_batches);
            let own = own.map(|batch| self.batch(batch)).transpose()?;
            let mut send = vec![Vec::new(); n_ranks];
            send[0] = own.map(|rows| rows.to_bytes()).unwrap_or_default();
            for bytes in comm.all_to_all(&send).map_err(Error::from)? {
                if let Some(rows) = PredictedRows::from_bytes(&bytes) {
                    progress.advance(rows.positions.len() as u64);
                    each(rows)?;
                }
            }
        }
        Ok(())
    }

    /// Computes all batches and joins them. `widths` are those of scores and embeddings, for an empty request; `None`
    /// if they are not wanted.
    pub(crate) fn all(&self, widths: [Option<usize>; 2]) -> Result<PredictedRows> {
        let mut scores = None;
        let mut embeddings = None;
        self.for_each(0..self.n_batches(), |rows| -> Result<()> {
            if !rows.positions.is_empty() {
                append(&mut scores, rows.scores);
                append(&mut embeddings, rows.embeddings);
            }
            Ok(())
        })?;
        let [scores, embeddings] = [(scores, widths[0]), (embeddings, widths[1])]
            .map(|(rows, width)| rows.or_else(|| Some(OutputRows::new(Vec::new(), width?))));
        Ok(PredictedRows { positions: 0..self.n_items, scores, embeddings })
    }
}

impl fmt::Debug for PredictionBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_items, .. } = self;
        f.debug_struct("PredictionBatches")
            .field("n_items", n_items)
            .field("n_batches", &self.n_batches())
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
            let batches =
                PredictionBatches::of_items(ProgressUnit::Nodes, &items, size, 5, move |seeds, positions| {
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

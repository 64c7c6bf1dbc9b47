//! The columns of a table that become features, of a node type or of a relation: their checks, statistics and rows.

use rayon::prelude::*;

use crate::drift::{ColumnDrift, DriftKind};
use crate::spec::ColumnSpec;
use crate::table::{Table, TableBatch};
use crate::transform::{Accumulator, ColumnEncoder, FittedColumn, check};
use crate::{Error, Result};

/// The number of rows that a task of the thread pool handles.
pub(crate) const TASK_ROWS: usize = 1 << 8;

/// The maximum number of bytes of feature rows that are encoded at a time, unless one row is larger.
const ENCODED_BYTES: usize = 4 << 20;

/// The memory of a name besides its text, and the number of copies of the text.
const NAME_BYTES: u64 = 128;
const COPIES: u64 = 3;

/// The columns of a table that become features.
#[derive(Debug)]
pub(crate) struct FeatureColumns<'a> {
    specs: &'a [ColumnSpec],
    /// The position of each column in the table.
    positions: Vec<usize>,
}

impl<'a> FeatureColumns<'a> {
    /// Creates them from the specs of the columns, and the position of each in the table.
    pub(crate) fn new(specs: &'a [ColumnSpec], positions: Vec<usize>) -> Self {
        Self { specs, positions }
    }

    /// Returns the position of each column in the table.
    pub(crate) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Returns the number of the first column whose value in a row is wrong, and the expected value.
    pub(crate) fn problem(&self, batch: &TableBatch, row: usize) -> Option<(usize, &'static str)> {
        let columns = self.specs.iter().zip(&self.positions).enumerate();
        for (number, (spec, position)) in columns {
            if let Err(expected) = check(&spec.transform, &batch.cell(*position, row)) {
                return Some((number, expected));
            }
        }
        None
    }

    /// Returns empty statistics of all columns. `label` is the table in messages.
    pub(crate) fn statistics(&self, label: &str) -> Vec<Accumulator<'a>> {
        self.specs.iter().map(|spec| Accumulator::new(spec, label)).collect()
    }

    /// Returns empty statistics of the columns of numbers; `None` for other columns.
    pub(crate) fn numbers(&self) -> Vec<Option<Accumulator<'a>>> {
        self.specs.iter().map(|spec| Accumulator::numbers_only(spec, "")).collect()
    }

    /// Adds the good rows of a batch to statistics. Each column is added by one thread, in the order of the rows.
    pub(crate) fn add(
        &self,
        statistics: &mut [Accumulator<'_>],
        batch: &TableBatch,
        is_good: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<()> {
        let columns = statistics.par_iter_mut().zip(&self.positions);
        columns.try_for_each(|(column, position)| add_rows(column, *position, batch, is_good))
    }

    /// Adds the good rows of a batch to the statistics of [`FeatureColumns::numbers`].
    pub(crate) fn add_numbers(
        &self,
        numbers: &mut [Option<Accumulator<'_>>],
        batch: &TableBatch,
        is_good: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<()> {
        let columns = numbers.par_iter_mut().zip(&self.positions);
        columns.try_for_each(|(column, position)| match column {
            Some(column) => add_rows(column, *position, batch, is_good),
            None => Ok(()),
        })
    }
}

fn add_rows(
    column: &mut Accumulator<'_>,
    position: usize,
    batch: &TableBatch,
    is_good: &(dyn Fn(usize) -> bool + Sync),
) -> Result<()> {
    let mut good = (0..batch.n_rows).filter(|row| is_good(*row));
    good.try_for_each(|row| column.add(&batch.cell(position, row)))
}

/// Checks that the different values of statistics fit in the memory limit, with further bytes.
pub(crate) fn check_heap_bytes(table: &Table, statistics: &[Accumulator<'_>], more_bytes: u64) -> Result<()> {
    let of_columns: u64 = statistics.iter().map(Accumulator::heap_bytes).sum();
    table.source.sources.limit().check_values(&table.source.label, of_columns + more_bytes)
}

/// Returns the columns whose numbers have another scale than those of an earlier import. `table` is its label.
pub(crate) fn scale_drift(
    table: &str,
    numbers: &[Option<Accumulator<'_>>],
    earlier: &[FittedColumn],
) -> Vec<ColumnDrift> {
    let columns = numbers.iter().zip(earlier).filter_map(|(numbers, earlier)| {
        let numbers = numbers.as_ref()?;
        let n_values = numbers.n_values();
        let kind = DriftKind::scale_change(n_values, numbers.number_stats()?, earlier.numbers?)?;
        let table = table.to_owned();
        let column = earlier.column.clone();
        Some(ColumnDrift { table, column, kind, n_found: n_values, n_values, earlier_share: 0.0 })
    });
    columns.collect()
}

/// Returns the number of feature columns of some columns.
pub(crate) fn width_of(columns: &[FittedColumn]) -> usize {
    columns.iter().map(FittedColumn::width).sum()
}

/// Returns the memory of the categories of some columns, and of further names, in bytes: with their positions by name and their text
/// in the record of the import.
pub(crate) fn names_bytes<'a>(columns: &'a [FittedColumn], names: impl Iterator<Item = &'a String>) -> u64 {
    let categories = columns.iter().flat_map(|column| column.transform.categories());
    categories.chain(names).map(|name| NAME_BYTES + COPIES * name.len() as u64).sum()
}

/// Checks the number of feature columns of a table.
///
/// # Errors
/// Returns [`Error::TooLarge`] for more than [`MAX_DIM`](kiln_feature::MAX_DIM).
pub(crate) fn check_width(table: String, columns: &[FittedColumn]) -> Result<usize> {
    let dim = width_of(columns);
    if kiln_feature::MAX_DIM < dim {
        let what = format!("{dim} feature columns");
        return Err(Error::TooLarge { table, what, max: kiln_feature::MAX_DIM as u64 });
    }
    Ok(dim)
}

/// Computes the features of rows.
#[derive(Debug)]
pub(crate) struct RowEncoder {
    columns: Vec<ColumnEncoder>,
    /// The number of feature columns.
    pub(crate) dim: usize,
}

impl RowEncoder {
    pub(crate) fn new(fitted: &[FittedColumn]) -> Self {
        let columns: Vec<ColumnEncoder> = fitted.iter().map(ColumnEncoder::new).collect();
        let dim = columns.iter().map(ColumnEncoder::width).sum();
        Self { columns, dim }
    }

    /// Returns what is unlike the values of the statistics in the encoded rows.
    pub(crate) fn drift(&self, table: &str, n_rows: u64) -> Vec<ColumnDrift> {
        self.columns.iter().flat_map(|column| column.drift(table, n_rows)).collect()
    }

    /// Calls `visit` with the features of some rows, in their order. They are computed in parallel. The rows must be good.
    pub(crate) fn encode(
        &self,
        batch: &TableBatch,
        positions: &[usize],
        rows: &[usize],
        mut visit: impl FnMut(&[usize], &[f32]) -> Result<()>,
    ) -> Result<()> {
        let n_at_once = (ENCODED_BYTES / (4 * self.dim.max(1))).max(1);
        let mut values = Vec::new();
        for rows in rows.chunks(n_at_once) {
            values.clear();
            values.resize(rows.len() * self.dim, 0.0);
            if self.dim > 0 {
                let tasks = values.par_chunks_exact_mut(self.dim).zip(rows).with_min_len(TASK_ROWS);
                tasks.for_each(|(values, row)| self.encode_row(batch, positions, *row, values));
            }
            visit(rows, &values)?;
        }
        Ok(())
    }

    fn encode_row(&self, batch: &TableBatch, positions: &[usize], row: usize, values: &mut [f32]) {
        let mut rest = values;
        for (column, position) in self.columns.iter().zip(positions) {
            let (values, others) = rest.split_at_mut(column.width());
            let encoded = column.encode(&batch.cell(*position, row), values);
            debug_assert!(encoded.is_ok(), "a good row should be encoded: {encoded:?}");
            rest = others;
        }
    }
}

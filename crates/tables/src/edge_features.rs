//! The features of the edges of a relation: the statistics of their columns over the good rows of the table, and a row of features
//! per row of the table in a temporary file.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use crate::edges::{EdgeRow, RelationRows};
use crate::feature_columns::{
    FeatureColumns, RowEncoder, TASK_ROWS, check_heap_bytes, check_width, scale_drift,
};
use crate::node_table::NodeTable;
use crate::row_ids::RowSet;
use crate::spec::RelationSpec;
use crate::spill::{SPILL_BUFFER, SpillFile, SpillWriter};
use crate::spilled_features::SpilledFeatures;
use crate::table::{Table, TableBatch, TableSource};
use crate::transform::Accumulator;
use crate::{ColumnDrift, FittedColumn, FittedRelation, Result};

/// The features of a relation's table, with what is notable in them.
#[derive(Debug)]
pub(crate) struct ReadFeatures {
    pub(crate) features: SpilledFeatures,
    /// What of the columns has no effect.
    pub(crate) notes: Vec<String>,
    /// What is unlike the values of an earlier import.
    pub(crate) drift: Vec<ColumnDrift>,
}

/// The place of temporary files of the relation at a position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spilled<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) relation: usize,
}

impl Spilled<'_> {
    fn create(self, what: &str) -> Result<SpillWriter> {
        SpillFile::create(self.folder, &format!("relation-{}-{what}", self.relation), SPILL_BUFFER)
    }
}

/// The rows from which the statistics of columns are computed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FittedRows<'a> {
    /// All good rows.
    All,
    /// Those that pass messages before a time, so that the features know nothing of the validation and the test of a split by time:
    /// an edge is known from its time on, and not before its source.
    Before {
        time: i64,
        /// The table of the sources, which may have times.
        srcs: Option<&'a NodeTable<'a>>,
    },
    /// None: the statistics are those of an earlier import.
    Earlier(&'a [FittedColumn]),
}

impl<'a> FittedRows<'a> {
    /// Returns the rows of a relation with the statistics of an earlier import, or of rows before a time. `srcs` is the table of its
    /// sources.
    pub(crate) fn new(
        earlier: Option<&'a FittedRelation>,
        before: Option<i64>,
        srcs: Option<&'a NodeTable<'a>>,
    ) -> Self {
        match (earlier, before) {
            (Some(earlier), _) => Self::Earlier(&earlier.columns),
            (None, Some(time)) => Self::Before { time, srcs },
            (None, None) => Self::All,
        }
    }
}

/// The latest rows that are in the statistics.
#[derive(Debug)]
struct LastRows {
    /// The first time of edges that are in no statistics; `None` for those of all rows.
    before: Option<i64>,
    /// The rows of the sources that are not before it, if the sources have times.
    late_srcs: RowSet,
    /// True if both ends have one type. A node always knows itself, so that the time of a self loop is its own only.
    has_one_type: bool,
}

impl LastRows {
    fn new(spec: &RelationSpec, fitted: FittedRows<'_>) -> Result<Self> {
        let has_one_type = spec.src.node_type == spec.dst.node_type;
        let FittedRows::Before { time, srcs } = fitted else {
            return Ok(Self { before: None, late_srcs: RowSet::default(), has_one_type });
        };
        let late_srcs = srcs.map(|table| table.rows_from(time)).transpose()?.unwrap_or_default();
        Ok(Self { before: Some(time), late_srcs, has_one_type })
    }

    /// Returns true for a row that is in the statistics, if it is good.
    fn contains(&self, row: &EdgeRow<'_>) -> bool {
        let Some(before) = self.before else { return true };
        let [src, dst] = row.rows;
        let is_loop = self.has_one_type && src == dst;
        let has_late_src = self.late_srcs.contains(src) && !is_loop;
        !has_late_src && row.time.is_none_or(|time| time < before)
    }
}

/// Reads the columns of a relation's table that become features, twice: for their statistics, and for the rows. `rows` has the keys,
/// numbers and times of the same table.
pub(crate) fn read_edge_features(
    spec: &RelationSpec,
    source: &Arc<TableSource>,
    rows: &RelationRows,
    fitted: FittedRows<'_>,
    place: Spilled<'_>,
) -> Result<ReadFeatures> {
    let mut names: Vec<String> = spec.columns.iter().map(|column| column.column.clone()).collect();
    names.sort_unstable();
    names.dedup();
    // The names ascend.
    let positions =
        spec.columns.iter().map(|column| names.partition_point(|name| *name < column.column)).collect();
    let columns = FeatureColumns::new(&spec.columns, positions);
    let table = Table { source: source.clone(), columns: names };
    let last_rows = LastRows::new(spec, fitted)?;
    let scan = scan(&table, &columns, rows, fitted, &last_rows, place)?;
    let has_earlier = matches!(fitted, FittedRows::Earlier(_));
    let fitted = FittedRelation { name: spec.name.clone(), columns: scan.columns };
    let dim = check_width(source.label.clone(), &fitted.columns)?;
    let encoder = RowEncoder::new(&fitted.columns);
    let mut file = place.create("features")?;
    let mut reader = rows.read()?;
    let mut marks = scan.marks.read(SPILL_BUFFER)?;
    let zeros = vec![0.0; dim];
    let mut n_good_rows = 0;
    table.for_each_batch("computing features of edges", &mut |batch| {
        let mut good = Vec::with_capacity(batch.n_rows);
        for _ in 0..batch.n_rows {
            let is_marked = marks.read_u32()? != 0;
            good.push(reader.next()?.problem().is_none() && !is_marked);
        }
        let kept: Vec<usize> = (0..batch.n_rows).filter(|row| good[*row]).collect();
        n_good_rows += kept.len() as u64;
        let mut next = 0;
        encoder.encode(batch, columns.positions(), &kept, |kept, values| {
            for (number, row) in kept.iter().enumerate() {
                // The bad rows before this one.
                while next < *row {
                    file.write_f32s(&zeros)?;
                    next += 1;
                }
                file.write_f32s(&values[dim * number..dim * (number + 1)])?;
                next += 1;
            }
            Ok(())
        })?;
        while next < batch.n_rows {
            file.write_f32s(&zeros)?;
            next += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut drift = scan.drift;
    if has_earlier {
        drift.extend(encoder.drift(&source.label, n_good_rows));
    }
    let features = SpilledFeatures { fitted, dim, marks: scan.marks, rows: file.finish()? };
    Ok(ReadFeatures { features, notes: scan.notes, drift })
}

/// The result of the first reading.
struct Scan {
    columns: Vec<FittedColumn>,
    marks: SpillFile,
    notes: Vec<String>,
    drift: Vec<ColumnDrift>,
}

fn scan(
    table: &Table,
    columns: &FeatureColumns<'_>,
    rows: &RelationRows,
    fitted: FittedRows<'_>,
    last_rows: &LastRows,
    place: Spilled<'_>,
) -> Result<Scan> {
    let label = &table.source.label;
    let mut marks = place.create("marks")?;
    let mut reader = rows.read()?;
    let mut statistics = Vec::new();
    let mut numbers = Vec::new();
    match fitted {
        FittedRows::All | FittedRows::Before { .. } => statistics = columns.statistics(label),
        FittedRows::Earlier(_) => numbers = columns.numbers(),
    }
    table.for_each_batch("computing statistics of edges", &mut |batch| {
        let mut good = Vec::with_capacity(batch.n_rows);
        for mark in bad_columns(columns, batch) {
            marks.write_u32(mark)?;
            let row = reader.next()?;
            good.push(row.problem().is_none() && mark == 0 && last_rows.contains(&row));
        }
        columns.add(&mut statistics, batch, &|row| good[row])?;
        columns.add_numbers(&mut numbers, batch, &|row| good[row])?;
        check_heap_bytes(table, &statistics, 0)?;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Scan {
        marks: marks.finish()?,
        notes: statistics.iter().flat_map(Accumulator::notes).collect(),
        drift: match fitted {
            FittedRows::Earlier(earlier) => scale_drift(label, &numbers, earlier),
            FittedRows::All | FittedRows::Before { .. } => Vec::new(),
        },
        columns: match fitted {
            FittedRows::Earlier(earlier) => earlier.to_vec(),
            FittedRows::All | FittedRows::Before { .. } => {
                statistics.into_iter().map(Accumulator::finish).collect()
            }
        },
    })
}

/// Returns the mark of each row: 1 plus the number of its first bad column, or 0. A row that cannot be read is bad already.
fn bad_columns(columns: &FeatureColumns<'_>, batch: &TableBatch) -> Vec<u32> {
    let rows = (0..batch.n_rows).into_par_iter().with_min_len(TASK_ROWS);
    let marks = rows.map(|row| match (batch.malformed(row), columns.problem(batch, row)) {
        (None, Some((number, _))) => number as u32 + 1,
        _ => 0,
    });
    marks.collect()
}

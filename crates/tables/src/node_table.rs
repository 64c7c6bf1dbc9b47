//! The table of a node type: the first reading, which checks rows and writes their keys, and the statistics of its columns.
//! The table is read again for its features (`node_writer`), and before that for the statistics if rows with duplicate keys
//! are dropped. Statistics are added in the order of the rows, one column per thread.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kiln_data::DatasetTimes;
use rayon::prelude::*;

use crate::bad_rows::{BadRowKind, BadRowLog};
use crate::feature_columns::{FeatureColumns, TASK_ROWS, check_heap_bytes, scale_drift};
use crate::join::MAX_ROWS;
use crate::key::key_of;
use crate::key_file::{KeyFile, KeyWriter};
use crate::known_nodes::KnownNodes;
use crate::row_ids::RowSet;
use crate::spec::{NodeTypeSpec, SplitSpec, TimeSplitSpec, TimeUnit};
use crate::spill::KeyRecord;
use crate::table::{Cell, Table, TableBatch, TableSource, table_of};
use crate::target::{KnownClasses, TargetAccumulator};
use crate::times::TimeReader;
use crate::transform::{Accumulator, is_in_unit};
use crate::{BadRow, ColumnDrift, Error, FittedNodeType, Result};

/// A node type with a table.
#[derive(Debug)]
pub(crate) struct NodeTable<'a> {
    pub(crate) spec: &'a NodeTypeSpec,
    /// The table in messages: ``node type `user` ``.
    pub(crate) label: String,
    pub(crate) table: Table,
    /// The positions of columns in the table: the key, those of features, of targets and of the split.
    pub(crate) key: usize,
    pub(crate) features: FeatureColumns<'a>,
    pub(crate) target: Vec<usize>,
    pub(crate) split: Vec<usize>,
    /// The position and the reader of the times; `None` for a type without times.
    pub(crate) time: Option<(usize, TimeReader)>,
    /// The first time of rows that are not in the statistics of features; `None` for those of all rows.
    pub(crate) fitted_before: Option<i64>,
    /// The classes of an earlier import, of which the classes must be.
    known: Option<KnownClasses>,
    /// The nodes of the set to which rows are appended, which are the first rows of the keys.
    pub(crate) known_nodes: Option<KnownNodes<'a>>,
}

/// The result of the first reading.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) keys: KeyFile,
    pub(crate) dropped: RowSet,
    pub(crate) log: BadRowLog,
    /// The statistics of all rows that are not bad; `None` if those of an earlier import are used.
    pub(crate) fitted: Option<Fitted>,
    /// The columns whose numbers have another scale than those of an earlier import.
    pub(crate) drift: Vec<ColumnDrift>,
}

/// Statistics of a table.
#[derive(Debug)]
pub(crate) struct Fitted {
    pub(crate) node_type: FittedNodeType,
    /// True if the spec has a target that no row has.
    pub(crate) lacks_targets: bool,
    /// What of the columns has no effect.
    pub(crate) notes: Vec<String>,
}

/// The reason why a row is bad.
#[derive(Debug)]
struct Problem {
    kind: BadRowKind,
    column: String,
    expected: String,
    found: String,
}

/// The statistics of the columns of a table.
struct Statistics<'a> {
    columns: Vec<Accumulator<'a>>,
    target: Option<TargetAccumulator<'a>>,
    /// True if a time of the split is no timestamp, and so has the unit of the spec.
    split_has_unit: bool,
}

impl<'a> NodeTable<'a> {
    /// Returns the table of a node type. `earlier` has the classes of an earlier import.
    pub(crate) fn new(
        spec: &'a NodeTypeSpec,
        source: &Arc<TableSource>,
        earlier: Option<&FittedNodeType>,
    ) -> Self {
        let mut columns: Vec<String> = Vec::new();
        let mut position_of = |name: &str| match columns.iter().position(|column| column == name) {
            Some(position) => position,
            None => {
                columns.push(name.to_owned());
                columns.len() - 1
            }
        };
        let key = position_of(spec.key.as_deref().unwrap_or_default());
        let features = spec.columns.iter().map(|column| position_of(&column.column)).collect();
        let features = FeatureColumns::new(&spec.columns, features);
        let target = spec.target.iter().flat_map(|target| target.columns()).map(&mut position_of).collect();
        let split = spec.split.iter().flat_map(SplitSpec::columns).map(&mut position_of).collect();
        let time = spec.time_column().map(|time| (position_of(&time.column), TimeReader::new(&time)));
        let known = earlier.and_then(|fitted| fitted.target.as_ref());
        Self {
            spec,
            label: table_of(&spec.name),
            table: Table { source: source.clone(), columns },
            key,
            features,
            target,
            split,
            time,
            fitted_before: None,
            known: known.map(KnownClasses::new),
            known_nodes: None,
        }
    }

    /// Returns the table of rows that are appended to these nodes.
    pub(crate) fn with_known_nodes(self, known_nodes: Option<KnownNodes<'a>>) -> Self {
        let known = if known_nodes.is_some() { self.known.map(KnownClasses::name_set) } else { self.known };
        Self { known, known_nodes, ..self }
    }

    /// Returns the number of rows before those of the table: that of the known nodes.
    pub(crate) fn n_known(&self) -> u32 {
        self.known_nodes.as_ref().map_or(0, KnownNodes::len)
    }

    /// Reads the table: checks each row, writes its key, and computes the statistics of the rows that are not bad.
    pub(crate) fn scan(&self, folder: &Path, earlier: Option<&FittedNodeType>) -> Result<Scan> {
        let names = self.known_nodes.as_ref().map(|known| known.names);
        let mut keys =
            KeyWriter::create(folder, &format!("keys-of-{}", self.spec_number()), &self.label, names)?;
        let mut dropped = RowSet::default();
        let mut log = BadRowLog::default();
        let mut statistics = earlier.is_none().then(|| self.statistics());
        let mut numbers = if earlier.is_some() { self.features.numbers() } else { Vec::new() };
        let mut buffer = String::new();
        self.table.for_each_batch("reading keys and statistics", &mut |batch| {
            let problems = self.problems(batch);
            if let Some(statistics) = &mut statistics {
                statistics.add(self, batch, &|row| problems[row].is_none())?;
            }
            self.features.add_numbers(&mut numbers, batch, &|row| problems[row].is_none())?;
            if MAX_ROWS < keys.n_rows + batch.n_rows as u64 {
                let table = self.label.clone();
                let what = "too many rows".to_owned();
                return Err(Error::TooLarge { table, what, max: MAX_ROWS });
            }
            for (row, problem) in problems.into_iter().enumerate() {
                match (problem, key_of(&batch.cell(self.key, row), self.spec.key_type, &mut buffer)) {
                    (None, Ok(Some(key))) => keys.write(KeyRecord::Key(key.as_bytes()))?,
                    (Some(problem), _) => {
                        dropped.insert(keys.n_rows as u32);
                        keys.write(KeyRecord::Wrong)?;
                        log.add(problem.kind, || problem.into_row(batch, row));
                    }
                    (None, _) => unreachable!("a row without a problem should have a key"),
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let keys = keys.finish()?;
        let fitted = statistics.map(|statistics| statistics.finish(self));
        let of_earlier = earlier.map_or(&[][..], |earlier| &earlier.columns);
        let drift = scale_drift(&self.label, &numbers, of_earlier);
        Ok(Scan { keys, dropped, log, fitted, drift })
    }

    /// Returns the statistics of the rows that are not dropped.
    pub(crate) fn fit(&self, is_kept: &dyn Fn(u32) -> bool) -> Result<Fitted> {
        let mut statistics = self.statistics();
        let mut n_rows = 0;
        self.table.for_each_batch("computing statistics", &mut |batch| {
            let kept: Vec<bool> = (0..batch.n_rows as u32).map(|row| is_kept(n_rows + row)).collect();
            statistics.add(self, batch, &|row| kept[row])?;
            n_rows += batch.n_rows as u32;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(statistics.finish(self))
    }

    /// Returns the rows whose time is not before a time, in one reading; none of a type without times.
    pub(crate) fn rows_from(&self, time: i64) -> Result<RowSet> {
        let mut rows = RowSet::default();
        if self.time.is_none() {
            return Ok(rows);
        }
        let mut first = self.n_known();
        self.table.for_each_batch("reading times of nodes", &mut |batch| {
            for row in 0..batch.n_rows {
                if self.time_of(batch, row).is_some_and(|of_row| time <= of_row) {
                    rows.insert(first + row as u32);
                }
            }
            first += batch.n_rows as u32;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// Returns the examples of duplicate keys, which are at the given rows of the keys.
    pub(crate) fn duplicates(&self, rows: &[u32]) -> Result<Vec<BadRow>> {
        let mut examples = Vec::new();
        let mut n_rows = self.n_known();
        self.table.for_each_batch("finding duplicate keys", &mut |batch| {
            for row in 0..batch.n_rows {
                if rows.get(examples.len()) == Some(&(n_rows + row as u32)) {
                    let found = batch.cell(self.key, row).shown();
                    let column = &self.table.columns[self.key];
                    examples.push(batch.bad_row(row, column, "a key that no earlier row has", found));
                }
            }
            n_rows += batch.n_rows as u32;
            let is_done = rows.len() <= examples.len();
            Ok(if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(examples)
    }

    /// Returns the examples and the number of bad rows of a batch, and true for each good row.
    pub(crate) fn check_batch(&self, batch: &TableBatch, log: &mut BadRowLog) -> Vec<bool> {
        let problems = self.problems(batch);
        let mut kept = Vec::with_capacity(problems.len());
        for (row, problem) in problems.into_iter().enumerate() {
            kept.push(problem.is_none());
            if let Some(problem) = problem {
                log.add(problem.kind, || problem.into_row(batch, row));
            }
        }
        kept
    }

    fn problems(&self, batch: &TableBatch) -> Vec<Option<Problem>> {
        let rows = (0..batch.n_rows).into_par_iter().with_min_len(TASK_ROWS);
        rows.map(|row| self.problem(batch, row)).collect()
    }

    /// Returns the first reason why a row is bad.
    fn problem(&self, batch: &TableBatch, row: usize) -> Option<Problem> {
        if let Some(malformed) = batch.malformed(row) {
            let expected = malformed.expected.clone();
            let found = malformed.found.clone();
            return Some(Problem { kind: BadRowKind::WrongType, column: "(row)".into(), expected, found });
        }
        let problem = |kind, column: usize, expected: &str| {
            let (column, found) = (self.table.columns[column].clone(), batch.cell(column, row).shown());
            Some(Problem { kind, column, expected: expected.to_owned(), found })
        };
        let mut buffer = String::new();
        let key = match key_of(&batch.cell(self.key, row), self.spec.key_type, &mut buffer) {
            Ok(Some(key)) => key,
            Ok(None) => return problem(BadRowKind::MissingKey, self.key, "a key"),
            Err(expected) => return problem(BadRowKind::WrongType, self.key, expected),
        };
        if let Some((number, expected)) = self.features.problem(batch, row) {
            return problem(BadRowKind::WrongType, self.features.positions()[number], expected);
        }
        let target = self.spec.target.as_ref();
        if let Some(Err((position, expected))) =
            target.map(|target| target.check(batch, row, &self.target, self.known.as_ref()))
        {
            return problem(BadRowKind::WrongType, self.target[position], expected);
        }
        if let (Some(_), Some((column, reader))) = (&self.spec.time, self.time) {
            match reader.read(&batch.cell(column, row)) {
                Ok(Some(_)) => {}
                Ok(None) => return problem(BadRowKind::WrongType, column, "a time"),
                Err(expected) => return problem(BadRowKind::WrongType, column, expected),
            }
        }
        let split = self.spec.split.as_ref()?;
        let cells: Vec<Cell<'_>> = self.split.iter().map(|column| batch.cell(*column, row)).collect();
        let (position, expected) = split.part_of(&cells, key).err()?;
        problem(BadRowKind::WrongType, self.split[position], expected)
    }

    /// Returns notes on the target and the split.
    fn notes(&self, split_has_unit: bool) -> Vec<String> {
        let mut notes = Vec::new();
        for target in self.target.iter().filter(|target| self.features.positions().contains(target)) {
            let column = &self.table.columns[*target];
            notes.push(format!(
                "column {column:?}: it is a feature and a target, so the features have the answer"
            ));
        }
        if let (Some(SplitSpec::Time(TimeSplitSpec { column, unit, .. })), false) =
            (&self.spec.split, split_has_unit)
            && !matches!(unit, TimeUnit::Seconds | TimeUnit::Integer)
        {
            notes.push(format!("column {column:?}: no value is an integer, so `unit` has no effect"));
        }
        notes
    }

    fn statistics(&self) -> Statistics<'a> {
        let columns = self.features.statistics(&self.label);
        let target = self.spec.target.as_ref().map(|target| TargetAccumulator::new(target, &self.label));
        Statistics { columns, target, split_has_unit: false }
    }

    /// Returns the time of a good row; `None` for a type without times.
    pub(crate) fn time_of(&self, batch: &TableBatch, row: usize) -> Option<i64> {
        let (column, reader) = self.time?;
        // The time of a row in no part of a split is unknown.
        Some(reader.read(&batch.cell(column, row)).ok().flatten().unwrap_or(DatasetTimes::NEVER))
    }

    /// Returns true for a row in the statistics of features, which know nothing of the validation and the test of a split by time.
    fn is_fitted(&self, batch: &TableBatch, row: usize) -> bool {
        self.fitted_before.is_none_or(|before| self.time_of(batch, row).is_none_or(|time| time < before))
    }

    /// Returns a name of the type for files.
    fn spec_number(&self) -> String {
        format!("{:016x}", crate::hash::hash_bytes(self.spec.name.as_bytes()))
    }
}

impl Problem {
    fn into_row(self, batch: &TableBatch, row: usize) -> BadRow {
        batch.bad_row(row, &self.column, &self.expected, self.found)
    }
}

impl Statistics<'_> {
    /// Adds the good rows of a batch.
    fn add(
        &mut self,
        table: &NodeTable<'_>,
        batch: &TableBatch,
        is_good: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<()> {
        table.features.add(&mut self.columns, batch, &|row| is_good(row) && table.is_fitted(batch, row))?;
        if let (Some(SplitSpec::Time(_)), [column]) = (&table.spec.split, &table.split[..]) {
            let mut good = (0..batch.n_rows).filter(|row| is_good(*row));
            self.split_has_unit |= good.any(|row| is_in_unit(&batch.cell(*column, row)));
        }
        if let Some(target) = &mut self.target {
            let mut good = (0..batch.n_rows).filter(|row| is_good(*row));
            good.try_for_each(|row| target.add(batch, row, &table.target))?;
        }
        let of_target = self.target.as_ref().map_or(0, TargetAccumulator::heap_bytes);
        check_heap_bytes(&table.table, &self.columns, of_target)
    }

    fn finish(self, table: &NodeTable<'_>) -> Fitted {
        let lacks_targets = self.target.as_ref().is_some_and(|target| !target.has_targets());
        let of_target = self.target.iter().flat_map(TargetAccumulator::notes);
        let mut notes: Vec<String> =
            self.columns.iter().flat_map(Accumulator::notes).chain(of_target).collect();
        notes.extend(
            table.notes(self.split_has_unit).into_iter().map(|note| format!("{}, {note}", table.label)),
        );
        let node_type = FittedNodeType {
            name: table.spec.name.clone(),
            columns: self.columns.into_iter().map(Accumulator::finish).collect(),
            target: self.target.map(TargetAccumulator::finish),
        };
        Fitted { node_type, lacks_targets, notes }
    }
}

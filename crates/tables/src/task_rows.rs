//! The rows of task tables. Their files are read twice after their keys were joined: once to check the rows and to find the
//! classes, and once to write them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kiln_data::format::SetWriter;
use kiln_graph::NodeTypes;
use serde::{Deserialize, Serialize};

use crate::bad_rows::{BadRowKind, BadRowLog};
use crate::held_out_edges::{BAD, GOOD};
use crate::join::{DANGLING, EndRows, MISSING, WRONG};
use crate::key::key_of;
use crate::row_ids::RowIds;
use crate::spec::{KeyType, SplitSpec, TaskSpec};
use crate::spill::{SPILL_BUFFER, SpillFile};
use crate::table::{Cell, Table, TableBatch, TableSource, task_of};
use crate::target::{FittedTarget, KnownClasses, TargetAccumulator, TargetEncoder};
use crate::times::TimeReader;
use crate::{BadRow, EarlierImportError, Error, ImportedSplit, Result};

/// The targets of a task table with the names of their classes, labels or columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedTask {
    /// The name of the table.
    pub name: String,
    /// The targets.
    pub target: FittedTarget,
}

/// The files of one part of a task table, or of all parts, whose keys were joined.
#[derive(Debug)]
pub(crate) struct TaskPart {
    /// The part of the split that all rows have; `None` for the split of the spec.
    pub(crate) part: Option<usize>,
    pub(crate) source: Arc<TableSource>,
    /// The row of the node type for each row.
    pub(crate) rows: EndRows,
}

/// A task table whose rows are known.
#[derive(Debug)]
pub(crate) struct TaskRows<'a> {
    spec: &'a TaskSpec,
    key_type: KeyType,
    parts: Vec<TaskPart>,
    /// A byte per row of all parts: [`GOOD`] or [`BAD`].
    status: SpillFile,
    pub(crate) fitted: FittedTask,
    /// True if no row has a target.
    pub(crate) lacks_targets: bool,
    /// What of the target has no effect.
    pub(crate) notes: Vec<String>,
}

/// The positions of the columns of a table.
struct TaskColumns<'a> {
    spec: &'a TaskSpec,
    key_type: KeyType,
    table: Table,
    key: usize,
    time: usize,
    times: TimeReader,
    target: Vec<usize>,
    split: Vec<usize>,
}

impl<'a> TaskColumns<'a> {
    fn new(spec: &'a TaskSpec, key_type: KeyType, source: &Arc<TableSource>) -> Self {
        let columns = spec.columns_of_table();
        // The columns ascend.
        let position = |name: &str| columns.partition_point(|column| column.as_str() < name);
        let target = spec.target.columns().into_iter().map(position).collect();
        let split = spec.split.iter().flat_map(SplitSpec::columns).map(position).collect();
        let key = position(&spec.key.column);
        let time = position(&spec.time.column);
        let times = TimeReader::new(&spec.time);
        let table = Table { source: source.clone(), columns };
        Self { spec, key_type, table, key, time, times, target, split }
    }

    /// Returns the kind of a bad row, the position of its column and the expected value. `node` is the row of its key.
    fn problem(
        &self,
        batch: &TableBatch,
        row: usize,
        node: u32,
        known: Option<&KnownClasses>,
    ) -> Option<(BadRowKind, usize, String)> {
        let wrong =
            |column: usize, expected: &str| Some((BadRowKind::WrongType, column, expected.to_owned()));
        let of_type = || format!("a key of node type `{}`", self.spec.key.node_type);
        match node {
            WRONG => {
                let mut buffer = String::new();
                let expected = key_of(&batch.cell(self.key, row), self.key_type, &mut buffer).err();
                return wrong(self.key, expected.unwrap_or("a key"));
            }
            MISSING => return Some((BadRowKind::MissingKey, self.key, of_type())),
            DANGLING => return Some((BadRowKind::Dangling, self.key, of_type())),
            _ => {}
        }
        match self.times.read(&batch.cell(self.time, row)) {
            Ok(Some(_)) => {}
            Ok(None) => return wrong(self.time, "a time"),
            Err(expected) => return wrong(self.time, expected),
        }
        if let Err((position, expected)) = self.spec.target.check(batch, row, &self.target, known) {
            return wrong(self.target[position], expected);
        }
        let (position, expected) = self.part_of(batch, row).err()?;
        wrong(self.split[position], expected)
    }

    /// Returns the part of a row by the split of the spec.
    fn part_of(&self, batch: &TableBatch, row: usize) -> Result<Option<usize>, (usize, &'static str)> {
        let Some(split) = &self.spec.split else { return Ok(None) };
        let cells: Vec<Cell<'_>> = self.split.iter().map(|column| batch.cell(*column, row)).collect();
        let mut buffer = String::new();
        let key = key_of(&batch.cell(self.key, row), self.key_type, &mut buffer);
        split.part_of(&cells, key.ok().flatten().unwrap_or_default())
    }

    fn bad_row(&self, batch: &TableBatch, row: usize, column: usize, expected: &str) -> BadRow {
        batch.bad_row(row, &self.table.columns[column], expected, batch.cell(column, row).shown())
    }
}

impl<'a> TaskRows<'a> {
    /// Checks the rows of a task table, and finds its classes. Bad rows are added to the log. The classes are those of an earlier
    /// import if there is one.
    ///
    /// # Errors
    /// Returns [`EarlierImportError::OtherTransforms`] if the targets of the earlier import are others, and the errors
    /// of reading.
    pub(crate) fn scan(
        spec: &'a TaskSpec,
        key_type: KeyType,
        parts: Vec<TaskPart>,
        earlier: Option<&FittedTask>,
        place: (&Path, usize),
        log: &mut BadRowLog,
    ) -> Result<Self> {
        let label = task_of(&spec.name);
        if earlier.is_some_and(|earlier| !earlier.target.is_of(&spec.target)) {
            let what = "its target is another one".to_owned();
            return Err(Error::EarlierImport(EarlierImportError::OtherTransforms { table: label, what }));
        }
        let known = earlier.map(|earlier| KnownClasses::new(&earlier.target));
        let (folder, position) = place;
        let mut status = SpillFile::create(folder, &format!("status-of-task-{position}"), SPILL_BUFFER)?;
        let mut targets = TargetAccumulator::new(&spec.target, &label);
        for TaskPart { source, rows, .. } in &parts {
            let columns = TaskColumns::new(spec, key_type, source);
            let mut nodes = rows.file.read_from(4 * rows.start, SPILL_BUFFER)?;
            columns.table.for_each_batch("reading targets", &mut |batch| {
                for row in 0..batch.n_rows {
                    let node = nodes.read_u32()?;
                    let malformed = batch.malformed(row);
                    let problem = match malformed {
                        Some(_) => None,
                        None => columns.problem(batch, row, node, known.as_ref()),
                    };
                    if let Some(malformed) = malformed {
                        let found = malformed.found.clone();
                        log.add(BadRowKind::WrongType, || {
                            batch.bad_row(row, "(row)", &malformed.expected, found)
                        });
                    } else if let Some((kind, column, expected)) = &problem {
                        log.add(*kind, || columns.bad_row(batch, row, *column, expected));
                    } else {
                        targets.add(batch, row, &columns.target)?;
                        status.write(&[GOOD])?;
                        continue;
                    }
                    status.write(&[BAD])?;
                }
                source.sources.limit().check_values(&source.label, targets.heap_bytes())?;
                Ok(ControlFlow::Continue(()))
            })?;
        }
        let lacks_targets = !targets.has_targets();
        let notes = targets.notes();
        let fitted = match earlier {
            Some(earlier) => earlier.clone(),
            None => FittedTask { name: spec.name.clone(), target: targets.finish() },
        };
        Ok(Self { spec, key_type, parts, status: status.finish()?, fitted, lacks_targets, notes })
    }

    /// Returns the name of the table in messages.
    pub(crate) fn label(&self) -> String {
        task_of(&self.spec.name)
    }

    /// Writes the rows that are not bad as a task table of the set. `ids` are those of the type of the keys.
    pub(crate) fn write(self, set: &mut SetWriter, types: &NodeTypes, ids: &RowIds) -> Result<ImportedSplit> {
        let Self { spec, key_type, parts, status, fitted, .. } = self;
        let node_type = types.require(&spec.key.node_type)?;
        let first = types.range(node_type).start;
        let names = fitted.target.names();
        let mut table = set.task_table(fitted.target.element_type(), names.len())?;
        let mut encoder = TargetEncoder::new(&fitted.target);
        let mut statuses = status.read(SPILL_BUFFER)?;
        let mut n_rows = 0_u32;
        let mut n_in_part = [0_u64; 3];
        for TaskPart { part: of_files, source, rows } in &parts {
            let columns = TaskColumns::new(spec, key_type, source);
            let mut nodes = rows.file.read_from(4 * rows.start, SPILL_BUFFER)?;
            columns.table.for_each_batch("writing a task table", &mut |batch| {
                for row in 0..batch.n_rows {
                    let node = nodes.read_u32()?;
                    if statuses.read_u8()? == BAD {
                        continue;
                    }
                    let time = columns.times.read(&batch.cell(columns.time, row)).ok().flatten();
                    let (Some(id), Some(time)) = (ids.id_of(node), time) else { continue };
                    let target = encoder.encode(batch, row, &columns.target);
                    let has_target = target.has_any();
                    target.push(&mut table.values)?;
                    table.nodes.push(&[first + id])?;
                    table.times.push(&[time])?;
                    let part = of_files.or_else(|| columns.part_of(batch, row).ok().flatten());
                    if let Some(part) = part.filter(|_| has_target) {
                        table.split[part].push(&[n_rows])?;
                        n_in_part[part] += 1;
                    }
                    n_rows = n_rows.checked_add(1).ok_or_else(|| too_many_rows(&spec.name))?;
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        set.add_task_table(&spec.name, node_type, table, n_rows as usize, names)?;
        let [n_train, n_val, n_test] = n_in_part;
        Ok(ImportedSplit { name: spec.name.clone(), n_train, n_val, n_test })
    }
}

fn too_many_rows(name: &str) -> Error {
    Error::TooLarge { table: task_of(name), what: "too many rows".to_owned(), max: u32::MAX.into() }
}

//! The edges of a relation that have targets: the links of the set. Their table is read twice more: once to check the targets and
//! to find their classes, and once, before the edges are written, to write them and to find the pairs that leave the graph.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kiln_data::format::SetWriter;
use kiln_graph::NodeTypes;

use crate::bad_rows::{BadRowKind, BadRowLog};
use crate::edges::{RelationRows, RowReader};
use crate::held_out_edges::{BAD, GOOD, HeldOutEdges, pair_key};
use crate::key::key_of;
use crate::row_ids::RowIds;
use crate::spec::{KeyType, RelationSpec, SplitSpec, TargetSpec};
use crate::spill::{SPILL_BUFFER, SpillFile};
use crate::table::{Cell, Table, TableBatch, TableSource, relation_of};
use crate::target::{FittedTarget, TargetAccumulator, TargetEncoder};
use crate::{ImportedSplit, Result};

/// The targets of the edges of a relation.
#[derive(Debug)]
pub(crate) struct EdgeItems<'a> {
    columns: ItemColumns<'a>,
    /// A byte per row: [`GOOD`] or [`BAD`].
    status: SpillFile,
    fitted: FittedTarget,
    /// True if no row has a target.
    pub(crate) lacks_targets: bool,
    /// What of the target has no effect.
    pub(crate) notes: Vec<String>,
}

/// The columns of the targets, of the split and of the keys.
#[derive(Debug)]
struct ItemColumns<'a> {
    spec: &'a RelationSpec,
    target_spec: &'a TargetSpec,
    table: Table,
    ends: [usize; 2],
    key_types: [KeyType; 2],
    target: Vec<usize>,
    split: Vec<usize>,
}

/// What [`EdgeItems::write`] has written.
#[derive(Debug)]
pub(crate) struct WrittenItems {
    pub(crate) held_out: HeldOutEdges,
    /// The split, if the spec has one.
    pub(crate) split: Option<ImportedSplit>,
}

impl<'a> ItemColumns<'a> {
    /// Returns the columns of a relation; `None` if it has no target.
    fn new(spec: &'a RelationSpec, source: &Arc<TableSource>, key_types: [KeyType; 2]) -> Option<Self> {
        let target_spec = spec.target.as_ref()?;
        let mut columns: Vec<String> = Vec::new();
        let mut position_of = |name: &str| match columns.iter().position(|column| column == name) {
            Some(position) => position,
            None => {
                columns.push(name.to_owned());
                columns.len() - 1
            }
        };
        let ends = [&spec.src.column, &spec.dst.column].map(|column| position_of(column));
        let target = target_spec.columns().into_iter().map(&mut position_of).collect();
        let split = spec.split.iter().flat_map(|split| split.columns()).map(position_of).collect();
        let table = Table { source: source.clone(), columns };
        Some(Self { spec, target_spec, table, ends, key_types, target, split })
    }

    /// Returns the position of the first column with a value of a wrong type, and the expected value.
    fn problem(&self, batch: &TableBatch, row: usize) -> Option<(usize, &'static str)> {
        if let Err((position, expected)) = self.target_spec.check(batch, row, &self.target, None) {
            return Some((self.target[position], expected));
        }
        let (position, expected) = self.part_of(batch, row).err()?;
        Some((self.split[position], expected))
    }

    /// Returns the part of a row. A random one depends on the keys of both ends, so that all edges between two nodes are in the
    /// same part, those of an undirected relation in either direction.
    fn part_of(&self, batch: &TableBatch, row: usize) -> Result<Option<usize>, (usize, &'static str)> {
        let Some(split) = &self.spec.split else { return Ok(None) };
        let cells: Vec<Cell<'_>> = self.split.iter().map(|column| batch.cell(*column, row)).collect();
        let mut keys = [0, 1].map(|end| {
            let mut buffer = String::new();
            let key = key_of(&batch.cell(self.ends[end], row), self.key_types[end], &mut buffer);
            key.ok().flatten().unwrap_or_default().to_owned()
        });
        if self.spec.undirected {
            keys.sort_unstable();
        }
        split.part_of(&cells, &keys.join("\u{1f}"))
    }
}

impl<'a> EdgeItems<'a> {
    /// Checks the targets and the split of the rows of a relation that are not bad otherwise, and finds the classes; returns `None`
    /// for a relation without a target. Bad rows are added to the log.
    pub(crate) fn scan(
        spec: &'a RelationSpec,
        source: &Arc<TableSource>,
        rows: &RelationRows,
        key_types: [KeyType; 2],
        folder: &Path,
        log: &mut BadRowLog,
    ) -> Result<Option<Self>> {
        let Some(columns) = ItemColumns::new(spec, source, key_types) else { return Ok(None) };
        let mut status = SpillFile::create(folder, "status-of-edges", SPILL_BUFFER)?;
        let mut targets = TargetAccumulator::new(columns.target_spec, &relation_of(&spec.name));
        let mut reader = rows.read()?;
        columns.table.for_each_batch("reading targets", &mut |batch| {
            for row in 0..batch.n_rows {
                if reader.next()?.problem().is_some() {
                    status.write(&[BAD])?;
                    continue;
                }
                if let Some((column, expected)) = columns.problem(batch, row) {
                    status.write(&[BAD])?;
                    log.add(BadRowKind::WrongType, || {
                        let found = batch.cell(column, row).shown();
                        batch.bad_row(row, &columns.table.columns[column], expected, found)
                    });
                    continue;
                }
                status.write(&[GOOD])?;
                targets.add(batch, row, &columns.target)?;
            }
            source.sources.limit().check_values(&source.label, targets.heap_bytes())?;
            Ok(ControlFlow::Continue(()))
        })?;
        let mut notes = targets.notes();
        let numbers = spec.columns_of_edges().into_iter().map(|(_, column)| column);
        let own: Vec<&str> = numbers.chain(spec.columns.iter().map(|of| of.column.as_str())).collect();
        for column in columns.target_spec.columns() {
            if own.contains(&column) {
                notes.push(format!(
                    "{}, column {column:?}: it is a column of the edges and a target, so they have the answer",
                    source.label
                ));
            }
        }
        let lacks_targets = !targets.has_targets();
        let fitted = targets.finish();
        Ok(Some(Self { columns, status: status.finish()?, fitted, lacks_targets, notes }))
    }

    /// Returns the name of the table in messages.
    pub(crate) fn label(&self) -> String {
        relation_of(&self.columns.spec.name)
    }

    /// Writes the edges with targets as the links of the set, and returns those that are not in its graph. The relation is written
    /// after them.
    pub(crate) fn write(
        self,
        set: &mut SetWriter,
        types: &NodeTypes,
        rows: &RelationRows,
        ids: [&RowIds; 2],
    ) -> Result<WrittenItems> {
        let Self { columns, status, fitted, .. } = self;
        let spec = columns.spec;
        let ends = [types.require(&spec.src.node_type)?, types.require(&spec.dst.node_type)?];
        let first = ends.map(|node_type| types.range(node_type).start);
        let dim = rows.dim_of_features();
        let mut features = Vec::new();
        let mut links = set.links(fitted.element_type(), fitted.names().len(), dim, rows.times.is_some())?;
        let mut encoder = TargetEncoder::new(&fitted);
        let mut reader: RowReader = rows.read()?;
        let mut statuses = status.read(SPILL_BUFFER)?;
        let mut pairs = Vec::new();
        let is_by_time = matches!(spec.split, Some(SplitSpec::Time(_)));
        let mut n_links = 0_u32;
        let mut n_in_part = [0_u64; 3];
        columns.table.for_each_batch("writing targets of edges", &mut |batch| {
            for row in 0..batch.n_rows {
                let edge = reader.next()?;
                if statuses.read_u8()? == BAD {
                    continue;
                }
                let (Some(src), Some(dst)) = (ids[0].id_of(edge.rows[0]), ids[1].id_of(edge.rows[1])) else {
                    continue;
                };
                // An edge without a target is a link in no part, which can be predicted.
                let target = encoder.encode(batch, row, &columns.target);
                let has_target = target.has_any();
                target.push(&mut links.values)?;
                links.ends[0].push(&[first[0] + src])?;
                links.ends[1].push(&[first[1] + dst])?;
                if let Some(array) = &mut links.features {
                    rows.features_of(&edge, &mut features);
                    array.push(&features)?;
                }
                if let (Some(array), Some(time)) = (&mut links.times, edge.time) {
                    array.push(&[time])?;
                }
                let part = columns.part_of(batch, row).ok().flatten();
                if let Some(part) = part.filter(|_| has_target) {
                    links.split[part].push(&[n_links])?;
                    n_in_part[part] += 1;
                    // Training edges stay in the graph. So do those of a split by time, which cuts the messages of each phase.
                    let is_held_out = part != 0 && !is_by_time;
                    pairs.extend(is_held_out.then(|| pair_key(src, dst)));
                }
                n_links += 1;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        set.add_links(&spec.name, spec.reverse.as_deref(), links, fitted.names().len(), fitted.names())?;
        pairs.sort_unstable();
        pairs.dedup();
        let [n_train, n_val, n_test] = n_in_part;
        let split = ImportedSplit { name: spec.name.clone(), n_train, n_val, n_test };
        let held_out = HeldOutEdges { pairs, has_one_type: ends[0] == ends[1], status };
        Ok(WrittenItems { held_out, split: spec.split.is_some().then_some(split) })
    }
}

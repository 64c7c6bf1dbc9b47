//! Rows of tables with the key of a node that the set already has: they must have the node's features, time and target.

use std::ops::ControlFlow;

use kiln_feature::Targets;
use kiln_graph::NodeId;

use crate::bad_rows::{BadRowKind, BadRowLog};
use crate::feature_columns::RowEncoder;
use crate::join::EndRows;
use crate::key::key_of;
use crate::known_nodes::KnownNodes;
use crate::node_table::NodeTable;
use crate::spill::SPILL_BUFFER;
use crate::table::{Cell, TableBatch};
use crate::target::{EncodedTarget, TargetEncoder};
use crate::{BadRow, FittedColumn, FittedNodeType, Result};

const OTHER_VALUE: &str = "the value of the node of this key in the set";
const NEW_TARGET: &str = "none, because the node has no target in the set, and nodes of the set keep theirs: leave the value \
                          empty, or import all tables again";

/// The rows with the key of a known node.
#[derive(Debug, Default)]
pub(crate) struct KnownRows {
    /// The number of rows with the features, the time and the target of their node, or without a target.
    pub(crate) n_same: u64,
    /// The rows with others.
    pub(crate) differing: BadRowLog,
    pub(crate) n_differing: u64,
    /// The number of these that have a target where the node has none.
    pub(crate) n_new_targets: u64,
    /// The number of rows with the features, the time and the target of their node that have another part of the split.
    pub(crate) n_other_parts: u64,
}

/// What of a row differs from its node.
#[derive(Debug, Clone, Copy)]
enum Difference {
    /// The value in the column at a position in the table.
    Value(usize),
    /// The target in the column at a position in the table, which the node does not have.
    NewTarget(usize),
    /// Nothing but the part of the split, which has no effect.
    Part,
}

impl KnownRows {
    /// Reads the table and compares its rows with the known nodes. `first_rows` has the first row with the key of each row, of
    /// which the first ones are the known nodes.
    pub(crate) fn compare(
        table: &NodeTable<'_>,
        nodes: &KnownNodes<'_>,
        fitted: &FittedNodeType,
        first_rows: &EndRows,
    ) -> Result<Self> {
        let mut first_rows = first_rows.file.read_from(4 * u64::from(nodes.len()), SPILL_BUFFER)?;
        let mut comparison = Comparison::new(table, nodes, fitted);
        let mut found = Self::default();
        table.table.for_each_batch("reading known keys", &mut |batch| {
            let mut rows = Vec::new();
            let mut known = Vec::new();
            for row in 0..batch.n_rows {
                // The marks of rows without a key are behind all rows.
                let first = first_rows.read_u32()?;
                if first < nodes.len() {
                    rows.push(row);
                    known.push(first as usize);
                }
            }
            comparison.visit(batch, &rows, &known, &mut |row, difference| match difference {
                None => found.n_same += 1,
                Some(Difference::Part) => {
                    found.n_same += 1;
                    found.n_other_parts += 1;
                }
                Some(Difference::Value(column)) => {
                    found.n_differing += 1;
                    let example = || example(table, batch, row, column, OTHER_VALUE);
                    found.differing.add(BadRowKind::Duplicate, example);
                }
                Some(Difference::NewTarget(column)) => {
                    found.n_differing += 1;
                    found.n_new_targets += 1;
                    let example = || example(table, batch, row, column, NEW_TARGET);
                    found.differing.add(BadRowKind::Duplicate, example);
                }
            })?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}

/// Compares rows with known nodes.
struct Comparison<'a> {
    table: &'a NodeTable<'a>,
    nodes: &'a KnownNodes<'a>,
    encoder: RowEncoder,
    /// The position in the table and the width of the features of each column.
    columns: Vec<(usize, usize)>,
    target: Option<TargetEncoder>,
}

impl<'a> Comparison<'a> {
    fn new(table: &'a NodeTable<'a>, nodes: &'a KnownNodes<'a>, fitted: &FittedNodeType) -> Self {
        let widths = fitted.columns.iter().map(FittedColumn::width);
        Self {
            table,
            nodes,
            encoder: RowEncoder::new(&fitted.columns),
            columns: table.features.positions().iter().copied().zip(widths).collect(),
            target: fitted.target.as_ref().filter(|_| !table.target.is_empty()).map(TargetEncoder::new),
        }
    }

    /// Calls `visit` with each row and its first difference from the known node.
    fn visit(
        &mut self,
        batch: &TableBatch,
        rows: &[usize],
        known: &[usize],
        visit: &mut dyn FnMut(usize, Option<Difference>),
    ) -> Result<()> {
        let dim = self.encoder.dim;
        let mut known = known.iter();
        let Self { table, nodes, encoder, columns, target } = self;
        encoder.encode(batch, table.features.positions(), rows, |rows, values| {
            for (position, (row, node)) in rows.iter().zip(known.by_ref()).enumerate() {
                let found = &values[dim * position..dim * (position + 1)];
                let features = &nodes.features[dim * node..dim * (node + 1)];
                let of_features = first_difference(columns, found, features).map(Difference::Value);
                let of_target = target.as_mut().and_then(|target| {
                    let found = target.encode(batch, *row, &table.target);
                    target_difference(found, nodes, *node, &table.target)
                });
                let difference = of_features
                    .or_else(|| time_difference(table, batch, *row, nodes, *node))
                    .or(of_target)
                    .or_else(|| has_other_part(table, batch, *row, nodes, *node).then_some(Difference::Part));
                visit(*row, difference);
            }
            Ok(())
        })
    }
}

/// Returns the position in the table of the first column with other features.
fn first_difference(columns: &[(usize, usize)], found: &[f32], expected: &[f32]) -> Option<usize> {
    let differing = found.iter().zip(expected).position(|(found, expected)| found != expected)?;
    let mut end = 0;
    let column = columns.iter().find(|(_, width)| {
        end += width;
        differing < end
    });
    column.map(|(position, _)| *position)
}

/// Returns the difference of a time, by which the node would be known earlier or later than in the set.
fn time_difference(
    table: &NodeTable<'_>,
    batch: &TableBatch,
    row: usize,
    nodes: &KnownNodes<'_>,
    node: usize,
) -> Option<Difference> {
    let known = nodes.times?[node];
    let (column, _) = table.time?;
    let found = table.time_of(batch, row)?;
    (found != known).then_some(Difference::Value(column))
}

/// Returns the first difference of a target, whose columns have these positions in the table. A missing one is none.
fn target_difference(
    found: EncodedTarget<'_>,
    nodes: &KnownNodes<'_>,
    node: usize,
    columns: &[usize],
) -> Option<Difference> {
    if !found.has_any() {
        return None;
    }
    let targets = &nodes.targets?.values;
    let is_new = !targets.has_any(NodeId(node as u32));
    let (position, is_new) = match (found, targets) {
        (EncodedTarget::Class(class), Targets::Classes(known)) => {
            let known = *known.as_slice().get(node)?;
            (known != class).then_some((0, is_new))?
        }
        (EncodedTarget::Numbers(found), Targets::Values(known)) => {
            let known = &known.as_numbers()?[found.len() * node..];
            let position =
                found.iter().zip(known).position(|(found, known)| !found.is_nan() && found != known)?;
            (position, known[position].is_nan())
        }
        (EncodedTarget::Labels(found), Targets::Values(known)) => {
            let known = &known.as_labels()?[found.len() * node..found.len() * (node + 1)];
            (found != known).then_some((0, is_new))?
        }
        _ => return None,
    };
    let column = columns[position];
    Some(if is_new { Difference::NewTarget(column) } else { Difference::Value(column) })
}

/// Returns true if the row states another part of the split than that of the known node. Nodes without a target are in no part.
fn has_other_part(
    table: &NodeTable<'_>,
    batch: &TableBatch,
    row: usize,
    nodes: &KnownNodes<'_>,
    node: usize,
) -> bool {
    let (Some(split), Some(targets)) = (&table.spec.split, nodes.targets) else { return false };
    let cells: Vec<Cell<'_>> = table.split.iter().map(|column| batch.cell(*column, row)).collect();
    let mut buffer = String::new();
    let key = key_of(&batch.cell(table.key, row), table.spec.key_type, &mut buffer);
    let Ok(Some(part)) = split.part_of(&cells, key.ok().flatten().unwrap_or_default()) else { return false };
    let id = NodeId(nodes.first + node as u32);
    // An import writes the nodes of each part in ascending order.
    let known = targets.split.parts().iter().position(|(_, nodes)| nodes.binary_search(&id).is_ok());
    targets.values.has_any(NodeId(node as u32)) && known != Some(part)
}

fn example(table: &NodeTable<'_>, batch: &TableBatch, row: usize, column: usize, expected: &str) -> BadRow {
    let name = &table.table.columns[column];
    batch.bad_row(row, name, expected, batch.cell(column, row).shown())
}

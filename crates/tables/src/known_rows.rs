//! Rows of tables with the key of a node that the set already has: they must say of it what the set does.

use std::ops::ControlFlow;

use crate::bad_rows::{BadRowKind, BadRowLog};
use crate::join::EndRows;
use crate::known_nodes::KnownNodes;
use crate::node_table::NodeTable;
use crate::node_writer::RowEncoder;
use crate::spill::SPILL_BUFFER;
use crate::table::TableBatch;
use crate::target::{EncodedTarget, TargetEncoder};
use crate::{BadRow, FittedColumn, FittedNodeType, Result};

/// The rows with the key of a known node.
#[derive(Debug, Default)]
pub(crate) struct KnownRows {
    /// The number of rows with the features and the target of their node, or without a target.
    pub(crate) n_same: u64,
    /// The rows with others.
    pub(crate) differing: BadRowLog,
    pub(crate) n_differing: u64,
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
            comparison.visit(batch, &rows, &known, &mut |batch, row, difference| match difference {
                None => found.n_same += 1,
                Some(column) => {
                    found.n_differing += 1;
                    found.differing.add(BadRowKind::Duplicate, || example(table, batch, row, column));
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
            encoder: RowEncoder::new(fitted),
            columns: table.features.iter().copied().zip(widths).collect(),
            target: fitted.target.as_ref().filter(|_| !table.target.is_empty()).map(TargetEncoder::new),
        }
    }

    /// Calls `visit` with each row and the position of its first column that differs from the known node.
    fn visit(
        &mut self,
        batch: &TableBatch,
        rows: &[usize],
        known: &[usize],
        visit: &mut dyn FnMut(&TableBatch, usize, Option<usize>),
    ) -> Result<()> {
        let dim = self.encoder.dim;
        let mut known = known.iter();
        let Self { table, nodes, encoder, columns, target } = self;
        encoder.encode(batch, &table.features, rows, |rows, values| {
            for (position, (row, node)) in rows.iter().zip(known.by_ref()).enumerate() {
                let found = &values[dim * position..dim * (position + 1)];
                let difference =
                    first_difference(columns, found, &nodes.features[dim * node..dim * (node + 1)]);
                let of_target = target.as_mut().and_then(|target| {
                    let found = target.encode(batch, *row, &table.target);
                    target_difference(found, nodes, *node).map(|column| table.target[column])
                });
                visit(batch, *row, difference.or(of_target));
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

/// Returns the position, among the columns of the targets, of the first one with another target. A missing one is none.
fn target_difference(found: EncodedTarget<'_>, nodes: &KnownNodes<'_>, node: usize) -> Option<usize> {
    use kiln_feature::Targets;
    if !found.has_any() {
        return None;
    }
    match (found, &nodes.targets?.values) {
        (EncodedTarget::Class(class), Targets::Classes(known)) => {
            (known.as_slice().get(node) != Some(&class)).then_some(0)
        }
        (EncodedTarget::Numbers(found), Targets::Values(known)) => {
            let known = &known.as_numbers()?[found.len() * node..];
            found.iter().zip(known).position(|(found, known)| !found.is_nan() && found != known)
        }
        (EncodedTarget::Labels(found), Targets::Values(known)) => {
            let known = &known.as_labels()?[found.len() * node..found.len() * (node + 1)];
            (found != known).then_some(0)
        }
        _ => None,
    }
}

fn example(table: &NodeTable<'_>, batch: &TableBatch, row: usize, column: usize) -> BadRow {
    let name = &table.table.columns[column];
    let found = batch.cell(column, row).shown();
    batch.bad_row(row, name, "the value of the node of this key in the set", found)
}

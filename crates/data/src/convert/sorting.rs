//! Sorts one bucket in memory: edges by destination, then by source, then by position in the list.

use std::ops::Range;

use kiln_graph::{Duplicates, SelfLoops};
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter};
use kiln_store::progress::Progress;

use super::csc_rows::CscRows;
use super::options::ConvertOptions;
use crate::edges::ColumnFormat;
use crate::graph_folder::start_column;
use crate::{Error, Result};

/// An edge of the graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Edge<'a> {
    pub(super) src: u32,
    pub(super) dst: u32,
    /// The rows of the edge in all columns, one after the other; empty without columns.
    pub(super) row: &'a [u8],
}

/// The edges of one bucket. The buffers are reused for the next bucket.
pub(super) struct Sorter {
    /// The number of bytes per edge in all columns.
    row_bytes: usize,
    first_node: usize,
    slots: Slots,
    n_edges: usize,
    n_put: usize,
    /// The rows of the bucket's edges, in the order of the list.
    rows: Vec<u8>,
}

/// The bucket's edges, grouped by destination: one slot per edge.
enum Slots {
    /// The source of each edge. Used for edges without columns.
    Srcs(Vec<u32>),
    /// A key for each edge with columns: the source in the upper 32 bits, and the index of its row in the lower 32 bits.
    Keys(Vec<u64>),
}

impl Sorter {
    /// Returns the number of bytes of memory that the sorter needs for each edge.
    pub(super) fn edge_bytes(row_bytes: usize) -> u64 {
        if row_bytes == 0 { 4 } else { 8 + row_bytes as u64 }
    }

    /// Allocates the buffers for buckets of up to `most_edges` edges.
    pub(super) fn new(row_bytes: usize, most_edges: usize) -> Self {
        Self {
            row_bytes,
            first_node: 0,
            slots: match row_bytes == 0 {
                true => Slots::Srcs(Vec::with_capacity(most_edges)),
                false => Slots::Keys(Vec::with_capacity(most_edges)),
            },
            n_edges: 0,
            n_put: 0,
            rows: Vec::with_capacity(row_bytes * most_edges),
        }
    }

    /// Starts a bucket: replaces the in-degree of each of its nodes by a cursor, the slot of the node's next edge.
    pub(super) fn start(&mut self, counts: &mut [u64], first_node: usize) {
        let mut n_before = 0;
        for count in counts {
            n_before += std::mem::replace(count, n_before);
        }
        (self.first_node, self.n_edges, self.n_put) = (first_node, n_before as usize, 0);
        self.rows.clear();
        match &mut self.slots {
            Slots::Srcs(srcs) => {
                srcs.clear();
                srcs.resize(self.n_edges, 0);
            }
            Slots::Keys(keys) => {
                keys.clear();
                keys.resize(self.n_edges, 0);
            }
        }
    }

    /// Stores an edge in its destination's next slot.
    pub(super) fn put(&mut self, cursors: &mut [u64], edge: Edge<'_>) -> Result<()> {
        let cursor = cursors.get_mut(edge.dst as usize - self.first_node).ok_or_else(changed)?;
        let slot = *cursor as usize;
        if slot >= self.n_edges || self.n_put >= self.n_edges {
            return Err(changed());
        }
        match &mut self.slots {
            Slots::Srcs(srcs) => srcs[slot] = edge.src,
            Slots::Keys(keys) => keys[slot] = u64::from(edge.src) << 32 | self.n_put as u64,
        }
        self.rows.extend_from_slice(edge.row);
        *cursor += 1;
        self.n_put += 1;
        Ok(())
    }

    /// Sorts each node's edges and appends them to the arrays. Each cursor is replaced by the end of the node's edges
    /// in the arrays.
    pub(super) fn finish(
        &mut self,
        cursors: &mut [u64],
        options: &ConvertOptions,
        output: &mut Output,
        progress: &Progress,
    ) -> Result<()> {
        if self.n_put != self.n_edges {
            return Err(changed());
        }
        let mut start = 0;
        let mut counter = progress.counter();
        for (node, cursor) in (self.first_node as u32..).zip(cursors) {
            let end = *cursor as usize;
            if end < start {
                return Err(changed());
            }
            let ConvertOptions { duplicates, symmetrize, self_loops: loops, .. } = *options;
            let node = Node { node, duplicates, symmetrize, loops };
            self.append(&node, start..end, output)?;
            *cursor = output.n_edges() as u64;
            counter.add((end - start) as u64);
            start = end;
        }
        Ok(())
    }

    /// Sorts the edges of one node, which are in the given slots, and appends them to the arrays.
    fn append(&mut self, node: &Node, slots: Range<usize>, output: &mut Output) -> Result<()> {
        let dst = node.node;
        match &mut self.slots {
            Slots::Srcs(srcs) => {
                srcs[slots.clone()].sort_unstable();
                let edges = srcs[slots].iter().map(|&src| Edge { src, dst, row: &[] });
                node.append(edges, output)
            }
            Slots::Keys(keys) => {
                keys[slots.clone()].sort_unstable();
                let edges = keys[slots].iter().map(|&key| {
                    let row = &self.rows[key as u32 as usize * self.row_bytes..][..self.row_bytes];
                    Edge { src: (key >> 32) as u32, dst, row }
                });
                node.append(edges, output)
            }
        }
    }
}

/// A destination and the options for its edges.
struct Node {
    node: u32,
    duplicates: Duplicates,
    symmetrize: bool,
    loops: SelfLoops,
}

impl Node {
    /// Appends a node's edges, which ascend by source. Removes duplicates and adds a self loop if the options require
    /// it.
    fn append<'a>(&self, edges: impl Iterator<Item = Edge<'a>>, output: &mut Output) -> Result<()> {
        let mut needs_loop = self.loops == SelfLoops::Add;
        let mut last = None;
        for edge in edges {
            if needs_loop && edge.src >= self.node {
                needs_loop = false;
                if edge.src > self.node {
                    output.push_loop(self.node)?;
                }
            }
            if self.duplicates == Duplicates::Remove && last == Some(edge.src) {
                // An edge of the list with its reverse is removed at both ends, and counts at the larger one.
                output.n_duplicates += u64::from(!self.symmetrize || edge.src <= self.node);
                continue;
            }
            last = Some(edge.src);
            output.push(edge)?;
        }
        if needs_loop { output.push_loop(self.node) } else { Ok(()) }
    }
}

/// The writers of the edge arrays.
pub(super) struct Output {
    rows: CscRows,
    indices: ArrayWriter,
    columns: Vec<OutputColumn>,
    /// The rows of a self loop that is added.
    loop_row: Vec<u8>,
    /// The number of edges of the list that were removed because they repeat an earlier one.
    pub(super) n_duplicates: u64,
}

/// The writer of a column.
struct OutputColumn {
    array: ArrayWriter,
    row_bytes: usize,
}

impl Output {
    pub(super) fn create(set: &FolderWriter, rows: CscRows, formats: &[ColumnFormat]) -> Result<Self> {
        let mut columns = Vec::with_capacity(formats.len());
        let mut loop_row = Vec::new();
        for format in formats {
            let ColumnFormat { name, element, width } = format;
            let array = start_column(set, rows.layout(), rows.relation.unwrap_or(0), name, *element, *width)?;
            columns.push(OutputColumn { array, row_bytes: format.row_bytes() });
            loop_row.extend(format.row_of_added_loop().unwrap_or_default());
        }
        let indices = set.vector(rows.file("indices.npy"), ElementType::U32)?;
        Ok(Self { rows, indices, columns, loop_row, n_duplicates: 0 })
    }

    fn n_edges(&self) -> usize {
        self.indices.n_values()
    }

    fn push(&mut self, edge: Edge<'_>) -> Result<()> {
        // The sum fits in 32 bits: `NodeTypes` checks the number of all nodes.
        self.indices.push(&[self.rows.first_src + edge.src])?;
        push_row(&mut self.columns, edge.row)
    }

    /// Appends a self loop that the list does not have.
    fn push_loop(&mut self, node: u32) -> Result<()> {
        self.indices.push(&[self.rows.first_src + node])?;
        push_row(&mut self.columns, &self.loop_row)
    }

    /// Finishes the arrays, writes the offsets of each node's edges, and returns the number of edges.
    pub(super) fn finish(self, ends: &[u64], set: &mut FolderWriter) -> Result<usize> {
        let n_edges = self.n_edges();
        set.add(self.indices)?;
        for column in self.columns {
            set.add(column.array)?;
        }
        let mut indptr = set.vector(self.rows.file("indptr.npy"), ElementType::U64)?;
        indptr.push(&[0_u64])?;
        indptr.push(ends)?;
        set.add(indptr)?;
        Ok(n_edges)
    }
}

/// Appends the rows of an edge, which are one after the other, to their columns.
fn push_row(columns: &mut [OutputColumn], mut row: &[u8]) -> Result<()> {
    for column in columns {
        let (bytes, rest) = row.split_at(column.row_bytes);
        column.array.push_bytes(bytes)?;
        row = rest;
    }
    Ok(())
}

/// Returns the error for an edge list whose edges have changed since the first reading counted them.
fn changed() -> Error {
    Error::BadParameter {
        what: "a later reading of the edge list",
        expected: "the edges of the first: do not change the list during a conversion",
        got: "different".into(),
    }
}

//! Sorts one bucket in memory: edges by destination, then by source, then by position in the list.

use std::ops::Range;

use kiln_graph::{Duplicates, SelfLoops};
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter};

use super::csc_rows::CscRows;
use super::options::ConvertOptions;
use crate::edges::EdgeData;
use crate::{Error, Result};

/// An edge of the graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Edge {
    pub(super) src: u32,
    pub(super) dst: u32,
    /// The weight; 1 if the source has no weights.
    pub(super) weight: f32,
    /// The type; 0 if the source has no types.
    pub(super) ty: u8,
}

/// The edges of one bucket. The buffers are reused for the next bucket.
pub(super) struct Sorter {
    data: EdgeData,
    first_node: usize,
    slots: Slots,
    n_edges: usize,
    n_put: usize,
    /// The weights of the bucket's edges, in the order of the list.
    weights: Vec<f32>,
    edge_types: Vec<u8>,
}

/// The bucket's edges, grouped by destination: one slot per edge.
enum Slots {
    /// The source of each edge. Used for edges without weights and types.
    Srcs(Vec<u32>),
    /// A key for each edge with weights or types: the source in the upper 32 bits, and the index of its weight and type
    /// in the lower 32 bits.
    Keys(Vec<u64>),
}

impl Sorter {
    /// Returns the number of bytes of memory that the sorter needs for each edge.
    pub(super) fn edge_bytes(data: EdgeData) -> u64 {
        let bytes_of_data = if data.weights { 4 } else { 0 } + u64::from(data.edge_types);
        if data == EdgeData::default() { 4 } else { 8 + bytes_of_data }
    }

    /// Allocates the buffers for buckets of up to `most_edges` edges.
    pub(super) fn new(data: EdgeData, most_edges: usize) -> Self {
        Self {
            data,
            first_node: 0,
            slots: match data == EdgeData::default() {
                true => Slots::Srcs(Vec::with_capacity(most_edges)),
                false => Slots::Keys(Vec::with_capacity(most_edges)),
            },
            n_edges: 0,
            n_put: 0,
            weights: Vec::with_capacity(if data.weights { most_edges } else { 0 }),
            edge_types: Vec::with_capacity(if data.edge_types { most_edges } else { 0 }),
        }
    }

    /// Starts a bucket: replaces the in-degree of each of its nodes by a cursor, the slot of the node's next edge.
    pub(super) fn start(&mut self, counts: &mut [u64], first_node: usize) {
        let mut n_before = 0;
        for count in counts {
            n_before += std::mem::replace(count, n_before);
        }
        (self.first_node, self.n_edges, self.n_put) = (first_node, n_before as usize, 0);
        self.weights.clear();
        self.edge_types.clear();
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
    pub(super) fn put(&mut self, cursors: &mut [u64], edge: Edge) -> Result<()> {
        let cursor = cursors.get_mut(edge.dst as usize - self.first_node).ok_or_else(changed)?;
        let slot = *cursor as usize;
        if slot >= self.n_edges || self.n_put >= self.n_edges {
            return Err(changed());
        }
        match &mut self.slots {
            Slots::Srcs(srcs) => srcs[slot] = edge.src,
            Slots::Keys(keys) => keys[slot] = u64::from(edge.src) << 32 | self.n_put as u64,
        }
        if self.data.weights {
            self.weights.push(edge.weight);
        }
        if self.data.edge_types {
            self.edge_types.push(edge.ty);
        }
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
    ) -> Result<()> {
        if self.n_put != self.n_edges {
            return Err(changed());
        }
        let mut start = 0;
        for (node, cursor) in (self.first_node as u32..).zip(cursors) {
            let end = *cursor as usize;
            if end < start {
                return Err(changed());
            }
            let node = Node { node, duplicates: options.duplicates, loops: options.self_loops };
            self.append(&node, start..end, output)?;
            *cursor = output.n_edges() as u64;
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
                let edges = srcs[slots].iter().map(|&src| Edge { src, dst, weight: 1.0, ty: 0 });
                node.append(edges, output)
            }
            Slots::Keys(keys) => {
                keys[slots.clone()].sort_unstable();
                let edges = keys[slots].iter().map(|&key| {
                    let position = key as u32 as usize;
                    let weight = self.weights.get(position).copied().unwrap_or(1.0);
                    let ty = self.edge_types.get(position).copied().unwrap_or(0);
                    Edge { src: (key >> 32) as u32, dst, weight, ty }
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
    loops: SelfLoops,
}

impl Node {
    /// Appends a node's edges, which ascend by source. Removes duplicates and adds a self loop if the options require
    /// it.
    fn append(&self, edges: impl Iterator<Item = Edge>, output: &mut Output) -> Result<()> {
        let added = Edge { src: self.node, dst: self.node, weight: 1.0, ty: 0 };
        let mut needs_loop = self.loops == SelfLoops::Add;
        let mut last = None;
        for edge in edges {
            if needs_loop && edge.src >= self.node {
                needs_loop = false;
                if edge.src > self.node {
                    output.push(added)?;
                }
            }
            if self.duplicates == Duplicates::Remove && last == Some(edge.src) {
                continue;
            }
            last = Some(edge.src);
            output.push(edge)?;
        }
        if needs_loop { output.push(added) } else { Ok(()) }
    }
}

/// The writers of the edge arrays.
pub(super) struct Output {
    rows: CscRows,
    indices: ArrayWriter,
    weights: Option<ArrayWriter>,
    edge_types: Option<ArrayWriter>,
}

impl Output {
    pub(super) fn create(set: &FolderWriter, rows: CscRows, data: EdgeData) -> Result<Self> {
        let weights = data.weights.then(|| set.vector(rows.file("weights.npy"), ElementType::F32));
        let edge_types = data.edge_types.then(|| set.vector(rows.file("edge_types.npy"), ElementType::U8));
        Ok(Self {
            rows,
            indices: set.vector(rows.file("indices.npy"), ElementType::U32)?,
            weights: weights.transpose()?,
            edge_types: edge_types.transpose()?,
        })
    }

    fn n_edges(&self) -> usize {
        self.indices.n_values()
    }

    fn push(&mut self, edge: Edge) -> Result<()> {
        // The sum fits in 32 bits: `NodeTypes` checks the number of all nodes.
        self.indices.push(&[self.rows.first_src + edge.src])?;
        if let Some(weights) = &mut self.weights {
            weights.push(&[edge.weight])?;
        }
        if let Some(types) = &mut self.edge_types {
            types.push(&[edge.ty])?;
        }
        Ok(())
    }

    /// Finishes the arrays, writes the offsets of each node's edges, and returns the number of edges.
    pub(super) fn finish(self, ends: &[u64], set: &mut FolderWriter) -> Result<usize> {
        let (n_edges, rows) = (self.n_edges(), self.rows);
        set.add(self.indices)?;
        for array in [self.weights, self.edge_types].into_iter().flatten() {
            set.add(array)?;
        }
        let mut indptr = set.vector(rows.file("indptr.npy"), ElementType::U64)?;
        indptr.push(&[0_u64])?;
        indptr.push(ends)?;
        set.add(indptr)?;
        Ok(n_edges)
    }
}

/// Returns the error for an edge list whose edges have changed since the first reading counted them.
fn changed() -> Error {
    Error::BadParameter {
        what: "a later reading of the edge list",
        expected: "the edges of the first: do not change the list during a conversion",
        got: "different".into(),
    }
}

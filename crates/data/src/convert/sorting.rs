//! One bucket in memory: its edges by destination, then by source, then in the order of the list.

use std::ops::Range;

use kiln_graph::{Duplicates, SelfLoops};
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter};

use super::ConvertOptions;
use crate::edges::EdgeData;
use crate::{Error, Result};

/// An edge of the graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Edge {
    pub(super) src: u32,
    pub(super) dst: u32,
    /// 1 for a source without weights.
    pub(super) weight: f32,
    /// 0 for a source without types.
    pub(super) ty: u8,
}

/// The edges of one bucket; the memory is used again for the next.
pub(super) struct Sorter {
    data: EdgeData,
    first_node: usize,
    slots: Slots,
    n_edges: usize,
    n_put: usize,
    /// In the order in which the edges came.
    weights: Vec<f32>,
    edge_types: Vec<u8>,
}

/// The edges by destination.
enum Slots {
    /// The sources of edges without data.
    Srcs(Vec<u32>),
    /// The source in the upper half, the position in the order in which the edges came in the lower.
    Keys(Vec<u64>),
}

impl Sorter {
    /// Bytes that each edge takes.
    pub(super) fn edge_bytes(data: EdgeData) -> u64 {
        let bytes_of_data = if data.weights { 4 } else { 0 } + u64::from(data.edge_types);
        if data == EdgeData::default() { 4 } else { 8 + bytes_of_data }
    }

    /// Memory for buckets of up to `most_edges`.
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

    /// Begins a bucket: the counts of its nodes become where each one's next edge goes.
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

    /// Puts an edge where its destination's next one goes.
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

    /// Sorts each node's edges and appends them to the arrays; the cursors become where each node's edges
    /// end in the arrays.
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

    /// Sorts and appends the edges of one node, which are in these slots.
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

/// One destination and what is done to its edges.
struct Node {
    node: u32,
    duplicates: Duplicates,
    loops: SelfLoops,
}

impl Node {
    /// Appends a node's edges, which ascend.
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

/// The arrays of the edges, as they grow.
pub(super) struct Output {
    indices: ArrayWriter,
    weights: Option<ArrayWriter>,
    edge_types: Option<ArrayWriter>,
}

impl Output {
    pub(super) fn create(set: &FolderWriter, data: EdgeData) -> Result<Self> {
        let weights = data.weights.then(|| set.vector("weights.npy", ElementType::F32));
        let edge_types = data.edge_types.then(|| set.vector("edge_types.npy", ElementType::U8));
        Ok(Self {
            indices: set.vector("indices.npy", ElementType::U32)?,
            weights: weights.transpose()?,
            edge_types: edge_types.transpose()?,
        })
    }

    fn n_edges(&self) -> usize {
        self.indices.n_values()
    }

    fn push(&mut self, edge: Edge) -> Result<()> {
        self.indices.push(&[edge.src])?;
        if let Some(weights) = &mut self.weights {
            weights.push(&[edge.weight])?;
        }
        if let Some(types) = &mut self.edge_types {
            types.push(&[edge.ty])?;
        }
        Ok(())
    }

    /// Finishes the arrays and writes where each node's edges start; gives the number of edges.
    pub(super) fn finish(self, ends: &[u64], set: &mut FolderWriter) -> Result<usize> {
        let n_edges = self.n_edges();
        set.add(self.indices)?;
        for array in [self.weights, self.edge_types].into_iter().flatten() {
            set.add(array)?;
        }
        let mut indptr = set.vector("indptr.npy", ElementType::U64)?;
        indptr.push(&[0_u64])?;
        indptr.push(ends)?;
        set.add(indptr)?;
        Ok(n_edges)
    }
}

/// The list gave other edges than when they were counted.
fn changed() -> Error {
    Error::BadParameter {
        what: "the edge list, read twice,",
        expected: "the same both times: nothing may change it meanwhile",
        got: "another list the second time".into(),
    }
}

//! Helpers of the builder: the expansion of an edge list, origin codes, and the removal of duplicates.

use std::ops::Range;

use rayon::prelude::*;

use crate::{SelfLoops, SharedArray};

/// The edges of the graph to build, each with the code of its origin: `2 * i` for entry `i` of the edge
/// list, `2 * i + 1` for its reverse, `2 * len + v` for the self loop added to node `v`.
pub(crate) struct Edges<'e> {
    n_nodes: usize,
    srcs: &'e [u32],
    dsts: &'e [u32],
    directions: Directions,
    keep_loops: bool,
    /// The nodes to which a self loop is added, ascending.
    added_loops: Vec<u32>,
}

/// The edges that an entry of the edge list expands to: the edge itself, or the edge and its reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directions {
    AsGiven,
    Both,
}

impl<'e> Edges<'e> {
    /// Returns the number of nodes of the graph.
    pub(crate) fn n_nodes(&self) -> usize {
        self.n_nodes
    }

    /// Creates the edges from lists of equal length whose ids are below `n_nodes`; the caller has checked both.
    pub(crate) fn new(
        n_nodes: usize,
        srcs: &'e [u32],
        dsts: &'e [u32],
        directions: Directions,
        self_loops: SelfLoops,
    ) -> Self {
        let mut added_loops = Vec::new();
        if self_loops == SelfLoops::Add {
            let mut has_loop = vec![false; n_nodes];
            for (src, _) in srcs.iter().zip(dsts).filter(|(src, dst)| src == dst) {
                has_loop[*src as usize] = true;
            }
            added_loops.extend((0..n_nodes as u32).filter(|&node| !has_loop[node as usize]));
        }
        Self { n_nodes, srcs, dsts, directions, keep_loops: self_loops != SelfLoops::Remove, added_loops }
    }

    /// Returns an upper bound on the number of edges, before duplicates are removed.
    pub(crate) fn n_at_most(&self) -> usize {
        let directions = if self.directions == Directions::Both { 2 } else { 1 };
        directions * self.srcs.len() + self.added_loops.len()
    }

    /// Calls `visit(code, src, dst)` for each edge of a chunk.
    #[inline(always)]
    pub(crate) fn for_each_in(&self, chunk: Chunk, mut visit: impl FnMut(u64, u32, u32)) {
        let positions = chunk.range(self.srcs.len());
        let entries = self.srcs[positions.clone()].iter().zip(&self.dsts[positions.clone()]);
        for (position, (&src, &dst)) in positions.zip(entries) {
            let code = 2 * position as u64;
            if src != dst {
                visit(code, src, dst);
                if self.directions == Directions::Both {
                    visit(code + 1, dst, src);
                }
            } else if self.keep_loops {
                visit(code, src, dst);
            }
        }
        let first_loop = 2 * self.srcs.len() as u64;
        for &node in &self.added_loops[chunk.range(self.added_loops.len())] {
            visit(first_loop + u64::from(node), node, node);
        }
    }

    /// Returns the source of the edge with the given origin code.
    pub(crate) fn src(&self, code: u64) -> u32 {
        let position = code as usize / 2;
        match self.srcs.get(position) {
            Some(&src) if code.is_multiple_of(2) => src,
            Some(_) => self.dsts[position],
            None => (code - 2 * self.srcs.len() as u64) as u32,
        }
    }
}

/// One of `n_chunks` chunks of the edge list, of about equal length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk {
    pub(crate) index: usize,
    pub(crate) n_chunks: usize,
}

impl Chunk {
    /// Returns the part of the range `0..n` that belongs to this chunk.
    fn range(self, n: usize) -> Range<usize> {
        let start = |index: usize| (n as u128 * index as u128 / self.n_chunks as u128) as usize;
        start(self.index)..start(self.index + 1)
    }
}

/// Origin codes in CSC order, as `u32` if all codes fit.
pub(crate) enum Codes {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Codes {
    pub(crate) fn map<T: Send>(&self, f: impl Fn(u64) -> T + Sync) -> Vec<T> {
        match self {
            Codes::Narrow(codes) => codes.par_iter().map(|&code| f(u64::from(code))).collect(),
            Codes::Wide(codes) => codes.par_iter().map(|&code| f(code)).collect(),
        }
    }
}

impl From<Codes> for SharedArray<u64> {
    fn from(codes: Codes) -> Self {
        match codes {
            Codes::Narrow(codes) => codes.into_iter().map(u64::from).collect::<Vec<_>>().into(),
            Codes::Wide(codes) => codes.into(),
        }
    }
}

/// Removes duplicate edges from `data` and updates `indptr`. Of consecutive entries of a destination that have the same
/// source, the first is kept.
pub(crate) fn remove_duplicates<T: Copy, K: PartialEq>(
    indptr: &mut [u64],
    data: &mut Vec<T>,
    src: impl Fn(&T) -> K,
) {
    let mut n_kept = 0;
    let mut start = 0;
    for end in &mut indptr[1..] {
        let first_kept = n_kept;
        for position in start..*end as usize {
            let entry = data[position];
            if n_kept == first_kept || src(&data[n_kept - 1]) != src(&entry) {
                data[n_kept] = entry;
                n_kept += 1;
            }
        }
        start = *end as usize;
        *end = n_kept as u64;
    }
    data.truncate(n_kept);
    data.shrink_to_fit();
}

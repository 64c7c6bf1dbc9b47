use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use kiln_graph::{LocalId, NodeId};
use kiln_mem::prefetch_far;

use crate::{DamagedGraphError, Dsts, Error, Frontier, Result, Seeds};

/// Assigns local ids to nodes, or to pairs of a node and a time, in the order of their first appearance.
///
/// The table has an entry of 8 bytes for each node of the graph: the stamp of the last batch that contained the node
/// (upper half) and its local id (lower half). A new batch takes a new stamp, so the table is not cleared.
#[derive(Debug, Default)]
pub(crate) struct Relabel {
    table: Vec<u64>,
    stamp: u32,
    /// The nodes with a local id, in the order of their local ids.
    pub(crate) nodes: Vec<NodeId>,
    /// The distinct times of the batch's items; `None` without times.
    distinct_times: Option<Vec<i64>>,
    /// For each local id, the position of its time among the distinct ones; empty without times.
    times: Vec<u32>,
    trees: Trees,
    small: SmallTable,
}

/// The destinations of a hop by time: a buffer.
#[derive(Debug, Default)]
struct Trees {
    /// The end of the destinations of each time in `rows`.
    ends: Vec<u32>,
    /// The destinations of the first time, ascending, then those of the second, and so on.
    rows: Vec<u32>,
}

impl Trees {
    /// Sorts destinations by the positions of their times.
    fn sort(&mut self, n_times: usize, times: &[u32]) {
        self.ends.clear();
        self.ends.resize(n_times + 1, 0);
        for time in times {
            self.ends[*time as usize + 1] += 1;
        }
        for time in 1..=n_times {
            self.ends[time] += self.ends[time - 1];
        }
        self.rows.clear();
        self.rows.resize(times.len(), 0);
        // Each entry counts from the start of its time to its end, which is the start of the next one.
        for (row, time) in (0..).zip(times) {
            let place = &mut self.ends[*time as usize];
            self.rows[*place as usize] = row;
            *place += 1;
        }
        self.ends.truncate(n_times);
    }
}

/// A hash table from the nodes of a small tree to their numbers, with linear probing.
#[derive(Debug, Default)]
struct SmallTable {
    /// A node (upper half) and its number plus one (lower half); 0 for a free place.
    entries: Vec<u64>,
    /// The number of bits by which a hash is shifted to a place.
    shift: u32,
}

impl SmallTable {
    /// Removes all nodes and makes room for `n_nodes`, of which a quarter of the places is used at most, so that few collide.
    fn begin(&mut self, n_nodes: usize) {
        let n_places = (4 * n_nodes).next_power_of_two().max(2);
        self.entries.clear();
        self.entries.resize(n_places, 0);
        self.shift = u32::BITS - n_places.trailing_zeros();
    }

    /// Returns the number of a node, which is `new` if it has none yet.
    #[inline]
    fn number(&mut self, node: NodeId, new: u32) -> u32 {
        let mask = self.entries.len() - 1;
        // The multiplicative hash of Knuth, "The Art of Computer Programming", volume 3, section 6.4.
        let mut place = (node.0.wrapping_mul(0x9E37_79B1) >> self.shift) as usize;
        loop {
            let entry = &mut self.entries[place & mask];
            if *entry == 0 {
                *entry = u64::from(node.0) << 32 | u64::from(new + 1);
                return new;
            }
            if *entry >> 32 == u64::from(node.0) {
                return *entry as u32 - 1;
            }
            place += 1;
        }
    }
}

/// The largest number of destinations and edges of a tree that is numbered by a [`SmallTable`].
const SMALL_TREE: usize = 4096;

/// The prefetch distance in edges for random reads of the table.
const AHEAD: usize = 128;

/// The prefetch distance in destinations with times.
const ROWS_AHEAD: usize = 8;

/// The number of edges that are relabelled in one inner loop.
const CHUNK: usize = 256;

/// Returns the positions of a destination's edges.
fn edges_of(frontier: &Frontier, row: usize) -> Range<usize> {
    frontier.indptr[row] as usize..frontier.indptr[row + 1] as usize
}

impl Relabel {
    /// Begins a batch without times.
    pub(crate) fn begin(&mut self, n_nodes: usize) {
        self.nodes.clear();
        self.times.clear();
        self.distinct_times = None;
        if self.table.len() != n_nodes || self.stamp == u32::MAX {
            self.table = vec![0; n_nodes];
            self.stamp = 0;
        }
        self.stamp += 1;
    }

    /// Begins a batch and returns the local id of each seed.
    pub(crate) fn begin_seeds(&mut self, n_nodes: usize, seeds: &Seeds) -> Result<Vec<LocalId>> {
        self.begin(n_nodes);
        let mut locals = Vec::with_capacity(seeds.len());
        let out_of_range = |node, position| Error::SeedOutOfRange { node, position, n_nodes };
        let Some(times) = seeds.times() else {
            for (position, &node) in seeds.as_nodes().iter().enumerate() {
                locals.push(self.local(node).ok_or(out_of_range(node, position))?);
            }
            return Ok(locals);
        };
        let mut distinct = times.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() == 1 {
            // At one time, each node has one local id, as without times.
            for (position, &node) in seeds.as_nodes().iter().enumerate() {
                locals.push(self.local(node).ok_or(out_of_range(node, position))?);
            }
            self.times.resize(self.nodes.len(), 0);
            self.distinct_times = Some(distinct);
            return Ok(locals);
        }
        let mut known = HashMap::with_capacity(seeds.len());
        for (position, (&node, time)) in seeds.as_nodes().iter().zip(times).enumerate() {
            if n_nodes <= node.index() {
                return Err(out_of_range(node, position));
            }
            let local = *known.entry((node, time)).or_insert(LocalId(self.nodes.len() as u32));
            if local.index() == self.nodes.len() {
                self.nodes.push(node);
                self.times.push(distinct.partition_point(|other| other < time) as u32);
            }
            locals.push(local);
        }
        self.distinct_times = Some(distinct);
        Ok(locals)
    }

    /// Returns the nodes with a local id as the destinations of a hop.
    pub(crate) fn dsts(&self) -> Dsts<'_> {
        match &self.distinct_times {
            Some(distinct) => Dsts::with_times(&self.nodes, distinct, &self.times),
            None => Dsts::from(&self.nodes),
        }
    }

    /// Returns the time of each local id; `None` without times.
    pub(crate) fn src_times(&self) -> Option<Vec<i64>> {
        let distinct = self.distinct_times.as_ref()?;
        Some(self.times.iter().map(|index| distinct[*index as usize]).collect())
    }

    /// Relabels the frontier's sources, each at the time of its destination, as [`Relabel::number`] does without times.
    ///
    /// The table has room for one local id per node, so the trees of different times are numbered one after the other. They get
    /// provisional numbers, because ids ascend along the edges of all trees: the position of the edge with which a node
    /// appears first, after the known nodes.
    fn number_timed(
        &mut self,
        frontier: &Frontier,
        n_times: usize,
        layer: usize,
        file: Option<&Path>,
    ) -> Result<Vec<LocalId>> {
        let n_known = self.nodes.len();
        let n_edges = frontier.srcs.len();
        if u32::try_from(n_known + n_edges).is_err() {
            let n_edges = n_edges as u64;
            return Err(Error::BlockTooLarge { layer, n_edges });
        }
        if (u32::MAX - self.stamp) as usize <= n_times {
            self.table.fill(0);
            self.stamp = 0;
        }
        let mut indices = vec![LocalId(0); n_edges];
        let mut trees = std::mem::take(&mut self.trees);
        trees.sort(n_times, &self.times);
        let mut start = 0;
        for end in &trees.ends {
            self.number_tree(frontier, &trees.rows[start..], *end as usize - start, &mut indices)
                .map_err(|position| self.out_of_range(frontier, position, file))?;
            start = *end as usize;
        }
        self.trees = trees;
        self.nodes.reserve(n_edges);
        self.times.reserve(n_edges);
        for row in 0..n_known {
            let time = self.times[row];
            let edges = edges_of(frontier, row);
            for (position, src) in edges.clone().zip(&frontier.srcs[edges]) {
                let number = indices[position].index();
                if number == n_known + position {
                    indices[position] = LocalId(self.nodes.len() as u32);
                    self.nodes.push(*src);
                } else if n_known <= number {
                    indices[position] = indices[number - n_known];
                }
            }
            self.times.resize(self.nodes.len(), time);
        }
        Ok(indices)
    }

    /// Gives provisional numbers to the sources of a tree, whose destinations are the first `n_rows` of `rows`. The error is the
    /// position of a node that the graph does not have.
    fn number_tree(
        &mut self,
        frontier: &Frontier,
        rows: &[u32],
        n_rows: usize,
        indices: &mut [LocalId],
    ) -> std::result::Result<(), usize> {
        let n_known = self.nodes.len();
        let n_edges: usize = rows[..n_rows].iter().map(|row| edges_of(frontier, *row as usize).len()).sum();
        if n_rows + n_edges <= SMALL_TREE {
            return self.number_small_tree(frontier, &rows[..n_rows], n_edges, indices);
        }
        self.stamp += 1;
        let stamp = u64::from(self.stamp) << 32;
        for row in &rows[..n_rows] {
            self.table[self.nodes[*row as usize].index()] = stamp | u64::from(*row);
        }
        for (place, row) in rows[..n_rows].iter().enumerate() {
            if let Some(later) = rows.get(place + ROWS_AHEAD) {
                for src in &frontier.srcs[edges_of(frontier, *later as usize)] {
                    prefetch_far(&self.table, src.index());
                }
            }
            for position in edges_of(frontier, *row as usize) {
                let entry = self.table.get_mut(frontier.srcs[position].index()).ok_or(position)?;
                let is_new = *entry >> 32 != stamp >> 32;
                let number = if is_new { stamp | (n_known + position) as u64 } else { *entry };
                *entry = number;
                indices[position] = LocalId(number as u32);
            }
        }
        Ok(())
    }

    /// Gives provisional numbers as [`Relabel::number_tree`] does, by a table of the tree alone, which stays in a near cache.
    fn number_small_tree(
        &mut self,
        frontier: &Frontier,
        rows: &[u32],
        n_edges: usize,
        indices: &mut [LocalId],
    ) -> std::result::Result<(), usize> {
        let n_known = self.nodes.len();
        let mut small = std::mem::take(&mut self.small);
        small.begin(rows.len() + n_edges);
        for row in rows {
            small.number(self.nodes[*row as usize], *row);
        }
        let mut found = Ok(());
        'rows: for row in rows {
            for position in edges_of(frontier, *row as usize) {
                let src = frontier.srcs[position];
                if self.table.len() <= src.index() {
                    found = Err(position);
                    break 'rows;
                }
                indices[position] = LocalId(small.number(src, (n_known + position) as u32));
            }
        }
        self.small = small;
        found
    }

    /// Returns the error of a source that the graph does not have.
    fn out_of_range(&self, frontier: &Frontier, position: usize, file: Option<&Path>) -> Error {
        Error::DamagedGraph(DamagedGraphError::NeighborOutOfRange {
            node: frontier.srcs[position],
            edge: frontier.edge_ids[position].0,
            n_nodes: self.table.len(),
            file: file.map(Path::to_owned),
        })
    }

    /// Returns the node's local id and assigns one if necessary; `None` if the graph does not have the node.
    #[inline]
    pub(crate) fn local(&mut self, node: NodeId) -> Option<LocalId> {
        let entry = self.table.get_mut(node.index())?;
        if (*entry >> 32) as u32 != self.stamp {
            *entry = u64::from(self.stamp) << 32 | self.nodes.len() as u64;
            self.nodes.push(node);
        }
        Some(LocalId(*entry as u32))
    }

    /// Relabels the frontier's sources, after its destinations have got their local ids. `layer` and `file`, from
    /// which the sources were read, are for errors.
    pub(crate) fn number(
        &mut self,
        frontier: &Frontier,
        layer: usize,
        file: Option<&Path>,
    ) -> Result<Vec<LocalId>> {
        let n_times = self.distinct_times.as_ref().map(Vec::len);
        if let Some(n_times) = n_times.filter(|n_times| *n_times != 1) {
            return self.number_timed(frontier, n_times, layer, file);
        }
        let srcs = &frontier.srcs;
        let mut indices = Vec::with_capacity(srcs.len());
        self.nodes.reserve(srcs.len().min(self.table.len().saturating_sub(self.nodes.len())));
        for first in (0..srcs.len()).step_by(CHUNK) {
            let n = CHUNK.min(srcs.len() - first);
            let later = &srcs[(first + AHEAD).min(srcs.len())..];
            let numbered = self.number_chunk(&srcs[first..first + n], later, &mut indices);
            numbered.map_err(|position| self.out_of_range(frontier, first + position, file))?;
        }
        if n_times.is_some() {
            self.times.resize(self.nodes.len(), 0);
        }
        Ok(indices)
    }

    /// Relabels at most `CHUNK` nodes, and prefetches the table entries of the nodes in `later`. The error is the
    /// position of a node that the graph does not have.
    ///
    /// The loop is branch-free, because a branch on whether a node is new would be unpredictable: each node is written
    /// to the next free place of `new_nodes`, which advances only for new nodes.
    fn number_chunk(
        &mut self,
        nodes: &[NodeId],
        later: &[NodeId],
        indices: &mut Vec<LocalId>,
    ) -> std::result::Result<(), usize> {
        let mut locals = [LocalId(0); CHUNK];
        let mut new_nodes = [NodeId(0); CHUNK];
        let mut n_new = 0;
        let base = u64::from(self.stamp) << 32 | self.nodes.len() as u64;
        for (position, &node) in nodes.iter().enumerate() {
            if let Some(later) = later.get(position) {
                prefetch_far(&self.table, later.index());
            }
            let entry = self.table.get_mut(node.index()).ok_or(position)?;
            let is_new = *entry >> 32 != base >> 32;
            let number = if is_new { base + n_new as u64 } else { *entry };
            *entry = number;
            locals[position] = LocalId(number as u32);
            new_nodes[n_new] = node;
            n_new += usize::from(is_new);
        }
        self.nodes.extend_from_slice(&new_nodes[..n_new]);
        indices.extend_from_slice(&locals[..nodes.len()]);
        Ok(())
    }
}

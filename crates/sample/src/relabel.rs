use std::path::Path;

use kiln_graph::{LocalId, NodeId};
use kiln_mem::prefetch_far;

use crate::relabel_timed::{TimedTable, pair};
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
    timed: TimedTable,
}

/// The prefetch distance in edges for random reads of the table.
const AHEAD: usize = 128;

/// The number of edges that are relabelled in one inner loop.
const CHUNK: usize = 256;

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
        self.timed.begin();
        self.timed.reserve(seeds.len(), std::iter::empty());
        for (position, (&node, time)) in seeds.as_nodes().iter().zip(times).enumerate() {
            let index = distinct.partition_point(|other| other < time) as u32;
            locals.push(self.local_at(node, index).ok_or(out_of_range(node, position))?);
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

    /// Returns the local id of a node at a time, a position among the distinct ones, and assigns one if necessary; `None` if the graph does not have the node.
    /// There must be room for the pair.
    #[inline]
    fn local_at(&mut self, node: NodeId, time: u32) -> Option<LocalId> {
        if self.table.len() <= node.index() {
            return None;
        }
        let local = self.timed.local(pair(node, time), self.nodes.len() as u32);
        if local.index() == self.nodes.len() {
            self.nodes.push(node);
            self.times.push(time);
        }
        Some(local)
    }

    /// Relabels the frontier's sources, each at the time of its destination, as [`Relabel::number`] does without times.
    fn number_timed(&mut self, frontier: &Frontier, file: Option<&Path>) -> Result<Vec<LocalId>> {
        let mut pairs = Vec::with_capacity(frontier.srcs.len());
        for (bounds, &time) in frontier.indptr.windows(2).zip(&self.times) {
            let srcs = &frontier.srcs[bounds[0] as usize..bounds[1] as usize];
            pairs.extend(srcs.iter().map(|src| pair(*src, time)));
        }
        let known = self.nodes.iter().zip(&self.times).map(|(node, time)| pair(*node, *time));
        self.timed.reserve(self.nodes.len() + pairs.len(), known);
        let mut indices = Vec::with_capacity(pairs.len());
        for (position, &of_edge) in pairs.iter().enumerate() {
            self.timed.prefetch(&pairs, position);
            let node = frontier.srcs[position];
            let local = self.local_at(node, (of_edge >> 32) as u32);
            indices.push(local.ok_or_else(|| self.out_of_range(frontier, position, file))?);
        }
        Ok(indices)
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

    /// Relabels the frontier's sources, after its destinations have got their local ids. `file` is the file from which
    /// the sources were read, for errors.
    pub(crate) fn number(&mut self, frontier: &Frontier, file: Option<&Path>) -> Result<Vec<LocalId>> {
        if self.distinct_times.is_some() {
            return self.number_timed(frontier, file);
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

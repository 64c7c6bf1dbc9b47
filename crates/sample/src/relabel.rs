use std::path::Path;

use kiln_graph::{LocalId, NodeId};
use kiln_mem::prefetch_far;

use crate::{DamagedGraphError, Error, Frontier, Result};

/// Assigns local ids to nodes in the order of their first appearance.
///
/// The table has an entry of 8 bytes for each node of the graph: the stamp of the last batch that contained the node
/// (upper half) and its local id (lower half). A new batch takes a new stamp, so the table is not cleared.
#[derive(Debug, Default)]
pub(crate) struct Relabel {
    table: Vec<u64>,
    stamp: u32,
    /// The nodes with a local id, in the order of their local ids.
    pub(crate) nodes: Vec<NodeId>,
}

/// The prefetch distance in edges for random reads of the table.
const AHEAD: usize = 128;

/// The number of edges that are relabelled in one inner loop.
const CHUNK: usize = 256;

impl Relabel {
    pub(crate) fn begin(&mut self, n_nodes: usize) {
        self.nodes.clear();
        if self.table.len() != n_nodes || self.stamp == u32::MAX {
            self.table = vec![0; n_nodes];
            self.stamp = 0;
        }
        self.stamp += 1;
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
        let srcs = &frontier.srcs;
        let mut indices = Vec::with_capacity(srcs.len());
        self.nodes.reserve(srcs.len().min(self.table.len().saturating_sub(self.nodes.len())));
        for first in (0..srcs.len()).step_by(CHUNK) {
            let n = CHUNK.min(srcs.len() - first);
            let later = &srcs[(first + AHEAD).min(srcs.len())..];
            let numbered = self.number_chunk(&srcs[first..first + n], later, &mut indices);
            numbered.map_err(|position| {
                Error::DamagedGraph(DamagedGraphError::NeighborOutOfRange {
                    node: srcs[first + position],
                    edge: frontier.edge_ids[first + position].0,
                    n_nodes: self.table.len(),
                    file: file.map(Path::to_owned),
                })
            })?;
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

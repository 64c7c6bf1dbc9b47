use std::path::PathBuf;

use kiln_graph::{NodeId, file_prefix};

/// A damage in the arrays of a graph, which sampling has found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DamagedGraphError {
    /// The graph contains an edge from a node that does not exist: the graph's file is damaged.
    #[error("{}edge {edge} comes from node {}, but the graph has {n_nodes} nodes: the graph is damaged: restore or regenerate it", file_prefix(file.as_deref()), node.0)]
    NeighborOutOfRange {
        /// The node id that is out of range.
        node: NodeId,
        /// The edge's position in the graph's `indices`.
        edge: u64,
        /// The number of nodes in the graph.
        n_nodes: usize,
        /// The file from which `indices` are mapped; `None` if they are in memory.
        file: Option<PathBuf>,
    },
    /// The graph's `indptr` is damaged at this node.
    #[error("{}node {} has the edge range {start} to {end}, expected an ascending range within {n_edges} edges: the graph is damaged: restore or regenerate it", file_prefix(file.as_deref()), node.0)]
    BadEdgeRange {
        /// The destination.
        node: NodeId,
        /// The start of the destination's edge range.
        start: u64,
        /// The end of the destination's edge range.
        end: u64,
        /// The number of edges in the graph.
        n_edges: u64,
        /// The file from which `indptr` is mapped; `None` if it is in memory.
        file: Option<PathBuf>,
    },
    /// The order of a destination's edges by time does not have each of them once.
    #[error(
        "{}node {}: the order of its edges by time is wrong at position {place}, expected each position below {degree} once, by time: the graph is \
         damaged: restore or regenerate it", file_prefix(file.as_deref()), node.0
    )]
    BadTimeOrder {
        /// The destination.
        node: NodeId,
        /// The position.
        place: u32,
        /// The number of edges into the destination.
        degree: usize,
        /// The file from which the order is mapped; `None` if it is in memory.
        file: Option<PathBuf>,
    },
    /// A source of a relation's edge is a node of another type.
    #[error(
        "relation `{relation}` has an edge from node {}, expected one of the nodes {} to {} of its sources' type: the data is \
         damaged; verify it, or start servers with --verify", node.0, nodes.start, nodes.end
    )]
    SourceOfOtherType {
        /// The name of the relation.
        relation: String,
        /// The source.
        node: NodeId,
        /// The nodes of the sources' type.
        nodes: std::ops::Range<u32>,
    },
}

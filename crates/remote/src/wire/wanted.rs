//! The rows and edges that requests name.

use kiln_graph::EdgeId;
use kiln_partition::PartitionRow;

/// A row to fetch: its key at its server, and its position in the output.
pub(crate) type WantedRow<K> = (K, u32);

/// An edge as the partition of its destination finds it: the row of the destination, and the edge's id in the whole graph.
pub(crate) type EdgeOfRow = (PartitionRow, EdgeId);

/// An edge to leave out in a request: the position of its destination in the request's rows, and the global id of its
/// source.
pub(crate) type ExcludedEdge = [u32; 2];

/// The edges of a relation over which messages pass to the rows of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageEdges {
    /// All edges.
    All,
    /// The edges that were known before a time.
    Before(i64),
    /// All edges, ordered by time, of which each row knows those before its own time.
    ByTime,
}

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

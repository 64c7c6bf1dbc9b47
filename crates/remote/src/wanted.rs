//! The rows that a gather asks for.

use kiln_graph::EdgeId;
use kiln_partition::PartitionRow;

/// A row to fetch: its key at its server, and its position in the output.
pub(crate) type WantedRow<K> = (K, u32);

/// An edge as the partition of its destination finds it: the row of the destination, and the edge's id in the whole graph.
pub(crate) type EdgeOfRow = (PartitionRow, EdgeId);

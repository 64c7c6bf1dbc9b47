use bytemuck::{Pod, Zeroable};
use kiln_graph::NodeId;

/// A row of one partition: the position of a node that it owns in its arrays. The same number is another node in each
/// partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct PartitionRow(pub u32);

impl PartitionRow {
    /// The row as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The id of the row in the partition's own graph ([`Part::graph`](crate::Part::graph)) and features, whose nodes
    /// are the rows.
    pub fn local_node(self) -> NodeId {
        NodeId(self.0)
    }

    /// The ids of the rows in the partition's own graph and features, without a copy.
    pub fn local_nodes(rows: &[Self]) -> &[NodeId] {
        bytemuck::cast_slice(rows)
    }
}

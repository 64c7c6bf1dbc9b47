use bytemuck::{Pod, Zeroable};
use kiln_graph::NodeId;

/// A row of one partition: the position of an owned node in the partition's arrays. Equal rows of different partitions
/// are different nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct PartitionRow(pub u32);

impl PartitionRow {
    /// Returns the row as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the row as a node id of [`PartOfRelation::graph`](crate::PartOfRelation::graph) and
    /// [`PartOfType::features`](crate::PartOfType::features), which are indexed by rows.
    pub fn local_node(self) -> NodeId {
        NodeId(self.0)
    }

    /// Returns the rows as node ids of the partition's graph and features, without a copy.
    pub fn local_nodes(rows: &[Self]) -> &[NodeId] {
        bytemuck::cast_slice(rows)
    }
}

use bytemuck::{Pod, Zeroable};

/// A node of the whole graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct NodeId(pub u32);

/// A node's position in one block's source list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct LocalId(pub u32);

/// An edge of the whole graph: its position in the graph's `indices`, so that edge data in CSC order
/// needs no second index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct EdgeId(pub u64);

impl NodeId {
    /// The id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The plain numbers as ids, without a copy.
    pub fn from_slice(ids: &[u32]) -> &[NodeId] {
        bytemuck::cast_slice(ids)
    }
}

impl LocalId {
    /// The id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl EdgeId {
    /// The id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

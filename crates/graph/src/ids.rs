use std::fmt;
use std::hash::Hash;

use bytemuck::{Pod, Zeroable};

/// An item that splits and batches are made of: a node of a graph, or a graph of a set.
pub trait ItemId: Pod + Ord + Hash + fmt::Debug + Send + Sync + 'static {
    /// The name of such an item in error messages.
    const NAME: &'static str;

    /// The item with this number.
    fn new(id: u32) -> Self;

    /// The item's number.
    fn get(self) -> u32;
}

/// A node of the whole graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct NodeId(pub u32);

/// A graph of a set of graphs: its position in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct GraphId(pub u32);

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

impl GraphId {
    /// The id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ItemId for NodeId {
    const NAME: &'static str = "node";

    fn new(id: u32) -> Self {
        Self(id)
    }

    fn get(self) -> u32 {
        self.0
    }
}

impl ItemId for GraphId {
    const NAME: &'static str = "graph";

    fn new(id: u32) -> Self {
        Self(id)
    }

    fn get(self) -> u32 {
        self.0
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

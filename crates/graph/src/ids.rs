use std::fmt;
use std::hash::Hash;

use bytemuck::{Pod, Zeroable};

/// The id of a training item, which is a node of a graph, a graph of a set or a link of a list. Splits and batches are
/// lists of items. Labels, splits, samplers and batchers carry the type of their items, so a split of graphs cannot reach
/// a loader of nodes.
pub trait ItemId: Pod + Ord + Hash + fmt::Debug + Send + Sync + 'static {
    /// The noun for the item in error messages: `node`, `graph` or `link`.
    const NAME: &'static str;

    /// Creates the id from its number.
    fn new(id: u32) -> Self;

    /// Returns the number of the id.
    fn get(self) -> u32;
}

/// The id of a node in the whole graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct NodeId(pub u32);

/// The id of a graph in a set of graphs: the position of the graph in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct GraphId(pub u32);

/// The id of a link: the position of the node pair in a list of [`Links`](crate::Links).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct LinkId(pub u32);

/// The position of a node in one block's source list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct LocalId(pub u32);

/// The id of an edge in the whole graph: the position of the edge in the graph's `indices`. Edge data in CSC order is
/// therefore indexed by edge id directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct EdgeId(pub u64);

impl NodeId {
    /// Returns the id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Reinterprets integers as node ids, without a copy.
    pub fn from_slice(ids: &[u32]) -> &[NodeId] {
        bytemuck::cast_slice(ids)
    }
}

impl GraphId {
    /// Returns the id as an array index.
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

impl LinkId {
    /// Returns the id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ItemId for LinkId {
    const NAME: &'static str = "link";

    fn new(id: u32) -> Self {
        Self(id)
    }

    fn get(self) -> u32 {
        self.0
    }
}

impl LocalId {
    /// Returns the id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl EdgeId {
    /// Returns the id as an array index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

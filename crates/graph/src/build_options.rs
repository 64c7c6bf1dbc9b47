//! How a graph is built from an edge list.

/// The policy for parallel edges, which have the same source and the same destination. It also applies to parallel
/// self loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// Keeps all parallel edges, adjacent and in the order of the edge list.
    #[default]
    Keep,
    /// Keeps only the first of the parallel edges in the edge list, with its weight and type.
    Remove,
}

/// The policy for self loops, the edges from a node to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SelfLoops {
    /// Keeps self loops as given.
    #[default]
    Keep,
    /// Removes all self loops.
    Remove,
    /// Adds a self loop with weight 1 and type 0 to each node without a self loop.
    Add,
}

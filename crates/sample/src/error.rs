use std::path::PathBuf;

use kiln_graph::{NodeId, file_prefix};

/// What can go wrong while sampling.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A seed, or a destination given to a sampler, is not a node of the graph.
    #[error("seed {} at position {position} is not a node: the graph has {n_nodes} nodes (ids 0 to n_nodes - 1)", node.0)]
    SeedOutOfRange {
        /// The id that is too large.
        node: NodeId,
        /// Its position in the list given.
        position: usize,
        /// How many nodes there are.
        n_nodes: usize,
    },
    /// The graph holds an edge from a node that it does not have: its file is damaged.
    #[error("{}edge {edge} comes from node {}, but the graph has {n_nodes} nodes: the graph is damaged, make it again", file_prefix(file.as_deref()), node.0)]
    NeighborOutOfRange {
        /// The id that is too large.
        node: NodeId,
        /// The edge's position in the graph's `indices`.
        edge: u64,
        /// How many nodes there are.
        n_nodes: usize,
        /// The file that `indices` are mapped from, where that is known.
        file: Option<PathBuf>,
    },
    /// The graph's `indptr` is damaged at this node.
    #[error("{}the edges of node {} would be {start} to {end} of {n_edges}: the graph is damaged, make it again", file_prefix(file.as_deref()), node.0)]
    BadEdgeRange {
        /// The destination.
        node: NodeId,
        /// Where its edges would start.
        start: u64,
        /// Where they would end.
        end: u64,
        /// How many edges the graph has.
        n_edges: u64,
        /// The file that `indptr` is mapped from, where that is known.
        file: Option<PathBuf>,
    },
    /// A layer has more edges than 32 bits count.
    #[error(
        "layer {layer} has {n_edges} or more edges, at most {} fit a block: use smaller batches or fanouts",
        u32::MAX
    )]
    BlockTooLarge {
        /// The layer.
        layer: usize,
        /// Edges picked when the count passed the limit.
        n_edges: u64,
    },
    /// A device was asked to draw more neighbours of a node than it does.
    #[error(
        "layer {layer}: a device draws at most {most} of a node's neighbours: take all of them, or sample on the host"
    )]
    FanoutTooLarge {
        /// The layer.
        layer: usize,
        /// The largest fanout that is drawn.
        most: u64,
    },
    /// A device was asked to pick by a rule that is not built in.
    #[error("a device has the built-in sampling rules only: sample by a rule of your own on the host")]
    CustomRule,
    /// A user's rule picked a neighbour that the destination does not have.
    #[error("the rule picked neighbour {pick} of node {}, which has {degree}", dst.0)]
    PickOutOfRange {
        /// The destination.
        dst: NodeId,
        /// The position picked.
        pick: u32,
        /// How many neighbours there are.
        degree: usize,
    },
    /// A destination has more edges than a position counts.
    #[error("node {} has {degree} edges, at most {} can be sampled from", dst.0, u32::MAX)]
    DegreeTooLarge {
        /// The destination.
        dst: NodeId,
        /// Its edges.
        degree: u64,
    },
    /// A user's sampler gave a frontier whose arrays contradict each other or the destinations asked for.
    #[error(
        "layer {layer}: the sampler gave a frontier of {n_dst} destinations, {n_srcs} sources and {n_edge_ids} edge ids for {expected} destinations"
    )]
    BadFrontier {
        /// The layer.
        layer: usize,
        /// Destinations of the frontier.
        n_dst: usize,
        /// Sources of the frontier.
        n_srcs: usize,
        /// Edge ids of the frontier.
        n_edge_ids: usize,
        /// Destinations asked for.
        expected: usize,
    },
    /// Weights were asked for, but the graph has none.
    #[error(
        "the sampler was asked for edge weights, but the graph has none: give them to CscBuilder::weights"
    )]
    NoWeights,
    /// A sampler whose graph lies elsewhere did not get its edges.
    #[error(transparent)]
    Elsewhere(Box<dyn std::error::Error + Send + Sync>),
}

use std::path::PathBuf;

use kiln_graph::{LinkId, NodeId, file_prefix};

/// An error of sampling.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A seed, or a destination given to a sampler, is not a node of the graph.
    #[error("seed {} at position {position} is not a node: the graph has {n_nodes} nodes, numbered from 0", node.0)]
    SeedOutOfRange {
        /// The node id that is out of range.
        node: NodeId,
        /// The position of the node in the given list.
        position: usize,
        /// The number of nodes in the graph.
        n_nodes: usize,
    },
    /// The graph contains an edge from a node that does not exist: the graph's file is damaged.
    #[error("{}edge {edge} comes from node {}, but the graph has {n_nodes} nodes: the graph is damaged: restore or regenerate it", file_prefix(file.as_deref()), node.0)]
    NeighborOutOfRange {
        /// The node id that is out of range.
        node: NodeId,
        /// The edge's position in the graph's `indices`.
        edge: u64,
        /// The number of nodes in the graph.
        n_nodes: usize,
        /// The file from which `indices` are mapped; `None` if they are in memory.
        file: Option<PathBuf>,
    },
    /// The graph's `indptr` is damaged at this node.
    #[error("{}node {} has the edge range {start} to {end}, expected an ascending range within {n_edges} edges: the graph is damaged: restore or regenerate it", file_prefix(file.as_deref()), node.0)]
    BadEdgeRange {
        /// The destination.
        node: NodeId,
        /// The start of the destination's edge range.
        start: u64,
        /// The end of the destination's edge range.
        end: u64,
        /// The number of edges in the graph.
        n_edges: u64,
        /// The file from which `indptr` is mapped; `None` if it is in memory.
        file: Option<PathBuf>,
    },
    /// A layer has more edges than a block's 32-bit positions can represent.
    #[error(
        "layer {layer} has at least {n_edges} edges, expected at most {} in a block: use smaller batches or fanouts",
        u32::MAX
    )]
    BlockTooLarge {
        /// The index of the layer; 0 is the input layer.
        layer: usize,
        /// The number of picked edges when the limit was exceeded.
        n_edges: u64,
    },
    /// The fanout is larger than device sampling supports.
    #[error(
        "layer {layer}: device sampling supports fanouts up to {most}: reduce the fanout, use all neighbours, or sample on the host"
    )]
    FanoutTooLarge {
        /// The index of the layer; 0 is the input layer.
        layer: usize,
        /// The largest supported fanout.
        most: u64,
    },
    /// A custom rule was given to a device sampler.
    #[error("device sampling supports only the built-in rules: use the custom rule on the host")]
    CustomRule,
    /// A custom rule picked a position that is not below the destination's degree.
    #[error("the sampling rule picked position {pick} of node {}, expected a position below the node's degree {degree}", dst.0)]
    PickOutOfRange {
        /// The destination.
        dst: NodeId,
        /// The picked position among the destination's neighbours.
        pick: u32,
        /// The number of the destination's neighbours.
        degree: usize,
    },
    /// A destination has more edges than a 32-bit position can represent.
    #[error("node {} has {degree} edges, expected at most {} for sampling", dst.0, u32::MAX)]
    DegreeTooLarge {
        /// The destination.
        dst: NodeId,
        /// The number of edges into the destination.
        degree: u64,
    },
    /// A custom sampler returned a frontier whose arrays are inconsistent or do not match the destinations.
    #[error(
        "layer {layer}: the sampler returned a frontier with {n_dst} destinations, {n_srcs} sources and {n_edge_ids} edge ids, expected consistent arrays for {expected} destinations"
    )]
    BadFrontier {
        /// The index of the layer; 0 is the input layer.
        layer: usize,
        /// The number of destinations in the frontier.
        n_dst: usize,
        /// The number of sources in the frontier.
        n_srcs: usize,
        /// The number of edge ids in the frontier.
        n_edge_ids: usize,
        /// The number of requested destinations.
        expected: usize,
    },
    /// The sampler is configured for edge weights, but the graph has none.
    #[error(
        "the sampler is configured for edge weights, but the graph has none: set them with CscBuilder::weights"
    )]
    NoWeights,
    /// The sampler is configured for edge types, but the graph has none.
    #[error(
        "the sampler is configured for edge types, but the graph has none: set them with CscBuilder::edge_types"
    )]
    NoEdgeTypes,
    /// The fanouts of a heterogeneous graph do not match its relations.
    #[error(
        "layer {layer} has fanouts for {got} relations, expected one for each of the {expected} relations"
    )]
    RelationFanouts {
        /// The index of the layer; 0 is the input layer.
        layer: usize,
        /// The number of fanouts.
        got: usize,
        /// The number of relations.
        expected: usize,
    },
    /// A text is not a list of fanouts.
    #[error("{reason}")]
    InvalidFanouts {
        /// The expected form, or the repeated list.
        reason: String,
    },
    /// A relation has no fanouts, and there are none for all relations.
    #[error(
        "there are no fanouts for the relation `{relation}`: add a list for it, or one without a name for all other relations"
    )]
    NoFanouts {
        /// The name of the relation.
        relation: String,
    },
    /// A relation has another number of fanouts than there are layers.
    #[error("the relation `{relation}` has {got} fanouts, expected {expected}, one per layer")]
    LayerFanouts {
        /// The name of the relation.
        relation: String,
        /// The number of fanouts.
        got: usize,
        /// The number of layers.
        expected: usize,
    },
    /// A source of a relation's edge is a node of another type.
    #[error(
        "relation `{relation}` has an edge from node {}, expected one of the nodes {} to {} of its sources' type: the data is \
         damaged; verify it, or start servers with --verify", node.0, nodes.start, nodes.end
    )]
    SourceOfOtherType {
        /// The name of the relation.
        relation: String,
        /// The source.
        node: NodeId,
        /// The nodes of the sources' type.
        nodes: std::ops::Range<u32>,
    },
    /// A relation has no sampler.
    #[error("relation {relation} has no sampler: there are {n_samplers} samplers, expected one per relation")]
    RelationSamplers {
        /// The position of the relation.
        relation: usize,
        /// The number of samplers.
        n_samplers: usize,
    },
    /// The sampler is configured for edge weights, but a relation has none.
    #[error("the sampler is configured for edge weights, but relation `{relation}` has none")]
    NoRelationWeights {
        /// The name of the relation.
        relation: String,
    },
    /// More edges of a heterogeneous graph were requested than the sampler's fanouts.
    #[error(
        "layer {layer} was requested with a larger fanout than the sampler's: create a sampler with larger fanouts"
    )]
    LargerFanout {
        /// The requested layer.
        layer: usize,
    },
    /// A layer without fanouts was requested.
    #[error("layer {layer} was requested from a sampler of {n_layers} layers, numbered from 0")]
    LayerOutOfRange {
        /// The requested layer.
        layer: usize,
        /// The number of layers.
        n_layers: usize,
    },
    /// Negatives are drawn by degree from a graph without edges.
    #[error("negatives cannot be drawn by degree: the graph has no edges: draw them uniformly")]
    NoEdges,
    /// A custom sampler of negatives returned a node that does not exist.
    #[error("the sampler of negatives returned node {}, but the graph has {n_nodes} nodes, numbered from 0", node.0)]
    NegativeOutOfRange {
        /// The node id that is out of range.
        node: NodeId,
        /// The number of nodes in the graph.
        n_nodes: usize,
    },
    /// Fixed negatives lack a link.
    #[error("the fixed negatives have no row for link {}: add its negatives, or draw negatives", link.0)]
    NoFixedNegatives {
        /// The id of the link.
        link: LinkId,
    },
    /// The graph is damaged.
    #[error("cannot use the graph: {0}")]
    Graph(#[from] kiln_graph::Error),
    /// A sampler of a remote graph failed to fetch edges.
    #[error(transparent)]
    Elsewhere(Box<dyn std::error::Error + Send + Sync>),
}

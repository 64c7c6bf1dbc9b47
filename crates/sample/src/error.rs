mod damaged_graph_error;
mod fanouts_error;
mod negatives_error;
mod rule_error;
mod sampler_error;
mod times_error;

use kiln_graph::NodeId;

pub use self::damaged_graph_error::DamagedGraphError;
pub use self::fanouts_error::FanoutsError;
pub use self::negatives_error::NegativesError;
pub use self::rule_error::RuleError;
pub use self::sampler_error::SamplerError;
pub use self::times_error::TimesError;

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
    /// The arrays of the graph are damaged.
    #[error(transparent)]
    DamagedGraph(#[from] DamagedGraphError),
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
    /// The fanouts are invalid, or do not fit the request.
    #[error(transparent)]
    Fanouts(#[from] FanoutsError),
    /// A custom sampling rule cannot be used.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A destination has more edges than a 32-bit position can represent.
    #[error("node {} has {degree} edges, expected at most {} for sampling", dst.0, u32::MAX)]
    DegreeTooLarge {
        /// The destination.
        dst: NodeId,
        /// The number of edges into the destination.
        degree: u64,
    },
    /// A custom sampler, its blocks or its use are not valid.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
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
    /// A relation has no sampler.
    #[error("relation {relation} has no sampler: there are {n_samplers} samplers, expected one per relation")]
    RelationSamplers {
        /// The position of the relation.
        relation: usize,
        /// The number of samplers.
        n_samplers: usize,
    },
    /// The sampler is configured for edge weights, but a relation has none, and so have all others, or the weights are to be
    /// unbiased.
    #[error("the sampler is configured for edge weights, but relation `{relation}` has none")]
    NoRelationWeights {
        /// The name of the relation.
        relation: String,
    },
    /// Seeds with times cannot be sampled, or times are missing.
    #[error(transparent)]
    Times(#[from] TimesError),
    /// Negatives cannot be drawn, or are missing.
    #[error(transparent)]
    Negatives(#[from] NegativesError),
    /// The graph is damaged.
    #[error("cannot use the graph: {0}")]
    Graph(#[from] kiln_graph::Error),
    /// A sampler of a remote graph failed to fetch edges, or a custom sampler failed with an error of its own.
    #[error(transparent)]
    Elsewhere(Box<dyn std::error::Error + Send + Sync>),
}

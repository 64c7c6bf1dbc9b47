use kiln_graph::{EdgeId, NodeId};

/// An error in a custom sampler ([`CustomSampler`](crate::CustomSampler)), in the blocks that it returns, or in its use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
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
    /// The sampler has another number of layers than the model.
    #[error(
        "the sampler `{name}` has {got} layers, but the model has {expected}: create both with one number of layers"
    )]
    Layers {
        /// The name of the sampler.
        name: String,
        /// The number of layers of the model.
        expected: usize,
        /// The number of layers of the sampler.
        got: usize,
    },
    /// A sampler that runs on the host was to sample on a device.
    #[error(
        "the sampler `{name}` runs on the host, and cannot sample on a device: keep the graph on the host (--graph-mode host)"
    )]
    OnDevice {
        /// The name of the sampler.
        name: String,
    },
    /// Seeds have times, and the sampler does not read them.
    #[error(
        "the sampler `{name}` does not sample items at their own times: let it take times (`takes_times`), or train without \
         --messages item-time"
    )]
    Times {
        /// The name of the sampler.
        name: String,
    },
    /// The blocks of the sampler have edge weights or types of another kind than configured.
    #[error(
        "the sampler `{name}` returns {what} of the kind {got}, expected {expected}: configure both alike"
    )]
    Settings {
        /// The name of the sampler.
        name: String,
        /// The data of edges.
        what: &'static str,
        /// The configured kind.
        expected: String,
        /// The kind that the sampler states.
        got: String,
    },
    /// The sampler is for another number of nodes than the graph has.
    #[error(
        "the sampler `{name}` is for {got} nodes, but the graph has {expected}: create it from the graph that it is given"
    )]
    Nodes {
        /// The name of the sampler.
        name: String,
        /// The number of nodes of the graph.
        expected: usize,
        /// The number of nodes of the sampler.
        got: usize,
    },
    /// The sampler returned another number of blocks than it has layers.
    #[error("the sampler `{name}` returned {got} blocks, expected {expected}, one per layer")]
    BlockCount {
        /// The name of the sampler.
        name: String,
        /// The number of layers.
        expected: usize,
        /// The number of blocks.
        got: usize,
    },
    /// A block of the sampler is not valid.
    #[error("layer {layer}: the sampler `{name}` returned a block that is not valid: {reason}")]
    Block {
        /// The name of the sampler.
        name: String,
        /// The index of the layer; 0 is the input layer.
        layer: usize,
        /// What is wrong, with the expected and the found value.
        reason: String,
    },
    /// A block of the sampler has an edge that the batch leaves out, such as a link that it predicts.
    #[error(
        "layer {layer}: the sampler `{name}` picked edge {} from node {} to node {}, which the batch leaves out: leave out \
         the excluded edges of the seeds", edge.0, src.0, dst.0
    )]
    ExcludedEdge {
        /// The name of the sampler.
        name: String,
        /// The index of the layer; 0 is the input layer.
        layer: usize,
        /// The edge.
        edge: EdgeId,
        /// Its source.
        src: NodeId,
        /// Its destination.
        dst: NodeId,
    },
    /// The destinations of the last block are not the distinct seeds.
    #[error(
        "the sampler `{name}` returned {n_dst} destinations and {n_rows} rows for {n_seeds} seeds, expected the distinct seeds in \
         the order of their first appearance, and the row of each{}",
        position.map_or_else(String::new, |position| format!("; the seed at position {position} has another row"))
    )]
    Seeds {
        /// The name of the sampler.
        name: String,
        /// The number of destinations of the last block.
        n_dst: usize,
        /// The number of entries of the index of seeds.
        n_rows: usize,
        /// The number of seeds.
        n_seeds: usize,
        /// The position of the first seed with a wrong row, if the numbers are right.
        position: Option<usize>,
    },
    /// The sampler panicked.
    #[error("the sampler `{name}` panicked: {message}")]
    Panicked {
        /// The name of the sampler.
        name: String,
        /// The message of the panic.
        message: String,
    },
}

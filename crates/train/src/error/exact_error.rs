/// An error in the layer by layer evaluation of a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExactError {
    /// The memory limit is below the memory of the sampler, which cannot be moved to a file.
    #[error(
        "the memory limit is {memory_bytes} bytes, expected at least {needed_bytes} for the sampler alone: raise the limit"
    )]
    MemoryTooSmall {
        /// The limit, in bytes.
        memory_bytes: u64,
        /// The smallest possible limit, in bytes.
        needed_bytes: u64,
    },
    /// The activations of a layer do not fit in memory.
    #[error("{n_rows} rows of {dim} activations do not fit in memory: set a memory limit to spill to files")]
    TooLarge {
        /// The number of nodes of the graph.
        n_rows: usize,
        /// The width of the layer's outputs.
        dim: usize,
    },
    /// A node has more in-edges than a block can hold.
    #[error(
        "node {node} has {n_edges} edges, but a block holds at most {max}: evaluate with sampled neighbours"
    )]
    TooManyEdges {
        /// The node with too many in-edges.
        node: u32,
        /// The number of in-edges of the node.
        n_edges: u64,
        /// The maximum number of edges in a block.
        max: u64,
    },
}

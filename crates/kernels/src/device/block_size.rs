use kiln_graph::Block;

/// The numbers of nodes and edges of a block, from which the order of its computations is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize {
    /// The number of sources.
    pub n_src: usize,
    /// The number of destinations.
    pub n_dst: usize,
    /// The number of edges.
    pub n_edges: usize,
}

impl BlockSize {
    /// The size that stands for every block of sampled neighbours in evaluations and predictions: a source that no other
    /// destination has for every second edge. With the size of the block itself, the order of a node's computations, and
    /// with it the rounding, would depend on the other nodes of its batch.
    pub const SAMPLED: Self = Self { n_src: 3, n_dst: 1, n_edges: 4 };
}

impl From<&Block> for BlockSize {
    fn from(block: &Block) -> Self {
        Self { n_src: block.n_src(), n_dst: block.n_dst(), n_edges: block.n_edges() }
    }
}

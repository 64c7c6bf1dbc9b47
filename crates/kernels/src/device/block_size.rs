use kiln_graph::Block;

use crate::device::block::DeviceBlock;

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

impl From<&Block> for BlockSize {
    fn from(block: &Block) -> Self {
        Self { n_src: block.n_src(), n_dst: block.n_dst(), n_edges: block.n_edges() }
    }
}

impl From<&DeviceBlock> for BlockSize {
    fn from(block: &DeviceBlock) -> Self {
        Self { n_src: block.n_src(), n_dst: block.n_dst(), n_edges: block.n_edges() }
    }
}

use kiln_graph::Block;

/// A block's edges listed by source: what a gradient flows back over.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `indptr` | `u32` | `n_src + 1` | source |
/// | `dsts` | `u32` | `n_edges` | rank of the edge by source; its destination |
/// | `edges` | `u32` | `n_edges` | the same; its position in the block, ascending for each source |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transposed {
    /// Where each source's edges start.
    pub indptr: Vec<u32>,
    /// Each edge's destination.
    pub dsts: Vec<u32>,
    /// Each edge's position in the block.
    pub edges: Vec<u32>,
}

impl Transposed {
    /// Sorts a block's edges by source: a counting sort, so stable, in two passes over the edges.
    ///
    /// It runs on the calling thread alone and needs no tensor, so that a loader's worker can do it.
    pub fn of(block: &Block) -> Self {
        let mut indptr = vec![0_u32; block.n_src() + 1];
        for src in block.indices() {
            indptr[src.index() + 1] += 1;
        }
        for src in 0..block.n_src() {
            indptr[src + 1] += indptr[src];
        }
        let mut next = indptr.clone();
        let mut dsts = vec![0; block.n_edges()];
        let mut edges = vec![0; block.n_edges()];
        for (dst, range) in block.indptr().windows(2).enumerate() {
            for edge in range[0]..range[1] {
                let slot = &mut next[block.indices()[edge as usize].index()];
                dsts[*slot as usize] = dst as u32;
                edges[*slot as usize] = edge;
                *slot += 1;
            }
        }
        Self { indptr, dsts, edges }
    }
}

use kiln_graph::Block;

/// A block's edges listed by source: what a gradient flows back over.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `indptr` | `u32` | `n_src + 1` | source |
/// | `dsts` | `u32` | `n_edges` | rank of the edge by source; its destination |
/// | `edges` | `u32` | `n_edges` | the same; its position in the block, ascending for each source |
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transposed {
    /// Where each source's edges start.
    pub(crate) indptr: Vec<u32>,
    /// Each edge's destination.
    pub(crate) dsts: Vec<u32>,
    /// Each edge's position in the block.
    pub(crate) edges: Vec<u32>,
}

impl Transposed {
    /// Sorts a block's edges by source: a counting sort, so stable, in two passes over the edges.
    ///
    /// It runs on the calling thread alone.
    pub(crate) fn of(block: &Block) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_graph::{BlockParts, EdgeId, LocalId, NodeId};

    #[test]
    fn edges_are_listed_by_source_in_block_order() {
        // 0: -    1: 0    2: 1 3 2 1    3: 5 4    4: 5
        let indices: Vec<LocalId> = [0, 1, 3, 2, 1, 5, 4, 5].map(LocalId).to_vec();
        let block = Block::new(BlockParts {
            srcs: (0..6).map(NodeId).collect(),
            indptr: vec![0, 0, 1, 5, 7, 8],
            edge_ids: (0..8).map(EdgeId).collect(),
            indices,
            weights: None,
        });
        let transposed = Transposed::of(&block);
        assert_eq!(transposed.indptr, [0, 1, 3, 4, 5, 6, 8]);
        assert_eq!(transposed.dsts, [1, 2, 2, 2, 2, 3, 3, 4]);
        assert_eq!(transposed.edges, [0, 1, 4, 3, 2, 6, 5, 7]);
    }
}

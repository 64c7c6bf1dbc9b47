//! Blocks for the tests of the ops.

use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};

/// A block from each destination's sources in local ids; global ids are `100 + 7 * local`.
pub(crate) fn block(n_src: usize, in_srcs: &[Vec<u32>]) -> Block {
    let mut indptr = vec![0];
    let mut indices = Vec::new();
    for srcs in in_srcs {
        indices.extend(srcs.iter().copied().map(LocalId));
        indptr.push(indices.len() as u32);
    }
    Block::new(BlockParts {
        srcs: (0..n_src as u32).map(|local| NodeId(100 + 7 * local)).collect(),
        indptr,
        edge_ids: (0..indices.len() as u64).map(|edge| EdgeId(1000 + edge)).collect(),
        weights: Some((0..indices.len()).map(|edge| 0.5 + (edge % 7) as f32 * 0.25).collect()),
        indices,
    })
}

/// The six nodes 0 to 5, all of them destinations but node 5: 0 has no edges, 2 has a parallel edge and a
/// self loop.
///
/// ```text
///   0: -    1: 0    2: 1 3 2 1    3: 5 4    4: 5
/// ```
pub(crate) fn six_nodes() -> Block {
    block(6, &[vec![], vec![0], vec![1, 3, 2, 1], vec![5, 4], vec![5]])
}

//! The transposed block: exact arrays, agreement with a naive sort, and its cache in [`Block`].

use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId, TransposedBlock};
use proptest::prelude::*;

/// A block with `n_src` sources, from the list of source ids of each destination.
fn block(n_src: u32, in_srcs: &[Vec<u32>]) -> Block {
    let mut indptr = vec![0];
    let mut indices = Vec::new();
    for srcs in in_srcs {
        indices.extend(srcs.iter().copied().map(LocalId));
        indptr.push(indices.len() as u32);
    }
    Block::new(BlockParts {
        srcs: (0..n_src).map(NodeId).collect(),
        indptr,
        edge_ids: (0..indices.len() as u64).map(EdgeId).collect(),
        indices,
        ..BlockParts::default()
    })
}

/// A block in which destination 0 has no edges, and destination 2 has parallel edges and a self loop.
fn six_nodes() -> Block {
    block(6, &[vec![], vec![0], vec![1, 3, 2, 1], vec![5, 4], vec![5]])
}

/// Compares the transposed block with one built naively, by a scan over all edges for each source.
fn check_sorted(block: &Block) {
    let transposed = TransposedBlock::of(block);
    let (mut indptr, mut dsts, mut edges) = (vec![0], vec![], vec![]);
    for src in 0..block.n_src() {
        for (dst, range) in block.indptr().windows(2).enumerate() {
            for edge in range[0]..range[1] {
                if block.indices()[edge as usize].index() == src {
                    dsts.push(dst as u32);
                    edges.push(edge);
                }
            }
        }
        indptr.push(dsts.len() as u32);
    }
    assert_eq!(transposed.indptr(), indptr);
    assert_eq!(transposed.dsts(), dsts);
    assert_eq!(transposed.edges(), edges);
}

#[test]
fn edges_are_listed_by_source_in_block_order() {
    let transposed = TransposedBlock::of(&six_nodes());
    assert_eq!(transposed.indptr(), [0, 1, 3, 4, 5, 6, 8]);
    assert_eq!(transposed.dsts(), [1, 2, 2, 2, 2, 3, 3, 4]);
    assert_eq!(transposed.edges(), [0, 1, 4, 3, 2, 6, 5, 7]);
}

#[test]
fn blocks_without_edges_destinations_or_sources_are_transposed() {
    for block in [block(3, &[vec![], vec![]]), block(2, &[]), block(0, &[])] {
        check_sorted(&block);
    }
}

proptest! {
    #[test]
    fn transposed_block_equals_a_naive_sort_by_source(
        srcs in prop::collection::vec(prop::collection::vec(0_u32..40, 0..30), 0..40),
        n_more in 0_u32..50,
    ) {
        check_sorted(&block(40 + n_more, &srcs));
    }
}

#[test]
fn block_caches_its_transposed_block_and_equality_ignores_it() {
    let plain = six_nodes();
    let mut block = plain.clone();
    assert_eq!(block.transposed(), None);
    let plain_bytes = block.n_bytes();
    block.transpose();
    block.transpose();
    let transposed = TransposedBlock::of(&plain);
    assert_eq!(block.transposed(), Some(&transposed));
    assert_eq!(block.n_bytes(), plain_bytes + 4 * (7 + 8 + 8));
    assert_eq!(block, plain, "equality should ignore the cached transposed block");
    assert_eq!(block.take_transposed(), Some(transposed));
    assert_eq!((block.transposed(), block.n_bytes()), (None, plain_bytes));
}

#[test]
#[should_panic(expected = "indptr must end at the number of indices")]
fn rejects_inconsistent_arrays() {
    TransposedBlock::of_edges(&[0, 2], &[LocalId(0)], 1);
}

use std::collections::HashSet;

use kiln_graph::{Block, Csc, NodeId};

/// Checks that a block could come from the graph: destinations as given and first among distinct
/// sources, every edge one of the graph's with its own source and destination, edge ids ascending for
/// each destination, each source being a destination or used by an edge, and new sources numbered by
/// first appearance.
///
/// # Panics
/// When one of these does not hold, saying which.
pub fn check_block(graph: &Csc, dsts: &[NodeId], block: &Block) {
    assert_eq!(block.dsts(), dsts, "destinations");
    let distinct: HashSet<NodeId> = block.srcs().iter().copied().collect();
    assert_eq!(distinct.len(), block.n_src(), "sources are distinct");
    let mut n_seen = block.n_dst();
    for (row, &dst) in dsts.iter().enumerate() {
        let range = block.indptr()[row] as usize..block.indptr()[row + 1] as usize;
        let edge_ids = &block.edge_ids()[range.clone()];
        assert!(edge_ids.is_sorted(), "edge ids of destination {} ascend", dst.0);
        for (&local, &edge) in block.indices()[range].iter().zip(edge_ids) {
            assert_eq!(graph.indices()[edge.index()], block.global(local), "source of edge {}", edge.0);
            let of_dst = graph.first_edge(dst).0..graph.first_edge(dst).0 + graph.in_degree(dst);
            assert!(of_dst.contains(&edge.0), "edge {} ends in {}", edge.0, dst.0);
            assert!(local.index() <= n_seen, "sources are numbered by first appearance");
            n_seen = n_seen.max(local.index() + 1);
        }
    }
    assert_eq!(n_seen, block.n_src(), "every source is a destination or used");
}

/// Checks that the picks of every destination that stands in both blocks are the same.
///
/// # Panics
/// When a destination's edges differ, naming it.
pub fn check_same_edges(one: &Block, other: &Block) {
    let edges = |block: &Block, row: usize| {
        block.edge_ids()[block.indptr()[row] as usize..block.indptr()[row + 1] as usize].to_vec()
    };
    for (row, dst) in one.dsts().iter().enumerate() {
        if let Some(other_row) = other.dsts().iter().position(|node| node == dst) {
            assert_eq!(edges(one, row), edges(other, other_row), "picks of node {}", dst.0);
        }
    }
}

/// The probability that counts as far from `expected` as these, or farther, come about by chance:
/// Pearson's chi-square test, with the tail by Wilson and Hilferty (1931), which is good to a few per
/// cent of its value for 3 degrees of freedom or more.
///
/// # Panics
/// When the lengths differ.
pub fn chi_square_p_value(observed: &[u64], expected: &[f64]) -> f64 {
    assert_eq!(observed.len(), expected.len(), "one expectation a count");
    let statistic: f64 =
        observed.iter().zip(expected).map(|(&seen, want)| (seen as f64 - want).powi(2) / want).sum();
    let freedom = (observed.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let z = ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    normal_upper_tail(z)
}

/// `P(Z > z)` of a standard normal (Abramowitz and Stegun 1964, 26.2.17; error below 7.5e-8).
fn normal_upper_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - normal_upper_tail(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let polynomial = series.iter().fold(0.0, |sum, coefficient| sum * t + coefficient) * t;
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

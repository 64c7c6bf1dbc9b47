use std::collections::HashSet;

use kiln_graph::{Block, Csc, NodeId};

/// Checks the invariants of a sampled block: its destinations are `dsts` and come first among distinct sources; every
/// edge is an edge of the graph with the same source, destination and, if the block has types, type; edge ids ascend within each destination; each
/// source is a destination or used by an edge; and new sources are numbered by first appearance.
///
/// # Panics
/// Panics with a message if an invariant does not hold.
pub fn check_block(graph: &Csc, dsts: &[NodeId], block: &Block) {
    assert_eq!(block.dsts(), dsts, "the block's destinations should be `dsts`");
    let distinct: HashSet<NodeId> = block.srcs().iter().copied().collect();
    assert_eq!(distinct.len(), block.n_src(), "sources should be distinct");
    let mut n_seen = block.n_dst();
    for (row, &dst) in dsts.iter().enumerate() {
        let range = block.indptr()[row] as usize..block.indptr()[row + 1] as usize;
        let edge_ids = &block.edge_ids()[range.clone()];
        assert!(edge_ids.is_sorted(), "edge ids of destination {} should ascend", dst.0);
        for (&local, &edge) in block.indices()[range].iter().zip(edge_ids) {
            assert_eq!(
                graph.indices()[edge.index()],
                block.global(local),
                "edge {} should have the same source in the graph and the block",
                edge.0
            );
            let of_dst = graph.first_edge(dst).0..graph.first_edge(dst).0 + graph.in_degree(dst);
            assert!(of_dst.contains(&edge.0), "edge {} should end in node {}", edge.0, dst.0);
            assert!(local.index() <= n_seen, "sources should be numbered by first appearance");
            n_seen = n_seen.max(local.index() + 1);
        }
    }
    assert_eq!(n_seen, block.n_src(), "every source should be a destination or used by an edge");
    if let Some(edge_types) = block.edge_types() {
        let all = graph.edge_types().expect("the graph of a block with edge types should have them");
        for (&edge, &edge_type) in block.edge_ids().iter().zip(edge_types) {
            let expected = all[edge.index()];
            assert_eq!(edge_type, expected, "edge {} should have the same type in graph and block", edge.0);
        }
    }
}

/// Checks that each destination that both blocks contain has the same edges in both.
///
/// # Panics
/// Panics if the edges of a destination differ.
pub fn check_same_edges(one: &Block, other: &Block) {
    let edges = |block: &Block, row: usize| {
        block.edge_ids()[block.indptr()[row] as usize..block.indptr()[row + 1] as usize].to_vec()
    };
    for (row, dst) in one.dsts().iter().enumerate() {
        if let Some(other_row) = other.dsts().iter().position(|node| node == dst) {
            assert_eq!(
                edges(one, row),
                edges(other, other_row),
                "node {} should have the same edges in both blocks",
                dst.0
            );
        }
    }
}

/// Returns the p-value of Pearson's chi-square test: the probability that random counts deviate from `expected` at
/// least as much as `observed`. The tail is approximated by Wilson and Hilferty (1931), with an error of a few per cent
/// of the value for at least 3 degrees of freedom.
///
/// # Panics
/// Panics if the lengths differ.
pub fn chi_square_p_value(observed: &[u64], expected: &[f64]) -> f64 {
    assert_eq!(observed.len(), expected.len(), "`observed` and `expected` should have the same length");
    let statistic: f64 =
        observed.iter().zip(expected).map(|(&seen, want)| (seen as f64 - want).powi(2) / want).sum();
    let freedom = (observed.len() - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let z = ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt();
    normal_upper_tail(z)
}

/// Returns the upper tail `P(Z > z)` of the standard normal distribution (Abramowitz and Stegun 1964, 26.2.17; error
/// below 7.5e-8).
fn normal_upper_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - normal_upper_tail(-z);
    }
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let polynomial = series.iter().fold(0.0, |sum, coefficient| sum * t + coefficient) * t;
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial
}

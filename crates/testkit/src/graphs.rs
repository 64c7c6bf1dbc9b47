use std::sync::Arc;

use kiln_graph::{Csc, CscBuilder};
use proptest::prelude::*;

/// Returns the six-node graph that tests with exact expected arrays use.
///
/// ```text
///   0 -> 1 -> 2          in-neighbours: 0: -      1: 0      2: 1 3 4
///   ^         ^                         3: 3 4    4: -      5: 2
///   .    3 ---+          edge ids       0 -> 1: 0    1 -> 2: 1    3 -> 2: 2    4 -> 2: 3
///        ^(3) |                         3 -> 3: 4    4 -> 3: 5    2 -> 5: 6
///   4 ---+----+    2 -> 5
/// ```
pub fn six_nodes() -> Arc<Csc> {
    let srcs = [0, 1, 3, 4, 3, 4, 2];
    let dsts = [1, 2, 2, 2, 3, 3, 5];
    Arc::new(CscBuilder::new(6).build(&srcs, &dsts).expect("the six-node graph should build"))
}

/// Returns a ring, in which node `v` has the in-neighbours `v - 1` and `v + 1`. If node `v` has the feature `[v]`, a
/// gathered matrix can be checked without a reference implementation.
pub fn ring(n_nodes: u32) -> Arc<Csc> {
    let srcs: Vec<u32> = (0..n_nodes).collect();
    let dsts: Vec<u32> = (0..n_nodes).map(|node| (node + 1) % n_nodes).collect();
    let graph = CscBuilder::new(n_nodes as usize).symmetrize().build(&srcs, &dsts);
    Arc::new(graph.expect("a ring should build"))
}

/// Returns a star, in which node 0 has the in-neighbours `1..=degree` and the other nodes have none.
pub fn hub(degree: u32) -> Arc<Csc> {
    let srcs: Vec<u32> = (1..=degree).collect();
    let graph = CscBuilder::new(degree as usize + 1).build(&srcs, &vec![0; degree as usize]);
    Arc::new(graph.expect("a star should build"))
}

/// A graph as an edge list (COO).
#[derive(Debug, Clone)]
pub struct CooGraph {
    /// The number of nodes.
    pub n_nodes: usize,
    /// The source of each edge.
    pub srcs: Vec<u32>,
    /// The destination of each edge.
    pub dsts: Vec<u32>,
}

impl CooGraph {
    /// Builds the graph in CSC form with all edges.
    pub fn csc(&self) -> Arc<Csc> {
        let graph = CscBuilder::new(self.n_nodes).build(&self.srcs, &self.dsts);
        Arc::new(graph.expect("a list of valid edges should build"))
    }
}

/// Returns a strategy for random edge lists with 1 to 39 nodes and up to 299 edges, including self loops, parallel
/// edges and isolated nodes.
pub fn arb_coo() -> impl Strategy<Value = CooGraph> {
    (1usize..40).prop_flat_map(|n_nodes| {
        let node = 0..n_nodes as u32;
        prop::collection::vec((node.clone(), node), 0..300).prop_map(move |edges| {
            let (srcs, dsts) = edges.into_iter().unzip();
            CooGraph { n_nodes, srcs, dsts }
        })
    })
}

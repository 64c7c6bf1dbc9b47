//! Stage `graph`: from an edge list in memory to a [`Csc`]. The rate is edges of the list.

use std::error::Error;

use criterion::{BenchmarkId, Throughput};
use kiln_benches::{inputs, settings};
use kiln_graph::{Csc, CscBuilder, Duplicates, NodeId};

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = settings();
    let mut group = criterion.benchmark_group("graph");
    for input in inputs()? {
        let graph = &input.dataset.graph;
        let (srcs, dsts) = scattered_edges(graph);
        let plain = CscBuilder::new(graph.n_nodes());
        let symmetric = plain.clone().symmetrize().duplicates(Duplicates::Remove);
        for (variant, builder) in [("build", plain), ("symmetrize-deduplicate", symmetric)] {
            group.throughput(Throughput::Elements(graph.n_edges()));
            group.bench_function(BenchmarkId::new(variant, input.name), |bencher| {
                bencher.iter(|| builder.build(&srcs, &dsts).expect("the edges should be a graph's"));
            });
        }
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}

/// The graph's edges in an order that is neither by source nor by destination, as files have them.
fn scattered_edges(graph: &Csc) -> (Vec<u32>, Vec<u32>) {
    let n_edges = graph.n_edges() as usize;
    let mut dst_of_edge = Vec::with_capacity(n_edges);
    for dst in 0..graph.n_nodes() as u32 {
        dst_of_edge.extend(std::iter::repeat_n(dst, graph.in_neighbors(NodeId(dst)).len()));
    }
    // A prime stride that does not divide the number of edges meets each edge once.
    const STRIDE: usize = 1_000_003;
    assert_ne!(n_edges % STRIDE, 0, "{n_edges} edges are a multiple of the stride");
    let order = || (0..n_edges).map(|i| i * STRIDE % n_edges);
    let srcs = order().map(|edge| graph.indices()[edge].0).collect();
    (srcs, order().map(|edge| dst_of_edge[edge]).collect())
}

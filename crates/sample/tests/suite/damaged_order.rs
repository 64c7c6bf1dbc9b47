//! Orders by time that do not belong to the edges: errors or edges of the destination, and no panics.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Csc, EdgeTimes, NodeId, TimeScale};
use kiln_sample::{
    Error, ExcludedEdges, Fanout, FrontierSampler, NeighborSampler, RngKey, Rule, SamplerConfig, Scratch,
    Seeds, TimeLimits,
};
use kiln_testkit::arb_coo;
use proptest::prelude::*;

/// Returns the entries of an order: any numbers, or places that may repeat.
fn arb_order(n_edges: usize) -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        prop::collection::vec(any::<u32>(), n_edges),
        prop::collection::vec(0..4_u32, n_edges),
        prop::collection::vec(0..40_u32, n_edges),
    ]
}

fn arb_graph() -> impl Strategy<Value = Csc> {
    arb_coo().prop_flat_map(|coo| {
        let graph = Csc::clone(&coo.csc());
        let n_edges = graph.n_edges() as usize;
        let scale = prop_oneof![Just((0, 0)), Just((-3, 2)), Just((i64::MAX, 63)), Just((i64::MIN, 31))];
        (prop::collection::vec(-5..5_i64, n_edges), arb_order(n_edges), scale).prop_map(
            move |(times, order, (first, shift))| {
                let times = EdgeTimes::new(times.into(), order.into(), TimeScale { first, shift }).unwrap();
                graph.clone().with_ordered_times(times).unwrap()
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_damaged_order_is_an_error_or_gives_edges_of_the_destination(
        graph in arb_graph(),
        fanout in prop_oneof![Just(Fanout::All), (0..9_u32).prop_map(Fanout::UpTo)],
        window in prop_oneof![Just(None), (0..6_u64).prop_map(Some)],
        rule in 0..4_usize,
        excludes in any::<bool>(),
    ) {
        let graph = Arc::new(graph);
        let rule = Rule::BUILT_IN.into_iter().chain([Rule::MostRecent]).nth(rule).unwrap();
        let config = SamplerConfig::new([fanout; 2])
            .with_rule(rule)
            .with_time_limits(TimeLimits { includes_equal: false, window });
        let sampler = NeighborSampler::with_config(Arc::clone(&graph), config).unwrap();
        let nodes: Vec<NodeId> = (0..graph.n_nodes() as u32).map(NodeId).collect();
        let times: Vec<i64> = (0..nodes.len() as i64).map(|time| time % 7 - 3).collect();
        let mut seeds = Seeds::nodes(nodes.clone()).with_times(times);
        if excludes {
            let pairs = nodes.iter().map(|node| (NodeId(0), *node));
            seeds = seeds.excluding(Arc::new(ExcludedEdges::new(pairs)));
        }
        match sampler.sample_blocks(&seeds, RngKey::new(3), &mut Scratch::default()) {
            Err(error) => prop_assert!(matches!(error, Error::DamagedGraph(_)), "{}", error),
            Ok(sampled) => {
                for block in sampled.blocks {
                    for (row, dst) in block.dsts().iter().enumerate() {
                        let first = graph.first_edge(*dst).0;
                        let own = first..first + graph.in_degree(*dst);
                        let edges = block.indptr()[row] as usize..block.indptr()[row + 1] as usize;
                        prop_assert!(block.edge_ids()[edges].iter().all(|edge| own.contains(&edge.0)));
                    }
                }
            }
        }
    }
}

//! Sampling on a device without some edges: the blocks are bit-identical to those of the host.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_graph::NodeId;
use kiln_kernels::DeviceGraph;
use kiln_kernels::testing::device;
use kiln_sample::{EdgeWeights, ExcludedEdges, Fanout, FrontierSampler, RngKey, Scratch};
use kiln_testkit::arb_coo;
use proptest::prelude::*;

use super::rule::rules;
use super::sampler::{arb_fanout, check_same, check_same_blocks, larger, nodes, on_host, sampler, weighted};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// The excluded edges include parallel edges, self loops, pairs without an edge, and nodes out of range.
    #[test]
    fn device_and_host_exclude_the_same_edges(
        graph in arb_coo(),
        fanouts in prop::collection::vec(arb_fanout(), 1..4),
        rule in prop::sample::select(rules()),
        weights in prop::sample::select(&[EdgeWeights::None, EdgeWeights::Stored, EdgeWeights::Unbiased]),
        picked in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        edges in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
        seed in any::<u64>(),
    ) {
        let csc = weighted(&graph);
        let of_edges = edges.iter().filter(|_| !graph.srcs.is_empty()).map(|index| {
            let edge = index.index(graph.srcs.len());
            (NodeId(graph.srcs[edge]), NodeId(graph.dsts[edge]))
        });
        let last = NodeId(u32::MAX);
        let others = [(NodeId(0), NodeId(0)), (last, NodeId(0)), (NodeId(0), last), (last, last)];
        let excluded = ExcludedEdges::with_reverses(of_edges.chain(others));
        let seeds = nodes(picked.iter().map(|index| index.index(graph.n_nodes) as u32));
        let seeds = seeds.excluding(Some(Arc::new(excluded)));
        let key = RngKey::new(seed);
        let expected = on_host(&csc, &fanouts, rule.clone(), weights, &seeds, key);
        let mut scratch = Scratch::default();
        for graph in [DeviceGraph::new(csc.clone(), &device()), DeviceGraph::host_staged(csc.clone(), &device())] {
            let sampler = sampler(graph.unwrap(), &fanouts, rule.clone(), weights);
            check_same_blocks(FrontierSampler::sample_blocks(&sampler, &seeds, key, &mut scratch).unwrap(), &expected);
            check_same(&sampler.sample_blocks(&seeds, key, &mut scratch).unwrap(), &expected);
        }
    }
}

/// Nodes 17 and 2000 have thousands of in-edges, some of them parallel, of which hundreds of runs are excluded; so are
/// sources without an edge, and the first and the last neighbour.
#[test]
fn device_and_host_exclude_the_same_edges_of_a_hub() {
    let csc = weighted(&larger());
    let pairs = [17, 2000].map(NodeId).into_iter().flat_map(|hub| {
        let neighbors = csc.in_neighbors(hub);
        let ends = [neighbors[0], neighbors[neighbors.len() - 1]];
        let every_third = (0..3000).step_by(3).map(NodeId);
        every_third.chain(ends).chain([hub]).map(move |src| (src, hub))
    });
    let excluded = Arc::new(ExcludedEdges::new(pairs));
    assert!(900 < excluded.srcs_into(NodeId(17)).len());
    let seeds = nodes([17, 2000, 5, 17, 900]).excluding(Some(excluded));
    let mut scratch = Scratch::default();
    for rule in rules() {
        for fanout in [Fanout::UpTo(0), Fanout::UpTo(25), Fanout::UpTo(1000), Fanout::All] {
            let (fanouts, key) = ([Fanout::UpTo(3), fanout], RngKey::new(5));
            let expected = on_host(&csc, &fanouts, rule.clone(), EdgeWeights::Unbiased, &seeds, key);
            for graph in
                [DeviceGraph::new(csc.clone(), &device()), DeviceGraph::host_staged(csc.clone(), &device())]
            {
                let sampler = sampler(graph.unwrap(), &fanouts, rule.clone(), EdgeWeights::Unbiased);
                check_same(&sampler.sample_blocks(&seeds, key, &mut scratch).unwrap(), &expected);
            }
        }
    }
}

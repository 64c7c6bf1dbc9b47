//! Samples without some edges are those of the whole graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_data::Dataset;
use kiln_graph::NodeId;
use kiln_remote::{DistNeighborSampler, RuleRegistry};
use kiln_sample::{
    EdgeWeights, ExcludedEdges, FrontierSampler, NeighborSampler, Rule, SampledBlocks, SamplerConfig, Scratch,
};

use crate::cluster::{Cluster, N_NODES, hubs, parts};
use crate::same::{FANOUTS, batches, last_ones, modes, sampled as plain, ways};

/// Edges of the graph of hubs to leave out: parallel edges, self pairs, pairs without an edge, and both directions.
fn excluded(data: &Dataset) -> Arc<ExcludedEdges> {
    let graph = &data.graph;
    let srcs = |dst: u32| {
        graph.relation(0).graph.in_neighbors(NodeId(dst)).iter().map(move |src| (*src, NodeId(dst)))
    };
    let of_edges = (0..N_NODES as u32).flat_map(|dst| srcs(dst).skip(dst as usize % 3).step_by(3));
    let others = (0..N_NODES as u32).map(|node| (NodeId(node), NodeId(node / 2)));
    Arc::new(ExcludedEdges::with_reverses(of_edges.chain(others)))
}

#[test]
fn blocks_with_excluded_edges_equal_those_of_the_whole_graph() {
    let data = hubs();
    let excluded = excluded(&data);
    let sampled = |sampler: &dyn FrontierSampler| -> Vec<SampledBlocks> {
        let mut scratch = Scratch::default();
        let batches = batches().into_iter();
        batches
            .map(|(seeds, key)| {
                let seeds = seeds.excluding(Some(Arc::clone(&excluded)));
                sampler.sample_blocks(&seeds, key, &mut scratch).unwrap()
            })
            .collect()
    };
    let weights = EdgeWeights::Unbiased;
    let rules = || RuleRegistry::default().register("last-ones", last_ones).unwrap();
    for (n_parts, owner) in ways() {
        let parts = parts(&data, n_parts, owner, None);
        for own in modes(&parts) {
            let cluster = Cluster::of(&parts, own, rules());
            let named = cluster.graph.rule("last-ones").unwrap();
            for rule in Rule::BUILT_IN.iter().cloned().chain([named, last_ones.into()]) {
                let config = SamplerConfig::new(FANOUTS).with_rule(rule.clone()).with_weights(weights);
                let whole =
                    NeighborSampler::with_config(Arc::clone(data.csc().unwrap()), config.clone()).unwrap();
                let remote = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config).unwrap();
                assert!(sampled(&remote) == sampled(&whole), "{rule:?}, {n_parts} partitions, local {own:?}");
                assert!(sampled(&whole) != plain(&whole), "{rule:?} should leave out edges");
            }
        }
    }
}

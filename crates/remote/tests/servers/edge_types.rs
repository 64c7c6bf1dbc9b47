//! Edge types of blocks equal those of the whole graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_data::Dataset;
use kiln_graph::{Csc, NodeId};
use kiln_remote::{DistNeighborSampler, RuleRegistry};
use kiln_sample::{
    Dsts, EdgeWeights, Error, ExcludedEdges, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler,
    Neighbors, NodeKey, Rule, SampledBlocks, SamplerConfig, Scratch, Selection,
};

use crate::cluster::{Cluster, hubs, parts};
use crate::same::{FANOUTS, batches, modes, sampled, ways};

/// A custom rule that picks up to `fanout` edges with an odd type.
fn odd_types(neighbors: Neighbors<'_>, _: NodeKey, fanout: u32, picks: &mut Selection) {
    let types = neighbors.edge_types.unwrap();
    let odd = (0..neighbors.degree() as u32).filter(|&at| types[at as usize] % 2 == 1);
    odd.take(fanout as usize).for_each(|at| picks.push(at));
}

fn sampled_without(sampler: &dyn FrontierSampler, excluded: &Arc<ExcludedEdges>) -> Vec<SampledBlocks> {
    let mut scratch = Scratch::default();
    let batches = batches().into_iter();
    let sample = |(seeds, key)| {
        let seeds = kiln_sample::Seeds::excluding(seeds, Some(Arc::clone(excluded)));
        sampler.sample_blocks(&seeds, key, &mut scratch).unwrap()
    };
    batches.map(sample).collect()
}

fn check_types(graph: &Csc, batches: &[SampledBlocks]) {
    let all = graph.edge_types().unwrap();
    for block in batches.iter().flat_map(|sampled| &sampled.blocks) {
        let expected: Vec<u8> = block.edge_ids().iter().map(|edge| all[edge.index()]).collect();
        assert_eq!(block.edge_types(), Some(&expected[..]));
    }
}

#[test]
fn edge_types_equal_those_of_the_whole_graph() {
    let data = hubs();
    let srcs =
        |dst: u32| data.csc().unwrap().in_neighbors(NodeId(dst)).iter().map(move |src| (*src, NodeId(dst)));
    let excluded = Arc::new(ExcludedEdges::new((0..100).flat_map(|dst| srcs(dst).step_by(3))));
    let rules = || RuleRegistry::default().register("odd-types", odd_types).unwrap();
    for (n_parts, owner) in ways() {
        let parts = parts(&data, n_parts, owner, None);
        for own in modes(&parts) {
            let cluster = Cluster::of(&parts, own, rules());
            let named = cluster.graph.rule("odd-types").unwrap();
            for rule in Rule::BUILT_IN.iter().cloned().chain([named, odd_types.into()]) {
                let config = SamplerConfig::new(FANOUTS).with_rule(rule.clone()).with_edge_types();
                let whole =
                    NeighborSampler::with_config(Arc::clone(data.csc().unwrap()), config.clone()).unwrap();
                let remote = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config).unwrap();
                let (got, expected) = (sampled(&remote), sampled(&whole));
                assert!(got == expected, "{rule:?}, {n_parts} partitions, local {own:?}");
                check_types(data.csc().unwrap(), &got);
                let (got, expected) =
                    (sampled_without(&remote, &excluded), sampled_without(&whole, &excluded));
                assert!(got == expected, "{rule:?}, {n_parts} partitions, local {own:?}, excluded edges");
                check_types(data.csc().unwrap(), &got);
            }
        }
    }
}

#[test]
fn edge_types_that_are_not_requested_are_not_sent() {
    let data = hubs();
    let cluster =
        Cluster::of(&parts(&data, 2, |node| node as usize % 2, None), None, RuleRegistry::default());
    let n_bytes = |config: SamplerConfig| {
        let sampler = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config).unwrap();
        cluster.graph.take_fetch_stats();
        let batches = sampled(&sampler);
        let n_edges: usize = batches.iter().flat_map(|it| &it.blocks).map(|block| block.n_edges()).sum();
        (cluster.graph.take_fetch_stats().remote_bytes, n_edges as u64)
    };
    for weights in [EdgeWeights::None, EdgeWeights::Stored] {
        let config = SamplerConfig::new(FANOUTS).with_weights(weights);
        let (without, n_edges) = n_bytes(config.clone());
        assert_eq!(n_bytes(config.with_edge_types()), (without + n_edges, n_edges));
    }
}

/// A sampler for the local partition that never returns edge types.
struct WithoutTypes(NeighborSampler);

impl FrontierSampler for WithoutTypes {
    fn fanouts(&self) -> &[Fanout] {
        self.0.fanouts()
    }

    fn n_nodes(&self) -> usize {
        self.0.n_nodes()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        let request = HopRequest { edge_types: false, ..request.clone() };
        self.0.sample_frontier(&request, dsts, scratch, out)
    }
}

#[test]
fn local_sampler_returns_the_edge_types_of_its_partition() {
    let data = hubs();
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    let cluster = Cluster::of(&parts, Some(1), RuleRegistry::default());
    let by_node = || Arc::new(cluster.graph.local_part().unwrap().graph_by_node(0).unwrap());
    let config = || SamplerConfig::new(FANOUTS).with_edge_types();
    let remote = || DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config()).unwrap();
    let local = NeighborSampler::with_config(by_node(), config()).unwrap();
    let whole = NeighborSampler::with_config(Arc::clone(data.csc().unwrap()), config()).unwrap();
    assert!(sampled(&remote().with_local_sampler(local).unwrap()) == sampled(&whole));
    let without = WithoutTypes(NeighborSampler::new(by_node(), FANOUTS));
    let remote = remote().with_local_sampler(without).unwrap();
    let (seeds, key) = &batches()[0];
    let error = remote.sample_blocks(seeds, *key, &mut Scratch::default()).unwrap_err();
    assert!(error.to_string().contains("returns no edge types: configure it to return them"), "{error}");
}

#[test]
fn rejects_edge_types_of_partitions_without_them() {
    let data = hubs();
    let graph =
        Csc::new(data.csc().unwrap().indptr().to_vec().into(), data.csc().unwrap().indices().to_vec().into())
            .unwrap();
    let data = Dataset { graph: graph.into(), ..data };
    let cluster =
        Cluster::of(&parts(&data, 2, |node| node as usize % 2, None), None, RuleRegistry::default());
    let config = SamplerConfig::new(FANOUTS).with_edge_types();
    let error = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config).unwrap_err();
    assert!(matches!(error, kiln_remote::Error::Sample(Error::NoEdgeTypes)), "{error}");
    let sampler = DistNeighborSampler::new(Arc::clone(&cluster.graph), FANOUTS);
    let (seeds, key) = &batches()[0];
    let plain = HopRequest::new(*key, 0, Fanout::All, EdgeWeights::None);
    for (request, is_expected) in [
        (
            HopRequest { edge_types: true, ..plain.clone() },
            (|it| matches!(it, Error::NoEdgeTypes)) as fn(&_) -> _,
        ),
        (HopRequest { weights: EdgeWeights::Stored, ..plain }, |it| matches!(it, Error::NoWeights)),
    ] {
        let (mut scratch, mut out) = (Scratch::default(), Frontier::default());
        let error = sampler
            .sample_frontier(&request, seeds.as_nodes()[..1].into(), &mut scratch, &mut out)
            .unwrap_err();
        assert!(is_expected(&error), "{error}");
    }
}

//! Edge types of blocks that are sampled on a device.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use burn::tensor::DType;
use kiln_graph::{Csc, NodeId};
use kiln_kernels::testing::{Reads, device, read_block, reads_of};
use kiln_kernels::{DeviceGraph, DeviceSampler, is_cpu};
use kiln_sample::{
    EdgeWeights, Error, ExcludedEdges, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler,
    RngKey, SamplerConfig, Scratch, Seeds,
};
use kiln_testkit::{arb_coo, check_block, hub, six_nodes};
use proptest::prelude::*;

use super::rule::rules;
use super::sampler::{arb_fanout, check_same, check_same_blocks, larger, nodes, weighted};

/// Returns the graph with a type for each edge.
fn typed(graph: &Csc) -> Arc<Csc> {
    let types: Vec<u8> = (0..graph.n_edges()).map(|edge| (edge * 37 % 256) as u8).collect();
    Arc::new(graph.clone().with_edge_types(types.into()).unwrap())
}

/// Compares the sampler on the device, from a copied and from a staged graph, with the one on the host.
fn check(graph: &Arc<Csc>, config: &SamplerConfig, seeds: &Seeds, key: RngKey) {
    let mut scratch = Scratch::default();
    let host = NeighborSampler::with_config(Arc::clone(graph), config.clone()).unwrap();
    let expected = host.sample_blocks(seeds, key, &mut scratch).unwrap();
    for of_device in [
        DeviceGraph::new(Arc::clone(graph), &device()),
        DeviceGraph::host_staged(Arc::clone(graph), &device()),
    ] {
        let sampler = DeviceSampler::with_config(of_device.unwrap(), config.clone()).unwrap();
        check_same_blocks(
            FrontierSampler::sample_blocks(&sampler, seeds, key, &mut scratch).unwrap(),
            &expected,
        );
        let sampled = sampler.sample_blocks(seeds, key, &mut scratch).unwrap();
        check_same(&sampled, &expected);
        for block in &sampled.blocks {
            let edge_types = block.edge_types().unwrap();
            assert_eq!((edge_types.dtype(), edge_types.dims()), (DType::I32, [block.n_edges()]));
            let block = read_block(block);
            check_block(graph, block.dsts(), &block);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn device_and_host_return_the_same_edge_types(
        graph in arb_coo(),
        fanouts in prop::collection::vec(arb_fanout(), 1..4),
        rule in prop::sample::select(rules()),
        weights in prop::sample::select(&[EdgeWeights::None, EdgeWeights::Stored]),
        picked in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        edges in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        seed in any::<u64>(),
    ) {
        let csc = typed(&weighted(&graph));
        let config = SamplerConfig::new(fanouts).with_rule(rule).with_weights(weights).with_edge_types();
        let of_edges = edges.iter().filter(|_| !graph.srcs.is_empty()).map(|index| {
            let edge = index.index(graph.srcs.len());
            (NodeId(graph.srcs[edge]), NodeId(graph.dsts[edge]))
        });
        let seeds = nodes(picked.iter().map(|index| index.index(graph.n_nodes) as u32));
        let seeds = seeds.excluding(Some(Arc::new(ExcludedEdges::new(of_edges))));
        check(&csc, &config, &seeds, RngKey::new(seed));
    }
}

#[test]
fn device_and_host_return_the_same_edge_types_of_a_larger_graph() {
    let csc = typed(&weighted(&larger()));
    for rule in rules() {
        let config = SamplerConfig::new([15, 10, 5]).with_rule(rule).with_edge_types();
        check(&csc, &config, &nodes(0..500), RngKey::new(3));
    }
}

/// The numbers of edges are around the number of types in a word of the device's array.
#[test]
fn edge_types_are_read_from_each_position_of_a_word() {
    for degree in 0..10 {
        let config = SamplerConfig::full(1).with_edge_types();
        check(&typed(&hub(degree)), &config, &nodes([0]), RngKey::new(0));
    }
}

#[test]
fn rejects_edge_types_of_graphs_without_them() {
    for graph in [DeviceGraph::new(six_nodes(), &device()), DeviceGraph::host_staged(six_nodes(), &device())]
    {
        let graph = graph.unwrap();
        assert!(!graph.has_edge_types());
        let config = SamplerConfig::new([Fanout::All]).with_edge_types();
        let error = DeviceSampler::with_config(graph.clone(), config).unwrap_err();
        assert!(matches!(error, Error::NoEdgeTypes), "{error}");
        let request = HopRequest::new(RngKey::new(0), 0, Fanout::All, EdgeWeights::None);
        let request = HopRequest { edge_types: true, ..request };
        let sampler = DeviceSampler::new(graph, [Fanout::All]);
        let (mut scratch, mut out) = (Scratch::default(), Frontier::default());
        let error =
            sampler.sample_frontier(&request, (&[NodeId(2)]).into(), &mut scratch, &mut out).unwrap_err();
        assert!(matches!(error, Error::NoEdgeTypes), "{error}");
    }
}

/// The graph is shared by a sampler that returns no types and, later, by one that does.
#[test]
fn requests_decide_whether_edge_types_are_returned() {
    let csc = typed(&six_nodes());
    let request = HopRequest::new(RngKey::new(0), 0, Fanout::All, EdgeWeights::None);
    let dsts = [2, 3].map(NodeId);
    for graph in [DeviceGraph::new(csc.clone(), &device()), DeviceGraph::host_staged(csc.clone(), &device())]
    {
        let sampler = DeviceSampler::new(graph.unwrap(), [Fanout::All]);
        let (mut scratch, mut out) = (Scratch::default(), Frontier::default());
        for (edge_types, expected) in [(false, None), (true, Some(csc.edge_types().unwrap()[1..6].to_vec()))]
        {
            let request = HopRequest { edge_types, ..request.clone() };
            sampler.sample_frontier(&request, (&dsts).into(), &mut scratch, &mut out).unwrap();
            assert_eq!(out.edge_types, expected);
        }
    }
}

/// The types of blocks that stay on the device are not copied to the host, and those of staged graphs are looked up there.
#[test]
fn edge_types_add_no_reads_except_for_single_hops() {
    let csc = typed(&weighted(&larger()));
    let config = SamplerConfig::new([Fanout::UpTo(3)]);
    let (dsts, seeds): (Vec<_>, _) = ((0..100).map(NodeId).collect(), nodes(0..100));
    let plain = HopRequest::new(RngKey::new(1), 0, Fanout::UpTo(3), EdgeWeights::None);
    let with_types = HopRequest { edge_types: true, ..plain.clone() };
    for (is_staged, graph) in
        [DeviceGraph::new(csc.clone(), &device()), DeviceGraph::host_staged(csc.clone(), &device())]
            .into_iter()
            .enumerate()
    {
        let graph = graph.unwrap();
        let reads_of_blocks = |config: SamplerConfig| {
            let sampler = DeviceSampler::with_config(graph.clone(), config).unwrap();
            reads_of(|| drop(sampler.sample_blocks(&seeds, RngKey::new(1), &mut Scratch::default()).unwrap()))
        };
        assert_eq!(reads_of_blocks(config.clone().with_edge_types()), reads_of_blocks(config.clone()));
        let sampler = DeviceSampler::with_config(graph, config.clone()).unwrap();
        let mut out = Frontier::default();
        let mut reads_of_hop = |request: &HopRequest| -> Reads {
            reads_of(|| {
                sampler.sample_frontier(request, (&dsts).into(), &mut Scratch::default(), &mut out).unwrap()
            })
        };
        let (without, with) = (reads_of_hop(&plain), reads_of_hop(&with_types));
        let is_read = is_staged == 0 && !is_cpu(&device());
        let type_bytes = if is_read { 4 * out.n_edges() as u64 } else { 0 };
        assert_eq!(with, Reads { n_bytes: without.n_bytes + type_bytes, ..without });
    }
}

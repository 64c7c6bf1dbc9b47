//! Tests of sampling on a device: the blocks are identical to those of the host's sampler.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_graph::{Block, BlockParts, Csc, CscBuilder, EdgeId, LocalId, NodeId, TransposedBlock};
use kiln_kernels::testing::{Reads, check_close, device, read_block, read_by_source, reads_of};
use kiln_kernels::{DeviceBlock, DeviceGraph, DeviceSampledBlocks, DeviceSampler, is_cpu};
use kiln_sample::{
    EdgeWeights, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler, RngKey, Rule, SampledBlocks,
    SamplerConfig, Scratch, Seeds,
};
use kiln_testkit::{CooGraph, arb_coo, hub, six_nodes};
use proptest::prelude::*;

use super::rule::rules;

/// Returns the graph with edge weights.
pub(crate) fn weighted(graph: &CooGraph) -> Arc<Csc> {
    let weights: Vec<f32> = (0..graph.srcs.len()).map(|edge| 0.5 + (edge % 11) as f32 * 0.25).collect();
    Arc::new(CscBuilder::new(graph.n_nodes).weights(&weights).build(&graph.srcs, &graph.dsts).unwrap())
}

pub(crate) fn on_host(
    graph: &Arc<Csc>,
    fanouts: &[Fanout],
    rule: Rule,
    weights: EdgeWeights,
    seeds: &Seeds,
    key: RngKey,
) -> SampledBlocks {
    let config = SamplerConfig::new(fanouts.to_vec()).with_rule(rule).with_weights(weights);
    let sampler = NeighborSampler::with_config(Arc::clone(graph), config).unwrap();
    sampler.sample_blocks(seeds, key, &mut Scratch::default()).unwrap()
}

fn on_device(
    graph: &Arc<Csc>,
    fanouts: &[Fanout],
    rule: Rule,
    weights: EdgeWeights,
    seeds: &Seeds,
    key: RngKey,
) -> DeviceSampledBlocks {
    let graph = DeviceGraph::new(Arc::clone(graph), &device()).unwrap();
    let sampler = sampler(graph, fanouts, rule, weights);
    sampler.sample_blocks(seeds, key, &mut Scratch::default()).unwrap()
}

pub(crate) fn sampler(
    graph: DeviceGraph,
    fanouts: &[Fanout],
    rule: Rule,
    weights: EdgeWeights,
) -> DeviceSampler {
    let config = SamplerConfig::new(fanouts.to_vec()).with_rule(rule).with_weights(weights);
    DeviceSampler::with_config(graph, config).unwrap()
}

/// Checks that blocks are equal, with a tolerance for weights, because the device's division may round differently.
pub(crate) fn check_same(got: &DeviceSampledBlocks, expected: &SampledBlocks) {
    for (layer, (got, expected)) in got.blocks.iter().zip(&expected.blocks).enumerate() {
        let sizes = (got.n_src(), got.n_dst(), got.n_edges());
        assert_eq!(sizes, (expected.n_src(), expected.n_dst(), expected.n_edges()), "layer {layer}");
    }
    let blocks = got.blocks.iter().map(read_block).collect();
    check_same_blocks(SampledBlocks { blocks, seed_index: got.seed_index.clone() }, expected);
}

pub(crate) fn check_same_blocks(got: SampledBlocks, expected: &SampledBlocks) {
    assert_eq!(got.seed_index, expected.seed_index);
    assert_eq!(got.blocks.len(), expected.blocks.len());
    for (layer, (got, expected)) in got.blocks.into_iter().zip(&expected.blocks).enumerate() {
        match (got.weights(), expected.weights()) {
            (None, None) => {}
            (Some(got), Some(expected)) => check_close(got, expected, 1e-6),
            _ => panic!("layer {layer}: only one has weights"),
        }
        assert_eq!(without_weights(got), without_weights(expected.clone()), "layer {layer}");
    }
}

fn without_weights(block: Block) -> Block {
    let mut parts = block.into_parts();
    parts.weights = None;
    Block::new(parts)
}

pub(crate) fn nodes(ids: impl IntoIterator<Item = u32>) -> Seeds {
    Seeds::nodes(ids.into_iter().map(NodeId).collect())
}

pub(crate) fn arb_fanout() -> impl Strategy<Value = Fanout> {
    prop_oneof![Just(Fanout::All), (0_u32..12).prop_map(Fanout::UpTo)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// The cases include self loops, parallel edges, isolated nodes, duplicate seeds and no seeds.
    #[test]
    fn device_and_host_sample_identical_blocks(
        graph in arb_coo(),
        fanouts in prop::collection::vec(arb_fanout(), 1..4),
        rule in prop::sample::select(rules()),
        weights in prop::sample::select(&[EdgeWeights::None, EdgeWeights::Stored, EdgeWeights::Unbiased]),
        picked in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
        seed in any::<u64>(),
    ) {
        let csc = weighted(&graph);
        let seeds = nodes(picked.iter().map(|index| index.index(graph.n_nodes) as u32));
        let key = RngKey::new(seed);
        let got = on_device(&csc, &fanouts, rule.clone(), weights, &seeds, key);
        let expected = on_host(&csc, &fanouts, rule.clone(), weights, &seeds, key);
        check_same(&got, &expected);
        // The blocks are also identical if the host assembles them from hops, and if the neighbour lists are copied hop
        // by hop.
        let mut scratch = Scratch::default();
        for graph in [DeviceGraph::new(csc.clone(), &device()), DeviceGraph::host_staged(csc.clone(), &device())] {
            let sampler = sampler(graph.unwrap(), &fanouts, rule.clone(), weights);
            check_same_blocks(FrontierSampler::sample_blocks(&sampler, &seeds, key, &mut scratch).unwrap(), &expected);
            check_same(&sampler.sample_blocks(&seeds, key, &mut scratch).unwrap(), &expected);
        }
    }
}

/// Returns a graph with hubs that is large enough to fill several chunks of every kernel.
pub(crate) fn larger() -> CooGraph {
    let n_nodes = 3000_u32;
    let mut edges = Vec::new();
    let mut state = 1_u32;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    for _ in 0..40_000 {
        edges.push((draw(n_nodes), draw(n_nodes - 100)));
    }
    // Two nodes have many in-edges, and one of them also has many out-edges.
    for _ in 0..4000 {
        edges.push((draw(n_nodes), 17));
        edges.push((draw(n_nodes), 2000));
        edges.push((17, draw(n_nodes)));
    }
    let (srcs, dsts) = edges.into_iter().unzip();
    CooGraph { n_nodes: n_nodes as usize, srcs, dsts }
}

#[test]
fn device_and_host_sample_identical_blocks_of_hubs_and_many_seeds() {
    let csc = weighted(&larger());
    let seeds = nodes((0..900).map(|seed| seed * 7 % 3000).chain([17, 17, 2000]));
    let key = RngKey::new(3);
    for rule in rules() {
        for fanouts in [[15, 10, 5].map(Fanout::UpTo), [Fanout::UpTo(40), Fanout::All, Fanout::UpTo(3)]] {
            let got = on_device(&csc, &fanouts, rule.clone(), EdgeWeights::None, &seeds, key);
            check_same(&got, &on_host(&csc, &fanouts, rule.clone(), EdgeWeights::None, &seeds, key));
        }
    }
}

/// The blocks have sources with no edge, with one edge and with thousands of edges. The edges of each source are counted
/// when the block is sampled, or, for a block from the host, when its transposed block is built.
#[test]
fn device_and_host_build_identical_transposed_blocks() {
    let larger = weighted(&larger());
    let graphs = [(six_nodes(), 6), (hub(700), 701), (Arc::clone(&larger), 900), (larger, 3000)];
    for (graph, n_seeds) in graphs {
        for fanout in [Fanout::UpTo(0), Fanout::UpTo(1), Fanout::UpTo(7), Fanout::All] {
            let (seeds, key) = (nodes(0..n_seeds), RngKey::new(2));
            let got = on_device(&graph, &[fanout], Rule::Uniform, EdgeWeights::None, &seeds, key);
            let expected = on_host(&graph, &[fanout], Rule::Uniform, EdgeWeights::None, &seeds, key);
            let uploaded = DeviceBlock::upload(&expected.blocks[0], &device());
            let expected = TransposedBlock::of(&expected.blocks[0]);
            let expected = [expected.indptr(), expected.dsts(), expected.edges()];
            assert_eq!(read_by_source(&got.blocks[0]), expected, "{n_seeds} seeds, {fanout:?}");
            assert_eq!(read_by_source(&uploaded), expected, "{n_seeds} seeds, {fanout:?}, uploaded");
        }
    }
}

/// With more than 2^20 edges, the edges of a hub are counted in pieces of more than 1024 edges. Three sources have long
/// lists, which begin and end within a piece; the edges of two of them alternate.
#[test]
fn device_and_host_build_identical_transposed_blocks_of_a_million_edges() {
    let n_edges = (1 << 20) + 5000;
    let source_of = |edge: u32| match edge {
        0..200_000 => 1 + edge % 2,
        200_000..210_000 => 4,
        _ => 5 + edge % 1000,
    };
    let n_src = 1005;
    let block = Block::new(BlockParts {
        srcs: (0..n_src).map(NodeId).collect(),
        indptr: (0..=n_edges / 8).map(|dst| dst * 8).chain([n_edges]).take(1001).chain([n_edges]).collect(),
        indices: (0..n_edges).map(|edge| LocalId(source_of(edge))).collect(),
        edge_ids: (0..u64::from(n_edges)).map(EdgeId).collect(),
        ..BlockParts::default()
    });
    let expected = TransposedBlock::of(&block);
    let uploaded = DeviceBlock::upload(&block, &device());
    let got = read_by_source(&uploaded);
    assert!(got == [expected.indptr(), expected.dsts(), expected.edges()], "the transposed blocks differ");
}

#[test]
fn fanouts_above_any_degree_take_all_edges() {
    let star = hub(700);
    let seeds = nodes([0, 5]);
    let key = RngKey::new(9);
    for fanout in [Fanout::UpTo(699), Fanout::UpTo(700), Fanout::UpTo(u32::MAX), Fanout::All] {
        let got = on_device(&star, &[fanout], Rule::Uniform, EdgeWeights::None, &seeds, key);
        check_same(&got, &on_host(&star, &[fanout], Rule::Uniform, EdgeWeights::None, &seeds, key));
    }
}

/// If the bound on the number of a hop's edges exceeds 4 million, the actual number is read before memory is allocated.
#[test]
fn hops_with_a_large_edge_bound_allocate_only_what_they_need() {
    let star = hub(40_000);
    let key = RngKey::new(4);
    for (n_seeds, n_reads) in [(100, 1), (500, 2)] {
        let seeds = nodes(0..n_seeds);
        let mut got = None;
        let sample =
            || got = Some(on_device(&star, &[Fanout::All], Rule::Uniform, EdgeWeights::None, &seeds, key));
        let is_host = is_cpu(&device());
        assert_eq!(reads_of(sample).n_reads, if is_host { 0 } else { n_reads });
        let got = got.unwrap();
        // The block takes at most 24 bytes per edge and 8 bytes per node, and has 40,000 of each.
        assert!(n_reads == 1 || got.blocks[0].n_bytes() < 40_000 * 32, "{}", got.blocks[0].n_bytes());
        let expected = on_host(&star, &[Fanout::All], Rule::Uniform, EdgeWeights::None, &seeds, key);
        check_same(&got, &expected);
        for graph in
            [DeviceGraph::new(star.clone(), &device()), DeviceGraph::host_staged(star.clone(), &device())]
        {
            let sampler = DeviceSampler::new(graph.unwrap(), [Fanout::All]);
            let got = FrontierSampler::sample_blocks(&sampler, &seeds, key, &mut Scratch::default()).unwrap();
            check_same_blocks(got, &expected);
        }
    }
}

/// The binary search for self loops is undefined on such a graph, but the block must have valid edges.
#[test]
fn unsorted_neighbours_give_blocks_with_valid_edges() {
    let indices: Vec<NodeId> = [2, 0, 2, 1, 2, 0, 2, 2, 1].map(NodeId).to_vec();
    let graph = Arc::new(Csc::new(vec![0, 0, 0, 9].into(), indices.into()).unwrap());
    for fanout in 0..9 {
        let (seeds, key) = (nodes([2]), RngKey::new(1));
        let fanouts = [Fanout::UpTo(fanout)];
        let got = on_device(&graph, &fanouts, Rule::UniformKeepSelfLoops, EdgeWeights::None, &seeds, key);
        let block = read_block(&got.blocks[0]);
        assert!(block.edge_ids().is_sorted() && block.n_edges() <= 9);
        assert!(
            block
                .edge_ids()
                .iter()
                .zip(block.indices())
                .all(|(edge, local)| { graph.indices()[edge.index()] == block.global(*local) })
        );
    }
}

#[test]
fn the_host_waits_once_per_hop_and_reads_only_three_numbers() {
    let graph = DeviceGraph::new(weighted(&larger()), &device()).unwrap();
    let is_host = is_cpu(&device());
    let sampler = sampler(graph, &[15, 10, 5].map(Fanout::UpTo), Rule::Uniform, EdgeWeights::Stored);
    let seeds = nodes(0..1000);
    let reads = reads_of(|| {
        let sampled = sampler.sample_blocks(&seeds, RngKey::new(1), &mut Scratch::default()).unwrap();
        assert!(10_000 < sampled.blocks[0].n_edges());
    });
    // Each hop reads three numbers of four bytes: the number of edges, the number of new sources, and the largest number
    // of edges of a source.
    let expected = if is_host { Reads::default() } else { Reads { n_reads: 3, n_bytes: 3 * 12 } };
    assert_eq!(reads, expected);
}

#[test]
fn staged_hops_read_back_only_the_picks() {
    let graph = DeviceGraph::host_staged(weighted(&larger()), &device()).unwrap();
    let is_host = is_cpu(&device());
    let sampler = DeviceSampler::new(graph, [Fanout::UpTo(3)]);
    let (dsts, mut out) = ((0..100).map(NodeId).collect::<Vec<_>>(), Frontier::default());
    let request = HopRequest::new(RngKey::new(1), 0, Fanout::UpTo(3), EdgeWeights::None);
    let reads = reads_of(|| {
        sampler.sample_frontier(&request, (&dsts).into(), &mut Scratch::default(), &mut out).unwrap()
    });
    // The host reads the offsets of the destinations first, then the sources and ids of the edges.
    let n_bytes = 4 * 101 + 12 * out.n_edges() as u64;
    let expected = if is_host { Reads::default() } else { Reads { n_reads: 2, n_bytes } };
    assert_eq!(reads, expected);
    assert!(200 < out.n_edges());
}

#[test]
fn without_layers_the_inputs_are_the_distinct_seeds() {
    let graph = DeviceGraph::new(six_nodes(), &device()).unwrap();
    let sampler = DeviceSampler::new(graph, [Fanout::All; 0]);
    let sampled = sampler.sample_blocks(&nodes([4, 2, 4]), RngKey::new(0), &mut Scratch::default()).unwrap();
    assert_eq!(sampled.seed_index, [0, 1, 0].map(LocalId));
    #[expect(clippy::disallowed_methods, reason = "nothing writes to the tensor afterwards")]
    let inputs = sampled.input_nodes.into_data();
    assert_eq!(inputs.try_to_vec::<u32>().unwrap(), [4, 2]);
}

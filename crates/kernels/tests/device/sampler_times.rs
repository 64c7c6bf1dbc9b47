//! Sampling at the times of seeds on a device: the blocks are bit-identical to those of the host.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_graph::{Csc, EdgeColumn, EdgeColumns, EdgeTimes, NodeId, NodeTypes, RelationEdges, Relations};
use kiln_kernels::testing::device;
use kiln_kernels::{DeviceGraph, DeviceSampler, UploadError, is_cpu};
use kiln_sample::{
    DamagedGraphError, EdgeWeights, Error, ExcludedEdges, Fanout, FrontierSampler, HeteroNeighborSampler,
    NeighborSampler, RngKey, Rule, SampledBlocks, SamplerConfig, Scratch, Seeds, TimeLimits, TimesError,
};
use kiln_testkit::{arb_coo, six_nodes};
use proptest::prelude::*;

use super::rule;
use super::sampler::{arb_fanout, check_same, check_same_blocks, larger, weighted};

fn rules() -> Vec<Rule> {
    rule::rules().into_iter().chain([Rule::MostRecent]).collect()
}

/// Returns copies of a graph on the device, and on the host for the device.
fn copies(graph: &Arc<Csc>) -> [DeviceGraph; 2] {
    [DeviceGraph::new(Arc::clone(graph), &device()), DeviceGraph::host_staged(Arc::clone(graph), &device())]
        .map(Result::unwrap)
}

/// Checks that the samplers on the device return the blocks of the host, which it returns.
fn check_seeds(graph: &Arc<Csc>, config: &SamplerConfig, seeds: &Seeds, key: RngKey) -> SampledBlocks {
    let mut scratch = Scratch::default();
    let host = NeighborSampler::with_config(Arc::clone(graph), config.clone()).unwrap();
    let expected = host.sample_blocks(seeds, key, &mut scratch).unwrap();
    for copy in copies(graph) {
        let sampler = DeviceSampler::with_config(copy, config.clone()).unwrap();
        check_same(&sampler.sample_blocks(seeds, key, &mut scratch).unwrap(), &expected);
        // The blocks are also those that the host assembles from hops.
        let of_hops = FrontierSampler::sample_blocks(&sampler, seeds, key, &mut scratch).unwrap();
        for (got, expected) in of_hops.blocks.iter().zip(&expected.blocks) {
            assert_eq!(got.src_times(), expected.src_times());
        }
        check_same_blocks(of_hops, &expected);
    }
    expected
}

/// Checks that each edge is one that its item knows.
fn check_known(graph: &Csc, sampled: &SampledBlocks, limits: TimeLimits) {
    let Some(of_edges) = graph.edge_times() else { return };
    for block in &sampled.blocks {
        let times = block.src_times().unwrap();
        for (row, bounds) in block.indptr().windows(2).enumerate() {
            let (first, end) = limits.range(times[row]);
            for edge in &block.edge_ids()[bounds[0] as usize..bounds[1] as usize] {
                let time = of_edges.times()[edge.index()];
                let is_recent = first.is_none_or(|first| first <= time) || time == EdgeTimes::ALWAYS;
                assert!(time < end && is_recent, "an edge at {time} for an item at {}", times[row]);
            }
        }
    }
}

fn arb_time() -> impl Strategy<Value = i64> {
    prop_oneof![10 => -6..9_i64, 1 => Just(EdgeTimes::ALWAYS), 1 => Just(EdgeTimes::NEVER)]
}

/// Returns a time in a unit, of which scaled times may lose the lower bits.
fn in_unit(time: i64, unit: i64) -> i64 {
    if (-6..9).contains(&time) { time * unit + time } else { time }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// The cases include edges that are always or never known, equal times, windows, self loops, parallel and excluded edges, and a
    /// node at several times.
    #[test]
    fn device_and_host_sample_identical_blocks_at_times(
        graph in arb_coo(),
        edge_times in prop::collection::vec(arb_time(), 200),
        unit in prop::sample::select(&[1_i64, 1 << 50]),
        fanouts in prop::collection::vec(arb_fanout(), 1..4),
        rule in prop::sample::select(rules()),
        weights in prop::sample::select(&[EdgeWeights::None, EdgeWeights::Stored, EdgeWeights::Unbiased]),
        items in prop::collection::vec((any::<prop::sample::Index>(), arb_time()), 0..12),
        pairs in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..12),
        includes_equal in any::<bool>(),
        window in prop_oneof![Just(None), (0..8_u64).prop_map(Some)],
        seed in any::<u64>(),
    ) {
        let times = edge_times.iter().cycle().map(|time| in_unit(*time, unit));
        let times: Vec<i64> = times.take(graph.srcs.len()).collect();
        let csc = Arc::new(Csc::clone(&weighted(&graph)).with_edge_times(times).unwrap());
        let window = window.map(|window| window * unit as u64);
        let limits = TimeLimits { includes_equal, window };
        let config = SamplerConfig::new(fanouts).with_rule(rule).with_weights(weights).with_time_limits(limits);
        let node = |index: &prop::sample::Index| NodeId(index.index(graph.n_nodes) as u32);
        let seeds = Seeds::nodes(items.iter().map(|(index, _)| node(index)).collect());
        let seeds = seeds.with_times(items.iter().map(|(_, time)| in_unit(*time, unit)).collect::<Vec<i64>>());
        let excluded = ExcludedEdges::new(pairs.iter().map(|(src, dst)| (node(src), node(dst))));
        let seeds = seeds.excluding(Arc::new(excluded));
        let sampled = check_seeds(&csc, &config, &seeds, RngKey::new(seed));
        check_known(&csc, &sampled, limits);
    }
}

/// Two nodes have thousands of in-edges, of which hundreds are excluded. Many seeds share nodes or times.
#[test]
fn device_and_host_sample_identical_blocks_of_hubs_at_times() {
    let graph = larger();
    let times = |n: usize, below: u32| {
        (0..n as u32).map(move |item| i64::from(item.wrapping_mul(0x9E37_79B9) >> 8) % i64::from(below))
    };
    let n_edges = graph.srcs.len();
    let csc = Csc::clone(&weighted(&graph)).with_edge_times(times(n_edges, 5000).collect::<Vec<i64>>());
    let csc = Arc::new(csc.unwrap());
    let of_hubs = [17, 2000].map(NodeId).into_iter().flat_map(|hub| {
        let every_third = (0..3000).step_by(3).map(NodeId);
        every_third.chain([hub]).map(move |src| (src, hub))
    });
    let excluded = Arc::new(ExcludedEdges::new(of_hubs));
    let nodes: Vec<NodeId> =
        (0..60).map(|seed| NodeId(seed * 7 % 3000)).chain([17, 17, 2000].map(NodeId)).collect();
    let seeds = Seeds::nodes(nodes.clone())
        .with_times(times(nodes.len(), 5500).map(|time| time / 500 * 500).collect::<Vec<i64>>());
    let without = seeds.clone().excluding(excluded);
    for rule in rules() {
        for (seeds, fanouts) in [
            (&seeds, [15, 10].map(Fanout::UpTo)),
            (&seeds, [Fanout::UpTo(5), Fanout::All]),
            (&without, [Fanout::UpTo(3), Fanout::UpTo(25)]),
        ] {
            let limits = TimeLimits { includes_equal: false, window: Some(2000) };
            let config = SamplerConfig::new(fanouts).with_rule(rule.clone()).with_time_limits(limits);
            let config = config.with_weights(EdgeWeights::Unbiased);
            let sampled = check_seeds(&csc, &config, seeds, RngKey::new(3));
            check_known(&csc, &sampled, limits);
            assert!(200 < sampled.blocks[0].n_edges(), "{}", sampled.blocks[0].n_edges());
        }
    }
}

/// Relations with and without times.
#[test]
fn device_and_host_sample_the_same_blocks_of_relations_at_times() {
    let types = NodeTypes::new([("user", 40), ("item", 90)]).unwrap();
    let scattered =
        |n: u32, step: u32, below: u32| (0..n).map(|edge| edge * step % below).collect::<Vec<u32>>();
    let buys = (scattered(500, 7, 40), scattered(500, 11, 90));
    let with = (scattered(300, 13, 90), scattered(300, 5, 30));
    let relations = [
        RelationEdges::new("buys", "user", "item", &buys.0, &buys.1),
        RelationEdges::new("bought by", "item", "user", &buys.1, &buys.0),
        RelationEdges::new("with", "item", "item", &with.0, &with.1),
    ];
    let graph = Relations::from_edges(types, &relations).unwrap();
    let of_edges = |n: u64| (0..n).map(|edge| (edge * 37 % 101) as i64).collect::<Vec<i64>>();
    let mut all: Vec<_> = graph.iter().cloned().collect();
    for relation in all.iter_mut().filter(|relation| relation.name != "with") {
        let timed = Csc::clone(&relation.graph).with_edge_times(of_edges(relation.graph.n_edges()));
        relation.graph = Arc::new(timed.unwrap());
    }
    let graph = Relations::new(Arc::clone(graph.types()), all).unwrap();
    let fanouts =
        vec![[3, 2, 4].map(Fanout::UpTo).to_vec(), vec![Fanout::All, Fanout::UpTo(3), Fanout::UpTo(5)]];
    let nodes = (0..50).map(|item| NodeId(item * 29 % 130)).collect();
    let seeds = Seeds::nodes(nodes).with_times((0..50).map(|item| item * 17 % 8 * 15).collect::<Vec<i64>>());
    let (key, mut scratch) = (RngKey::new(9), Scratch::default());
    for rule in [Rule::Uniform, Rule::MostRecent] {
        let config = SamplerConfig { rule, ..SamplerConfig::default() }.with_edge_types();
        let host = HeteroNeighborSampler::new(&graph, fanouts.clone(), config.clone()).unwrap();
        let expected = host.sample_blocks(&seeds, key, &mut scratch).unwrap();
        let mut samplers = Vec::new();
        for relation in 0..graph.n_relations() {
            let whole = Arc::new(graph.whole_graph(relation).unwrap());
            let copy = DeviceGraph::new(whole, &device()).unwrap();
            let config = SamplerConfig { edge_types: false, ..config.clone() };
            samplers.push(DeviceSampler::with_config(copy, config).unwrap());
        }
        let schema = graph.schema().clone();
        let sampler =
            HeteroNeighborSampler::of_samplers(schema, Arc::new(samplers), fanouts.clone(), &config).unwrap();
        let got = sampler.sample_blocks(&seeds, key, &mut scratch).unwrap();
        check_same_blocks(got, &expected);
        assert!(expected.blocks.iter().all(|block| 0 < block.n_edges()));
    }
}

#[test]
fn damaged_and_missing_orders_are_rejected() {
    let graph = Csc::clone(&six_nodes());
    let n_edges = graph.n_edges() as usize;
    let timed = graph.clone().with_edge_times(vec![0_i64; n_edges]).unwrap();
    let times = timed.edge_times().unwrap();
    let zeros =
        EdgeTimes::new(times.times().to_vec().into(), vec![0; n_edges].into(), times.scale()).unwrap();
    let damaged = Arc::new(graph.clone().with_ordered_times(zeros).unwrap());
    match DeviceGraph::new(damaged, &device()) {
        // The host's sampler checks the positions that it reads.
        Ok(_) => assert!(is_cpu(&device())),
        Err(error) => {
            let UploadError::TimeOrder(Error::DamagedGraph(damage)) = &error else { panic!("{error}") };
            assert!(matches!(damage, DamagedGraphError::BadTimeOrder { .. }), "{damage}");
        }
    }
    let column = EdgeColumn::new(vec![0_i64; n_edges], 1).unwrap();
    let unordered = graph.with_column(EdgeColumns::TIMES, column).unwrap();
    for copy in copies(&Arc::new(unordered)) {
        let sampler = DeviceSampler::new(copy, [Fanout::UpTo(2)]);
        let seeds = Seeds::nodes(vec![NodeId(2)]).with_times(vec![5]);
        let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default());
        assert!(matches!(sampled.unwrap_err(), Error::Times(TimesError::NoOrder)));
    }
}

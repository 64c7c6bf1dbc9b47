//! Samples of seeds with times: those of the whole graph whose edges are ordered by time, bit for bit.

use std::sync::Arc;

use kiln_data::{Dataset, DatasetTimes};
use kiln_graph::{Csc, EdgeColumn, EdgeColumns, NodeId};
use kiln_remote::{DistGraph, DistNeighborSampler, RuleRegistry};
use kiln_sample::{
    EdgeWeights, Error, ExcludedEdges, Fanout, FrontierSampler, HeteroNeighborSampler, NeighborSampler,
    RngKey, Rule, SampledBlocks, SamplerConfig, Scratch, Seeds, TimeLimits, TimesError,
};

use crate::cluster::{Cluster, data, features, hubs, parts, wild};
use crate::heterogeneous::shop;
use crate::same::{blocks, last_ones};

/// Returns a pseudorandom time; some edges and nodes were always there, or never.
fn time(number: u64) -> i64 {
    match wild(number) % 40 {
        0 => DatasetTimes::ALWAYS,
        1 => DatasetTimes::NEVER,
        _ => (wild(number) % 30) as i64 - 10,
    }
}

/// Returns a set whose edges and nodes have times, except for the edges of relation 1 and of the last relation of several, and
/// for the nodes of the last type of several.
fn timed(mut data: Dataset, salt: u64) -> Dataset {
    let n_relations = data.graph.n_relations();
    for relation in (0..n_relations.max(2) - 1).filter(|relation| *relation != 1) {
        let n_edges = data.graph.relation(relation).graph.n_edges();
        let times: Vec<i64> = (0..n_edges).map(|edge| time(1_000 * salt + edge)).collect();
        let column = EdgeColumn::new(times, 1).unwrap();
        data = data.with_edge_column(relation, EdgeColumns::TIMES, column).unwrap();
    }
    let n_types = data.graph.types().n_types();
    for node_type in 0..n_types.max(2) - 1 {
        let n_nodes = data.graph.types().range(node_type).len() as u64;
        let times: Vec<i64> = (0..n_nodes).map(|node| time(9_000 * salt + node + 500)).collect();
        data = data.with_node_times(node_type, times).unwrap();
    }
    data
}

/// Returns batches of nodes of which some occur at several times, and of which some leave out edges.
fn batches(data: &Dataset) -> Vec<(Seeds, RngKey)> {
    let n_nodes = data.graph.n_nodes() as u64;
    let batch = |n: u64, first: u64| {
        let nodes = (first..first + n).map(|at| NodeId((wild(at / 3) % n_nodes) as u32)).collect();
        Seeds::nodes(nodes).with_times((first..first + n).map(time).collect::<Vec<i64>>())
    };
    let graph = &data.graph.relation(0).graph;
    let first_dst = data.graph.types().range(data.graph.relation(0).dst_type).start;
    let pairs = graph.dsts().into_iter().zip(graph.indices()).step_by(3);
    let excluded = ExcludedEdges::new(pairs.map(|(dst, src)| (*src, NodeId(first_dst + dst.0))));
    vec![
        (batch(40, 0), RngKey::new(3)),
        (batch(30, 60).excluding(Arc::new(excluded)), RngKey::new(4)),
        (batch(0, 0), RngKey::new(5)),
    ]
}

fn rules() -> RuleRegistry {
    RuleRegistry::default().register("last-ones", last_ones).unwrap()
}

/// Returns the ways to sample: each rule, among them one that only the client knows, with limits of times.
fn configs(graph: &DistGraph, weights: EdgeWeights) -> Vec<SamplerConfig> {
    let mut rules: Vec<Rule> = Rule::BUILT_IN.to_vec();
    rules.extend([Rule::MostRecent, graph.rule("last-ones").unwrap(), Rule::from(last_ones)]);
    let limits = [(false, None), (true, Some(6)), (false, Some(3)), (true, None)];
    let mut configs = Vec::new();
    for (position, rule) in rules.into_iter().enumerate() {
        for (includes_equal, window) in [limits[position % 4], limits[(position + 1) % 4]] {
            let config = SamplerConfig::new([Fanout::UpTo(3), Fanout::All, Fanout::UpTo(2)]);
            let config = config.with_rule(rule.clone()).with_weights(weights).with_edge_types();
            configs.push(config.with_time_limits(TimeLimits { includes_equal, window }));
        }
    }
    configs
}

/// Checks all ways to sample a set in 1 to 3 partitions, of which one may be local.
fn check(
    data: &Dataset,
    weights: EdgeWeights,
    whole: impl Fn(&SamplerConfig) -> Box<dyn FrontierSampler>,
    remote: impl Fn(&Arc<DistGraph>, &SamplerConfig) -> Box<dyn FrontierSampler>,
) {
    let batches = batches(data);
    for (n_parts, own) in [(1, Some(0)), (2, None), (3, Some(1))] {
        let parts = parts(data, n_parts, |node| wild(u64::from(node)) as usize % n_parts, None);
        let cluster = Cluster::of(&parts, own, rules());
        for config in configs(&cluster.graph, weights) {
            let expected = blocks(&*whole(&config), &batches);
            let got = blocks(&*remote(&cluster.graph, &config), &batches);
            assert!(got == expected, "{config:?}, {n_parts} parts, local {own:?}");
            assert!(got[0].blocks[0].src_times().is_some() && 0 < got[0].blocks[0].n_edges());
        }
    }
}

#[test]
fn blocks_at_the_times_of_seeds_equal_those_of_the_whole_graph() {
    for (salt, n_nodes) in [(1, 30), (2, 90), (3, 250)] {
        let data = timed(data(n_nodes, features(n_nodes, 1)), salt);
        let ordered = data.times.graph_by_time(&data.graph).unwrap();
        let graph = Arc::clone(&ordered.relation(0).graph);
        check(
            &data,
            if salt == 1 { EdgeWeights::Unbiased } else { EdgeWeights::Stored },
            |config| Box::new(NeighborSampler::with_config(Arc::clone(&graph), config.clone()).unwrap()),
            |graph, config| {
                Box::new(DistNeighborSampler::with_config(Arc::clone(graph), config.clone()).unwrap())
            },
        );
    }
}

/// Some relations have times of their own, some only those of their sources, and the last one has none.
#[test]
fn blocks_of_relations_at_the_times_of_seeds_equal_those_of_the_whole_graph() {
    let data = timed(shop(), 4);
    let ordered = data.times.graph_by_time(&data.graph).unwrap();
    assert_eq!(
        ordered.iter().map(|relation| relation.graph.edge_times().is_some()).collect::<Vec<_>>(),
        [true, true, true, false]
    );
    let fanouts = || {
        vec![
            vec![Fanout::UpTo(2), Fanout::All, Fanout::UpTo(1), Fanout::UpTo(3)],
            vec![Fanout::UpTo(3), Fanout::UpTo(2), Fanout::UpTo(0), Fanout::All],
            vec![Fanout::UpTo(1); 4],
        ]
    };
    check(
        &data,
        EdgeWeights::Stored,
        |config| Box::new(HeteroNeighborSampler::new(&ordered, fanouts(), config.clone()).unwrap()),
        |graph, config| Box::new(graph.hetero_sampler(fanouts(), config).unwrap()),
    );
}

/// A set without times of nodes, and one whose sources alone have times.
#[test]
fn times_of_edges_or_of_nodes_alone_are_enough() {
    let only_edges = {
        let mut data = timed(hubs(), 5);
        data.times.nodes.clear();
        data
    };
    let only_nodes = {
        let with_both = timed(hubs(), 6);
        Dataset { times: with_both.times, ..hubs() }
    };
    for data in [only_edges, only_nodes] {
        let graph = data.times.graph_by_time(&data.graph).unwrap();
        let graph = Arc::clone(&graph.relation(0).graph);
        let config = SamplerConfig::new([Fanout::UpTo(2); 2]).with_rule(Rule::MostRecent);
        let whole = NeighborSampler::with_config(graph, config.clone()).unwrap();
        let cluster =
            Cluster::of(&parts(&data, 2, |node| node as usize % 2, None), Some(0), Default::default());
        let remote = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config).unwrap();
        let batches = batches(&data);
        assert_eq!(blocks(&remote, &batches), blocks(&whole, &batches));
    }
}

fn sample(sampler: &dyn FrontierSampler, seeds: &Seeds) -> kiln_sample::Result<SampledBlocks> {
    sampler.sample_blocks(seeds, RngKey::new(1), &mut Scratch::default())
}

/// A hop of more rows than a request may have, which are few nodes at many times.
#[test]
fn rows_of_one_node_at_many_times_are_divided_among_requests() {
    let data = timed(data(60, features(60, 1)), 7);
    let ordered = data.times.graph_by_time(&data.graph).unwrap();
    let whole = NeighborSampler::new(Arc::clone(&ordered.relation(0).graph), [Fanout::UpTo(1)]);
    let cluster = Cluster::of(&parts(&data, 1, |_| 0, None), None, Default::default());
    let remote = DistNeighborSampler::new(Arc::clone(&cluster.graph), [Fanout::UpTo(1)]);
    let n_seeds = 18_000;
    let nodes = (0..n_seeds).map(|at| NodeId(at % 60)).collect();
    let times: Vec<i64> = (0..n_seeds).map(|at| i64::from(at / 60) - 150).collect();
    let seeds = Seeds::nodes(nodes).with_times(times);
    assert!(sample(&remote, &seeds).unwrap() == sample(&whole, &seeds).unwrap());
    assert_eq!(cluster.graph.take_fetch_stats().n_requests, 2);
}

#[test]
fn times_that_cannot_be_used_are_errors_of_the_client() {
    let data = timed(hubs(), 8);
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    let cluster = Cluster::of(&parts, Some(0), Default::default());
    let seeds = Seeds::nodes(vec![NodeId(1), NodeId(2)]);
    let at = seeds.clone().with_times(vec![3, 4]);
    let new = || DistNeighborSampler::new(Arc::clone(&cluster.graph), [Fanout::UpTo(2)]);
    let by_node: Csc = parts[0].graph_by_node(0).unwrap();
    let own = NeighborSampler::new(Arc::new(by_node), [Fanout::UpTo(2)]);
    for sampler in [new().cut_at(Some(7)), new().with_local_sampler(own).unwrap()] {
        assert!(!sampler.takes_times());
        let error = sample(&sampler, &at).unwrap_err();
        assert!(matches!(error, Error::Times(TimesError::NotSupported)), "{error}");
    }
    let fanouts = vec![vec![Fanout::UpTo(2)]];
    let cut =
        cluster.graph.hetero_sampler_before(fanouts.clone(), &SamplerConfig::default(), Some(7)).unwrap();
    let error = sample(&cut, &at).unwrap_err();
    assert!(matches!(error, Error::Times(TimesError::NotSupported)), "{error}");
    let recent = SamplerConfig::new([Fanout::UpTo(2)]).with_rule(Rule::MostRecent);
    let plain = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), recent.clone()).unwrap();
    let typed = cluster.graph.hetero_sampler(fanouts, &recent).unwrap();
    for sampler in [&plain as &dyn FrontierSampler, &typed] {
        let error = sample(sampler, &seeds).unwrap_err();
        assert!(matches!(error, Error::Times(TimesError::NoTimes)), "{error}");
        sample(sampler, &at).unwrap();
    }
}

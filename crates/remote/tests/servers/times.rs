//! Samples of the edges that were known before a time: those of the whole graph without the later edges, with the ids of the edges of
//! the uncut graph.

use std::sync::Arc;

use kiln_data::Dataset;
use kiln_graph::{ColumnValues, EdgeColumn, EdgeColumns, EdgeId, NodeId, Relations};
use kiln_remote::{ContentError, DistNeighborSampler, Error};
use kiln_sample::{
    EdgeWeights, Fanout, HeteroNeighborSampler, NeighborSampler, Rule, SampledBlocks, SamplerConfig,
};

use crate::cluster::{Cluster, hubs, parts, wild};
use crate::heterogeneous::{fanouts, sampled, shop};
use crate::same::last_ones;

const NUMBER: &str = "number";

/// Returns a set whose edges and nodes have times below 100, and whose edges have their ids as a column.
fn timed(mut data: Dataset, has_edge_times: bool) -> Dataset {
    let mut first = 0;
    for relation in 0..data.graph.n_relations() {
        let n_edges = data.graph.relation(relation).graph.n_edges();
        let numbers: Vec<f32> = (first..first + n_edges).map(|edge| edge as f32).collect();
        data = data.with_edge_column(relation, NUMBER, EdgeColumn::new(numbers, 1).unwrap()).unwrap();
        // The last relation has no times.
        if has_edge_times && relation < 3 {
            let times: Vec<i64> = (0..n_edges).map(|edge| (wild(edge + 7) % 100) as i64).collect();
            let column = EdgeColumn::new(times, 1).unwrap();
            data = data.with_edge_column(relation, EdgeColumns::TIMES, column).unwrap();
        }
        first += n_edges;
    }
    // The nodes of the last of several types always existed.
    let n_types = data.graph.types().n_types();
    for node_type in 0..n_types.max(2) - 1 {
        let n_nodes = data.graph.types().range(node_type).len() as u64;
        let times: Vec<i64> = (0..n_nodes).map(|node| (wild(node + 9) % 100) as i64).collect();
        data = data.with_node_times(node_type, times).unwrap();
    }
    data
}

/// Returns blocks whose edges have the ids of the uncut graph, of blocks of a cut graph.
fn renumbered(blocks: &[SampledBlocks], cut: &Relations) -> Vec<String> {
    let number = |edge: EdgeId| {
        let relation = cut.schema().relation_of(edge);
        let edge = edge.0 - cut.schema().first_edge(relation).0;
        let column = cut.relation(relation).graph.columns().get(NUMBER).unwrap();
        let ColumnValues::F32(numbers) = column.values() else { panic!("{column:?}") };
        EdgeId(numbers[edge as usize] as u64)
    };
    texts(blocks, number)
}

fn texts(blocks: &[SampledBlocks], id: impl Fn(EdgeId) -> EdgeId) -> Vec<String> {
    let mut texts = Vec::new();
    for sampled in blocks {
        for block in &sampled.blocks {
            let ids: Vec<EdgeId> = block.edge_ids().iter().map(|edge| id(*edge)).collect();
            let ends = (block.srcs(), block.dsts(), block.indptr(), block.indices());
            texts.push(format!("{ends:?} {ids:?} {:?} {:?}", block.weights(), block.edge_types()));
        }
    }
    texts
}

#[test]
fn blocks_equal_those_of_the_whole_graph_without_later_edges() {
    let data = timed(hubs(), true);
    let fanouts = [Fanout::UpTo(3), Fanout::All];
    for (n_parts, own) in [(1, None), (3, None), (3, Some(1))] {
        let parts = parts(&data, n_parts, |node| wild(u64::from(node)) as usize % n_parts, None);
        let cluster = Cluster::of(&parts, own, Default::default());
        for rule in Rule::BUILT_IN.into_iter().chain([Rule::from(last_ones)]) {
            for time in [30, 60, 1_000] {
                let cut = data.graph_before(time).unwrap();
                let config = SamplerConfig::new(fanouts).with_rule(rule.clone());
                let config = config.with_weights(EdgeWeights::Stored).with_edge_types();
                let graph = Arc::clone(&cut.relation(0).graph);
                let whole = NeighborSampler::with_config(graph, config.clone()).unwrap();
                let expected = renumbered(&sampled(&whole), &cut);
                let remote = || {
                    let graph = Arc::clone(&cluster.graph);
                    DistNeighborSampler::with_config(graph, config.clone()).unwrap().cut_at(Some(time))
                };
                let got = texts(&sampled(&remote()), |edge| edge);
                assert_eq!(got, expected, "{rule:?}, {n_parts} parts, {time}");
                // A sampler of the caller's own, as for a device.
                let Some(part) = cluster.graph.local_part() else { continue };
                let by_node = Arc::new(part.graph_by_node_before(0, time).unwrap());
                let own = NeighborSampler::with_config(by_node, config.clone()).unwrap();
                let got = texts(&sampled(&remote().with_local_sampler(own).unwrap()), |edge| edge);
                assert_eq!(got, expected, "{rule:?}, {n_parts} parts, {time}, by an own sampler");
            }
        }
    }
}

#[test]
fn blocks_of_relations_equal_those_of_the_whole_graph_without_later_edges() {
    for has_edge_times in [true, false] {
        let data = timed(shop(), has_edge_times);
        for own in [None, Some(1)] {
            let parts = parts(&data, 3, |node| node as usize % 3, None);
            let cluster = Cluster::of(&parts, own, Default::default());
            assert_eq!(cluster.graph.times(), &data.times);
            for (time, rule) in [(30, Rule::Uniform), (60, Rule::from(last_ones)), (90, Rule::Uniform)] {
                let cut = data.graph_before(time).unwrap();
                let config = SamplerConfig::default().with_rule(rule).with_edge_types();
                let whole = HeteroNeighborSampler::new(&cut, fanouts(), config.clone()).unwrap();
                let remote = cluster.graph.hetero_sampler_before(fanouts(), &config, Some(time)).unwrap();
                let got = texts(&sampled(&remote), |edge| edge);
                assert_eq!(got, renumbered(&sampled(&whole), &cut), "{time}, local {own:?}");
                let all = cluster.graph.hetero_sampler(fanouts(), &config).unwrap();
                assert_ne!(got, texts(&sampled(&all), |edge| edge), "later edges should be left out");
            }
        }
    }
}

/// An owner keeps the edges of the last 8 times.
#[test]
fn samples_of_many_times_in_turn_are_those_of_their_time() {
    let data = timed(hubs(), true);
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    let cluster = Cluster::of(&parts, None, Default::default());
    let of_time = |time: i64| {
        let config = SamplerConfig::new([Fanout::All]);
        let remote = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config).unwrap();
        texts(&sampled(&remote.cut_at(Some(time))), |edge| edge)
    };
    let times = [5, 10, 15, 20, 25, 30, 35, 40, 45, 50];
    let first = times.map(of_time);
    assert!(first.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(times.map(of_time), first);
}

#[test]
fn sets_without_times_are_described_as_such() {
    let data = hubs();
    let cluster = Cluster::of(&parts(&data, 1, |_| 0, None), None, Default::default());
    assert!(!cluster.graph.has_times() && cluster.graph.times().is_default());
    let timed = timed(hubs(), true);
    let own = Cluster::of(&parts(&timed, 1, |_| 0, None), Some(0), Default::default());
    assert!(own.graph.has_times());
    assert_eq!(own.graph.times().node_times(0).map(|times| times.len()), Some(data.graph.n_nodes()));
    let error = Error::Content(ContentError::NoTimesOfType { node_type: 3 }).to_string();
    assert!(error.contains("type 3 have no times"), "{error}");
    assert_eq!(data.graph.types().range(0), 0..NodeId(data.graph.n_nodes() as u32).0);
}

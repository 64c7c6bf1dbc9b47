//! Checks of partitions against their data set, of either layout.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::{BTreeMap, BTreeSet};

use kiln_data::Dataset;
use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::{Csc, LinkId, NodeId};
use kiln_partition::{Method, Part, PartitionRow, Place, WriteReport};
use kiln_sample::{FrontierSampler, HeteroNeighborSampler, KeyDomain, RngKey, SamplerConfig, Scratch, Seeds};

use crate::common::{cache, labels};
use crate::edge_features::check_edge_features;

fn rows(features: &dyn FeatureStore, ids: &[NodeId]) -> FeatureBuffer {
    let mut rows = FeatureBuffer::empty(features.dtype());
    features.gather(ids, &mut rows).unwrap();
    rows
}

/// Returns the edges into a node: source, weight and type.
fn edges(graph: &Csc, row: NodeId) -> Vec<(u32, Option<f32>, Option<u8>)> {
    let first = graph.first_edge(row).index();
    let srcs = graph.in_neighbors(row).iter().zip(first..);
    let weight = |edge: usize| graph.weights().map(|all| all[edge]);
    let edge_type = |edge: usize| graph.edge_types().map(|all| all[edge]);
    srcs.map(|(src, edge)| (src.0, weight(edge), edge_type(edge))).collect()
}

/// Checks the nodes, edges and features of a partition, and its data about the whole set, against the data set.
pub(crate) fn check_part(part: &Part, data: &Dataset, parts: &[u16]) {
    assert_eq!((&part.hash, &part.name), (&data.hash().unwrap(), &data.name));
    assert_eq!((&part.schema, part.is_heterogeneous()), (data.graph.schema(), data.is_heterogeneous()));
    assert_eq!((part.n_cut_edges, part.method), (1, Method::Random));
    let (found, targets) = (part.targets.as_ref().unwrap(), data.targets.as_ref().unwrap());
    assert_eq!((found.node_type, &found.split), (targets.node_type, &targets.split));
    assert_eq!(found.class_names, targets.class_names);
    assert_eq!(labels(part).as_slice(), data.labels().as_slice());
    let types = data.graph.types();
    assert_eq!((part.types.len(), part.relations.len()), (types.n_types(), data.graph.n_relations()));
    for (node_type, of_type) in part.types.iter().enumerate() {
        let is_own = |node: &u32| usize::from(parts[*node as usize]) == part.index;
        let own: Vec<NodeId> = types.range(node_type).filter(is_own).map(NodeId).collect();
        assert_eq!(*of_type.old_ids, own);
        for (row, &node) in own.iter().enumerate() {
            let place = Place { part: part.index, row: PartitionRow(row as u32) };
            assert_eq!(part.books.place(node), Some(place));
        }
        let all: Vec<NodeId> = (0..own.len() as u32).map(NodeId).collect();
        let of_own: Vec<NodeId> = own.iter().map(|node| data.row_of(*node).unwrap()).collect();
        let got = of_type.features.as_ref().map(|features| rows(&**features, &all));
        let expected = data.features[node_type].as_ref().map(|features| rows(&**features, &of_own));
        assert_eq!(got, expected);
    }
    for (of_part, relation) in part.relations.iter().zip(data.graph.iter()) {
        assert_eq!(of_part.edge_type_names, data.edge_type_names);
        for (row, node) in (0..).map(NodeId).zip(&*part.types[relation.dst_type].old_ids) {
            let local = data.row_of(*node).unwrap();
            assert_eq!(edges(&of_part.graph, row), edges(&relation.graph, local));
            assert_eq!(of_part.first_edges[row.index()], relation.graph.first_edge(local).0);
        }
        assert!(of_part.graph.columns().names().eq(relation.graph.columns().names()));
    }
    if data.edge_features().unwrap().is_some() {
        check_edge_features(part, data, &part.types[0].old_ids);
    }
}

/// Checks the cached rows against an independently sampled epoch: those of remote nodes with features that most batches
/// read.
pub(crate) fn check_cache(part: &Part, data: &Dataset, ratio: f64, written: &WriteReport) {
    let n_relations = data.graph.n_relations();
    let fanouts = cache(0.0).fanouts.into_iter().map(|fanout| vec![fanout; n_relations]).collect();
    let sampler = HeteroNeighborSampler::new(&data.graph, fanouts, SamplerConfig::default()).unwrap();
    let is_own = |node: &NodeId| part.books.place(*node).unwrap().part == part.index;
    let counts = counts_of_epoch(&sampler, data.training_nodes().unwrap().iter().copied().filter(is_own));
    let types = data.graph.types();
    let has_features = |node: NodeId| data.features[types.type_of(node).unwrap()].is_some();
    let is_read = |node: &u32| !is_own(&NodeId(*node)) && has_features(NodeId(*node));
    let mut remote: Vec<(u32, u32)> = counts.into_iter().filter(|(node, _)| is_read(node)).collect();
    assert_eq!(written.n_remote, remote.iter().map(|(_, count)| u64::from(*count)).sum::<u64>());
    remote.sort_by_key(|&(node, count)| (u32::MAX - count, node));
    remote.truncate((ratio * data.graph.n_nodes() as f64) as usize);
    remote.sort_unstable();
    assert_eq!(written.n_cached, remote.len());
    assert_eq!(written.n_answered, remote.iter().map(|(_, count)| u64::from(*count)).sum::<u64>());
    let mut kept = Vec::new();
    for (node_type, of_type) in part.types.iter().enumerate() {
        let Some(cache) = &of_type.cache else { continue };
        assert!(!cache.ids.is_empty());
        let first = types.range(node_type).start;
        kept.extend(cache.ids.iter().map(|id| first + id.0).zip(cache.counts.iter().copied()));
        let all: Vec<NodeId> = (0..cache.ids.len() as u32).map(NodeId).collect();
        let whole = data.features[node_type].as_ref().unwrap();
        assert_eq!(rows(&*cache.features, &all), rows(&**whole, &cache.ids));
    }
    assert_eq!(kept, remote);
}

/// The number of batches of the first epoch of these training nodes in which each node is an input.
fn counts_of_epoch(sampler: &dyn FrontierSampler, train: impl Iterator<Item = NodeId>) -> BTreeMap<u32, u32> {
    let config = cache(0.0);
    let mut seeds: Vec<NodeId> = train.collect();
    let epoch = RngKey::new(config.seed).fold_in(KeyDomain::Epoch, 0);
    shuffle(&mut seeds, epoch.fold_in(KeyDomain::Host, 0).to_u64());
    let mut counts = BTreeMap::new();
    for (step, seeds) in seeds.chunks(config.batch_size).enumerate() {
        let (seeds, key) = (Seeds::nodes(seeds.to_vec()), epoch.fold_in(KeyDomain::Step, step as u64));
        let sampled = sampler.sample_blocks(&seeds, key, &mut Scratch::default()).unwrap();
        for node in sampled.blocks[0].srcs() {
            *counts.entry(node.0).or_default() += 1;
        }
    }
    counts
}

/// Shuffles nodes as `docs/rng.md` specifies.
fn shuffle(nodes: &mut [NodeId], seed: u64) {
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    let mut draws = rand_xoshiro::Xoshiro256StarStar::seed_from_u64(seed);
    for last in (1..nodes.len()).rev() {
        let other = (u128::from(draws.next_u64()) * (last as u128 + 1)) >> 64;
        nodes.swap(last, other as usize);
    }
}

/// Returns the sources and destinations of the training links, each once and ascending.
pub(crate) fn ends_of_training_links(data: &Dataset) -> Vec<NodeId> {
    let targets = &data.links.as_ref().unwrap().targets;
    let ends = |link: &LinkId| <[NodeId; 2]>::from(targets.links().pair(*link));
    let all: BTreeSet<NodeId> = targets.split().train.iter().flat_map(ends).collect();
    all.into_iter().collect()
}

/// Reverses the neighbours of each node.
pub(crate) fn backwards(graph: &Csc) -> Csc {
    let nodes = (0..graph.n_nodes() as u32).map(NodeId);
    let indices: Vec<NodeId> =
        nodes.flat_map(|node| graph.in_neighbors(node).iter().rev().copied()).collect();
    let indptr = graph.indptr().to_vec();
    let reversed = Csc::new(indptr.into(), indices.into()).unwrap();
    match graph.weights() {
        Some(weights) => reversed.with_weights(weights.to_vec().into()).unwrap(),
        None => reversed,
    }
}

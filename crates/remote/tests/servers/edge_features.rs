//! Feature rows of edges equal those of the whole graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use half::{bf16, f16};
use kiln_data::Dataset;
use kiln_feature::{
    EdgeFeatureStore, EdgeFeatures, FeatureArray, FeatureBuffer, FeatureDType, RelationRows, edge_rows_of,
};
use kiln_graph::{Block, BlockParts, EdgeColumn, EdgeId, LocalId, NodeId};
use kiln_remote::{
    ConnectConfig, ContentError, DistEdgeFeatureStore, DistGraph, DistNeighborSampler, Error, RuleRegistry,
};
use kiln_sample::{HeteroNeighborSampler, NeighborSampler, Rule, SampledBlocks, SamplerConfig};

use crate::cluster::{Cluster, Link, addresses, config, hubs, parts, parts_with_hash, serve, wild};
use crate::heterogeneous::{fanouts, sampled as heterogeneous_batches, shop, ways as heterogeneous_ways};
use crate::same::{FANOUTS, modes, sampled, ways};

const DIM: usize = 5;

fn with_rows(data: Dataset, rows: FeatureArray) -> Dataset {
    let rows = EdgeFeatures::new(rows, DIM).unwrap().to_column();
    data.with_edge_column(0, "features", rows).unwrap()
}

fn values(data: &Dataset) -> Vec<f32> {
    (0..data.graph.n_edges() * DIM as u64).map(|at| (wild(at) % 1000) as f32 / 8.0).collect()
}

fn with_edge_features() -> Dataset {
    let data = hubs();
    let rows = FeatureArray::F32(values(&data).into());
    with_rows(data, rows)
}

/// Returns the rows of the edges of each block.
fn rows_of(store: &dyn EdgeFeatureStore, batches: &[SampledBlocks]) -> Vec<FeatureBuffer> {
    let of_block = |block: &Block| {
        // The buffer has the wrong type and length.
        let mut rows = FeatureBuffer::F16(vec![f16::ONE; 7]);
        store.gather_block(block, &mut rows).map(|()| rows)
    };
    batches.iter().flat_map(|sampled| &sampled.blocks).map(|block| of_block(block).unwrap()).collect()
}

/// Returns the number of edges into own nodes, and the number of those into other nodes, of which equal ones that follow
/// each other count once.
fn distinct_rows(batches: &[SampledBlocks], is_own: impl Fn(NodeId) -> bool) -> (u64, u64) {
    let (mut n_own, mut n_remote) = (0, 0);
    for block in batches.iter().flat_map(|sampled| &sampled.blocks) {
        for (&node, bounds) in block.dsts().iter().zip(block.indptr().windows(2)) {
            let edges = &block.edge_ids()[bounds[0] as usize..bounds[1] as usize];
            match is_own(node) {
                true => n_own += edges.len(),
                false => n_remote += edges.chunk_by(|one, other| one == other).count(),
            }
        }
    }
    (n_own as u64, n_remote as u64)
}

#[test]
fn rows_equal_those_of_the_whole_graph() {
    let data = hubs();
    let values = values(&data);
    let types = [
        FeatureArray::F32(values.clone().into()),
        FeatureArray::F16(values.iter().map(|value| f16::from_f32(*value)).collect()),
        FeatureArray::BF16(values.iter().map(|value| bf16::from_f32(*value)).collect()),
    ];
    // A rule with replacement picks the same edge several times.
    let config = SamplerConfig::new(FANOUTS).with_rule(Rule::UniformWithReplacement);
    let whole = NeighborSampler::with_config(Arc::clone(data.csc().unwrap()), config.clone()).unwrap();
    let batches = sampled(&whole);
    for rows in types {
        let data = with_rows(data.clone(), rows);
        let expected = rows_of(&data.edge_features().unwrap().unwrap(), &batches);
        for (n_parts, owner) in ways() {
            let parts = parts(&data, n_parts, owner, None);
            for own in modes(&parts) {
                let cluster = Cluster::of(&parts, own, RuleRegistry::default());
                let graph = || Arc::clone(&cluster.graph);
                let remote = DistNeighborSampler::with_config(graph(), config.clone()).unwrap();
                assert!(sampled(&remote) == batches);
                cluster.graph.take_fetch_stats();
                let store = DistEdgeFeatureStore::new(graph(), "features").unwrap();
                assert_eq!((store.dim(), store.n_edges()), (DIM, data.graph.n_edges()));
                assert!(rows_of(&store, &batches) == expected, "{n_parts} partitions, local {own:?}");
                let stats = cluster.graph.take_fetch_stats();
                let n_rows = distinct_rows(&batches, |node| Some(owner(node.0)) == own);
                assert_eq!((stats.own_edge_rows, stats.remote_edge_rows), n_rows);
                assert!(store.as_edge_features().is_none());
            }
        }
    }
}

/// A connection that breaks again and again must not change the rows.
#[test]
fn rows_survive_broken_connections() {
    let data = with_edge_features();
    let whole = NeighborSampler::new(Arc::clone(data.csc().unwrap()), FANOUTS);
    let batches = sampled(&whole);
    let expected = rows_of(&data.edge_features().unwrap().unwrap(), &batches);
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    let servers = [serve(&parts[0]), serve(&parts[1])];
    let links = servers.each_ref().map(|server| Link::to(server.address()));
    let graph = DistGraph::connect(config(links.each_ref().map(|link| link.address.to_string()).to_vec()));
    let store = DistEdgeFeatureStore::new(Arc::new(graph.unwrap()), "features").unwrap();
    // Each response fits in a connection. All responses together do not fit in the two connections to each server.
    let largest = expected.iter().map(FeatureBuffer::n_bytes).max().unwrap();
    links.iter().for_each(|link| link.close_after(largest));
    for _ in 0..6 {
        assert!(rows_of(&store, &batches) == expected);
    }
}

#[test]
fn partitions_without_edge_features_are_an_error() {
    let cluster = Cluster::of(&parts(&hubs(), 1, |_| 0, None), None, RuleRegistry::default());
    let error = DistEdgeFeatureStore::new(Arc::clone(&cluster.graph), "features").unwrap_err();
    assert!(matches!(error, Error::Content(ContentError::NoEdgeFeatures)), "{error}");
}

/// A block of another graph has edges that its destinations do not have.
#[test]
fn edges_of_other_destinations_are_an_error() {
    let data = with_edge_features();
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    // Node 0 has edges, and so has node 2, the next row of its partition.
    let of_node_2 = data.csc().unwrap().first_edge(NodeId(2)).0;
    let servers = [serve(&parts[0]), serve(&parts[1])];
    let block_with = |edges: &[u64]| {
        Block::new(BlockParts {
            srcs: vec![NodeId(0)],
            indptr: vec![0, edges.len() as u32],
            indices: vec![LocalId(0); edges.len()],
            edge_ids: edges.iter().copied().map(EdgeId).collect(),
            weights: None,
            edge_types: None,
        })
    };
    for own in [None, Some(Arc::clone(&parts[0]))] {
        let connect = ConnectConfig { own, ..config(addresses(&servers)) };
        let store =
            DistEdgeFeatureStore::new(Arc::new(DistGraph::connect(connect).unwrap()), "features").unwrap();
        let gather = |edges: &[u64]| store.gather_block(&block_with(edges), &mut FeatureBuffer::default());
        for edge in [of_node_2, u64::MAX] {
            let error = format!("{:?}", gather(&[0, edge]).unwrap_err());
            let told = format!("row 0 of partition 0 has no edge {edge}");
            assert!(error.contains("UnknownEdge") || error.contains(&told), "{error}");
        }
        gather(&[0, 0]).unwrap();
    }
}

/// An older version of kiln wrote partitions of the same data without edge features.
#[test]
fn partitions_of_which_some_have_no_edge_features_are_an_error() {
    let data = with_edge_features();
    let of_owner = |data: &Dataset| parts_with_hash(data, "the-same", 2, |node| node as usize % 2);
    let old = of_owner(&data.clone().without_edge_rows().unwrap());
    let servers = [serve(&old[0]), serve(&of_owner(&data)[1])];
    let error = DistGraph::connect(config(addresses(&servers))).unwrap_err().to_string();
    assert!(
        error.contains("partition 1")
            && error.contains("has other features, node types, relations or classes than partition 0"),
        "{error}"
    );
    assert!(error.contains("partition the data set again"), "{error}");
}

/// Relations have features of other widths and element types, or none. A batch has the largest width, and zeros beyond that of a
/// relation.
#[test]
fn padded_rows_equal_those_of_the_whole_heterogeneous_graph() {
    let data = shop();
    let n_values = |relation: usize, width: u64| data.graph.relation(relation).graph.n_edges() * width;
    let number = |at: u64| 1.0 + (wild(at) % 1000) as f32 / 8.0;
    let wide: Vec<f32> = (0..n_values(0, 3)).map(number).collect();
    let narrow: Vec<f16> = (0..n_values(3, 2)).map(|at| f16::from_f32(number(at + 7))).collect();
    let wide = EdgeColumn::new(wide, 3).unwrap();
    let narrow = EdgeColumn::new(narrow, 2).unwrap();
    let data = data.with_edge_column(0, "features", wide).unwrap();
    let data = data.with_edge_column(3, "features", narrow).unwrap();
    let whole = HeteroNeighborSampler::new(&data.graph, fanouts(), SamplerConfig::default()).unwrap();
    let batches = heterogeneous_batches(&whole);
    let store = edge_rows_of(&data.graph, "features", RelationRows::Padded).unwrap();
    let expected = rows_of(&*store, &batches);
    assert!(expected.iter().any(|rows| 30 < rows.n_bytes()));
    for (n_parts, owner) in heterogeneous_ways() {
        let parts = parts(&data, n_parts, owner, None);
        for own in std::iter::once(None).chain((0..n_parts).map(Some)) {
            let cluster = Cluster::of(&parts, own, RuleRegistry::default());
            let graph = || Arc::clone(&cluster.graph);
            let padded = DistEdgeFeatureStore::with_rows(graph(), "features", RelationRows::Padded).unwrap();
            assert_eq!(padded.relation_widths(), [Some(3), None, None, Some(2)]);
            assert_eq!((padded.dim(), padded.dtype()), (3, FeatureDType::F32));
            assert!(rows_of(&padded, &batches) == expected, "{n_parts} partitions, local {own:?}");
            let error = DistEdgeFeatureStore::new(graph(), "features").unwrap_err().to_string();
            assert!(error.contains("several element types or widths"), "{error}");
        }
    }
}

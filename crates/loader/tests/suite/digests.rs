//! Digests of all batches of an epoch on built-in data. The tests of the Python package repeat them with its own loaders, and have
//! the same values (`crates/python/tests/test_digests.py`).

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_data::Dataset;
use kiln_feature::FeatureBuffer;
use kiln_graph::{Block, GraphSchema, LinkId, Links, NodeId};
use kiln_loader::{
    FeatureStores, ItemSampler, ItemSamplerConfig, LinkBatch, LinkBatcher, Loader, LoaderConfig, MiniBatch,
    NodeBatcher, NodeTargets, Phase, RowsOfType, Shard, UnevenShards,
};
use kiln_sample::{
    Fanout, FrontierSampler, HeteroNeighborSampler, Negatives, NeighborSampler, SamplerConfig,
    SubgraphSampler, UniformNegatives,
};
use sha2::{Digest, Sha256};

const SUBGRAPHS: &str = "f69d7c51050e971f594ef1178d3cc28cf1a859f760e05b68437728f0731f202d";
const BLOCKS: &str = "db903662d3669cbe43403b314de867df7f64db9e49e512260db7f2f5b57778a7";
const RELATIONS: &str = "b86831cad1fb73f02d74f064eea38299d98567170ff963170ad987f12415c71a";
const LINKS: &str = "359d1824e62296ca8388d6832bf364868fb201fba48a2f28a3b36a991bfbd734";

const EPOCH: Phase = Phase::Train { epoch: 3 };
const FANOUTS: [Fanout; 2] = [Fanout::UpTo(4), Fanout::UpTo(5)];

fn put(bytes: &mut Vec<u8>, values: impl IntoIterator<Item = i64>) {
    bytes.extend(values.into_iter().flat_map(i64::to_le_bytes));
}

fn put_rows(bytes: &mut Vec<u8>, rows: &FeatureBuffer) {
    bytes.extend(rows.clone().into_f32().iter().flat_map(|value| value.to_le_bytes()));
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Puts the sources of the edges of all blocks, their destinations and their ids.
fn put_edges<'a>(bytes: &mut Vec<u8>, blocks: impl Iterator<Item = &'a Block> + Clone) {
    put(bytes, blocks.clone().flat_map(|block| block.indices().iter().map(|src| i64::from(src.0))));
    put(bytes, blocks.clone().flat_map(dsts_of));
    put(bytes, blocks.flat_map(|block| block.edge_ids().iter().map(|edge| edge.0 as i64)));
}

/// Returns the destination of each edge of a block.
fn dsts_of(block: &Block) -> Vec<i64> {
    let bounds = block.indptr().windows(2).enumerate();
    bounds.flat_map(|(dst, bounds)| (bounds[0]..bounds[1]).map(move |_| dst as i64)).collect()
}

fn config() -> ItemSamplerConfig {
    ItemSamplerConfig {
        batch_size: 300,
        uneven: UnevenShards::Pad,
        seed: 7,
        shard: Shard { rank: 1, world_size: 2 },
        ..ItemSamplerConfig::default()
    }
}

/// Returns the digest of the batches of an epoch of nodes of a graph with one type.
fn digest_of_nodes(
    sampler: impl FrontierSampler + 'static,
    put_batch: fn(&mut Vec<u8>, &MiniBatch),
    data: &Dataset,
) -> String {
    let batcher =
        NodeBatcher::new(Arc::new(sampler), Arc::clone(data.node_features().unwrap()), data.labels());
    let items = ItemSampler::new(&data.split().train[..], config()).unwrap();
    let mut bytes = Vec::new();
    for batch in Loader::new(items, batcher, LoaderConfig::default()).unwrap().epoch(EPOCH) {
        let batch = batch.unwrap();
        put_batch(&mut bytes, &batch);
        put_rows(&mut bytes, &batch.input.only().unwrap().x);
        put(&mut bytes, batch.sampled.labels.iter().map(|class| i64::from(*class)));
        put(&mut bytes, batch.sampled.seed_index.iter().map(|row| i64::from(row.0)));
    }
    digest(&bytes)
}

#[test]
fn batches_of_subgraphs_are_frozen() {
    let data = Dataset::open("debian-packages").unwrap();
    let sampler = SubgraphSampler::new(NeighborSampler::new(Arc::clone(data.csc().unwrap()), FANOUTS));
    let put_batch = |bytes: &mut Vec<u8>, batch: &MiniBatch| {
        put(bytes, batch.sampled.blocks[0].srcs().iter().map(|node| i64::from(node.0)));
        put_edges(bytes, batch.sampled.blocks.iter().rev());
    };
    assert_eq!(digest_of_nodes(sampler, put_batch, &data), SUBGRAPHS);
}

#[test]
fn batches_of_blocks_are_frozen() {
    let data = Dataset::open("debian-packages").unwrap();
    let sampler = NeighborSampler::new(Arc::clone(data.csc().unwrap()), FANOUTS);
    let put_batch = |bytes: &mut Vec<u8>, batch: &MiniBatch| {
        for block in &batch.sampled.blocks {
            put(bytes, block.srcs().iter().map(|node| i64::from(node.0)));
            put_edges(bytes, std::iter::once(block));
        }
    };
    assert_eq!(digest_of_nodes(sampler, put_batch, &data), BLOCKS);
}

/// Puts the nodes of each type, and the edges of each relation with nodes that are numbered within their types.
fn put_types(bytes: &mut Vec<u8>, blocks: &[Block], schema: &GraphSchema) {
    let located = |node: NodeId| schema.types().locate(node).unwrap();
    for node_type in 0..schema.types().n_types() {
        let of_type =
            blocks[0].srcs().iter().map(|node| located(*node)).filter(|(other, _)| *other == node_type);
        put(bytes, of_type.map(|(_, number)| i64::from(number.0)));
    }
    for relation in 0..schema.relations().len() {
        for block in blocks.iter().rev() {
            for (edge, dst) in dsts_of(block).into_iter().enumerate() {
                if usize::from(block.edge_types().unwrap()[edge]) != relation {
                    continue;
                }
                let src = located(block.global(block.indices()[edge])).1;
                let dst = located(block.srcs()[dst as usize]).1;
                let number = block.edge_ids()[edge].0 - schema.first_edge(relation).0;
                put(bytes, [i64::from(src.0), i64::from(dst.0), number as i64]);
            }
        }
    }
}

#[test]
fn batches_of_relations_are_frozen() {
    let data = Dataset::open("debian-archive").unwrap();
    let fanouts = FANOUTS.map(|fanout| vec![fanout; data.graph.n_relations()]).to_vec();
    let sampling = SamplerConfig::default().with_edge_types();
    let sampler = SubgraphSampler::new(HeteroNeighborSampler::new(&data.graph, fanouts, sampling).unwrap());
    let features = FeatureStores::new(Arc::clone(data.graph.types()), data.features.clone());
    let targets = data.targets.clone().unwrap();
    let range = data.graph.types().range(targets.node_type);
    let targets = NodeTargets::of_type(range, targets.values);
    let batcher = NodeBatcher::new(Arc::new(sampler), features, targets);
    let items = ItemSampler::new(&data.split().train[..], config()).unwrap();
    let mut bytes = Vec::new();
    for batch in Loader::new(items, batcher, LoaderConfig::default()).unwrap().epoch(EPOCH) {
        let MiniBatch { sampled, input, .. } = batch.unwrap();
        put_types(&mut bytes, &sampled.blocks, data.graph.schema());
        for rows in &input.rows {
            if let RowsOfType::Features(rows) = rows {
                put_rows(&mut bytes, &rows.x);
            }
        }
    }
    assert_eq!(digest(&bytes), RELATIONS);
}

#[test]
fn batches_of_links_are_frozen() {
    let data = Dataset::open("debian-packages").unwrap();
    let graph = Arc::clone(data.csc().unwrap());
    let n_links = 5000;
    let links = Links::new(graph.indices()[..n_links].to_vec(), graph.dsts()[..n_links].to_vec()).unwrap();
    let sampler = SubgraphSampler::new(NeighborSampler::new(Arc::clone(&graph), FANOUTS));
    let nodes = NodeBatcher::without_targets(Arc::new(sampler), Arc::clone(data.node_features().unwrap()));
    let dsts = 0..graph.n_nodes() as u32;
    let batcher = LinkBatcher::new(nodes, links, Negatives::new(UniformNegatives { dsts }, 2));
    let items = ItemSampler::new((0..n_links as u32).map(LinkId).collect::<Vec<_>>(), config()).unwrap();
    let mut bytes = Vec::new();
    for batch in Loader::new(items, batcher, LoaderConfig::default()).unwrap().epoch(EPOCH) {
        let LinkBatch { nodes, links, srcs, dsts, .. } = batch.unwrap();
        let row_of = |seed: &u32| i64::from(nodes.sampled.seed_index[*seed as usize].0);
        put(&mut bytes, links.iter().map(|link| i64::from(link.0)));
        put(&mut bytes, srcs.iter().step_by(3).map(row_of));
        put(&mut bytes, dsts.iter().map(row_of));
        put(&mut bytes, nodes.sampled.blocks[0].srcs().iter().map(|node| i64::from(node.0)));
        put_edges(&mut bytes, nodes.sampled.blocks.iter().rev());
    }
    assert_eq!(digest(&bytes), LINKS);
}

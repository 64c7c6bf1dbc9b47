//! Sampling on the built-in data set: the edges sampled for a node do not depend on the number of ranks.

use std::collections::HashMap;

use kiln_graph::{Block, EdgeId, NodeId};
use kiln_loader::{
    ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, MiniBatch, NodeBatcher, Phase, Shard,
};
use kiln_sample::{Fanout, NeighborSampler};

/// Returns the first two batches of an epoch on one rank.
fn batches(data: &kiln_data::Dataset, batch_size: usize, shard: Shard) -> Vec<MiniBatch> {
    let config = ItemSamplerConfig { batch_size, seed: 7, shard, ..ItemSamplerConfig::default() };
    let items =
        ItemSampler::new(data.split().train.to_vec(), config).expect("the configuration should be accepted");
    let graph = data.csc().expect("the set should have one node type");
    let features = data.node_features().expect("the set should have one node type");
    let sampler = NeighborSampler::new(graph.clone(), [Fanout::UpTo(10); 3]);
    let batcher = NodeBatcher::new(sampler.into(), features.clone(), data.labels());
    let loader =
        Loader::new(items, batcher, LoaderConfig::default()).expect("the configuration should be accepted");
    let batches: Result<Vec<_>, _> = loader.epoch(Phase::Train { epoch: 1 }).take(2).collect();
    batches.expect("the built-in data should load")
}

fn picks(block: &Block) -> HashMap<NodeId, &[EdgeId]> {
    let of_row =
        |row: usize| &block.edge_ids()[block.indptr()[row] as usize..block.indptr()[row + 1] as usize];
    block.dsts().iter().enumerate().map(|(row, &dst)| (dst, of_row(row))).collect()
}

#[test]
fn four_ranks_of_1024_seeds_sample_the_edges_of_one_rank_of_4096() {
    let data = kiln_data::debian_packages().expect("the built-in data should load");
    let whole = batches(&data, 4096, Shard::default());
    let ranks: Vec<_> = (0..4).map(|rank| batches(&data, 1024, Shard { rank, world_size: 4 })).collect();
    for (step, whole) in whole.iter().enumerate() {
        let seeds: Vec<NodeId> =
            ranks.iter().flat_map(|rank| rank[step].sampled.seeds.as_nodes().iter().copied()).collect();
        assert_eq!(seeds, whole.sampled.seeds.as_nodes(), "seeds of step {step}");
        for layer in 0..3 {
            let expected = picks(&whole.sampled.blocks[layer]);
            let mut seen: HashMap<NodeId, &[EdgeId]> = HashMap::new();
            for rank in &ranks {
                seen.extend(picks(&rank[step].sampled.blocks[layer]));
            }
            for rank in &ranks {
                for (node, edges) in picks(&rank[step].sampled.blocks[layer]) {
                    assert_eq!(expected.get(&node), Some(&edges), "node {} in layer {layer}", node.0);
                }
            }
            assert_eq!(seen.len(), expected.len(), "nodes in layer {layer} of step {step}");
        }
    }
}

//! The item sampler on several ranks: every seed is used once, the steps of the ranks agree, and seeds and samples do
//! not depend on the number of ranks.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kiln_graph::{Block, Csc, CscBuilder, EdgeId, NodeId};
use kiln_loader::{Error, ItemSampler, ItemSamplerConfig, Phase, SeedBatch, Shard, UnevenShards};
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, Scratch, Seeds};
use proptest::prelude::*;

const TRAIN: Phase = Phase::Train { epoch: 0 };
const ALL: [UnevenShards; 3] = [UnevenShards::Join, UnevenShards::Drop, UnevenShards::Pad];

fn nodes(n_items: usize) -> Vec<NodeId> {
    (0..n_items as u32).map(NodeId).collect()
}

/// Returns the seeds of one rank for every step of a phase.
fn of_rank(n_items: usize, config: ItemSamplerConfig, phase: Phase) -> Vec<SeedBatch> {
    let sampler = ItemSampler::new(nodes(n_items), config).unwrap();
    let order = sampler.epoch(phase);
    assert_eq!(order.n_steps(), sampler.n_steps(phase));
    (0..order.n_steps()).map(|step| order.step(step)).collect()
}

/// Returns the batches of all ranks for each step, and checks that all ranks have the same number of steps.
fn steps(n_items: usize, n_ranks: usize, config: ItemSamplerConfig, phase: Phase) -> Vec<Vec<SeedBatch>> {
    let mut steps: Vec<Vec<SeedBatch>> = Vec::new();
    for rank in 0..n_ranks {
        let shard = Shard { rank, world_size: n_ranks };
        let batches = of_rank(n_items, ItemSamplerConfig { shard, ..config }, phase);
        if rank == 0 {
            steps.resize_with(batches.len(), Vec::new);
        }
        assert_eq!(batches.len(), steps.len(), "steps of rank {rank}");
        for (step, batch) in batches.into_iter().enumerate() {
            assert_eq!(batch.step, step);
            steps[step].push(batch);
        }
    }
    steps
}

/// The seeds of one step on all ranks, in rank order.
fn together(ranks: &[SeedBatch]) -> Vec<NodeId> {
    ranks.iter().flat_map(|batch| &batch.seeds).copied().collect()
}

fn seeds(steps: &[Vec<SeedBatch>]) -> Vec<Vec<Vec<u32>>> {
    let of_rank = |batch: &SeedBatch| batch.seeds.iter().map(|node| node.0).collect();
    steps.iter().map(|ranks| ranks.iter().map(of_rank).collect()).collect()
}

fn sorted(mut nodes: Vec<NodeId>) -> Vec<NodeId> {
    nodes.sort();
    nodes
}

#[test]
fn each_of_4097_seeds_is_used_once_by_4_ranks_of_1024() {
    let steps = steps(4097, 4, ItemSamplerConfig::default(), TRAIN);
    let sizes: Vec<Vec<usize>> =
        steps.iter().map(|ranks| ranks.iter().map(|batch| batch.seeds.len()).collect()).collect();
    assert_eq!(sizes, [[1024, 1024, 1024, 1024], [1, 0, 0, 0]]);
    assert_eq!(sorted(steps.iter().flat_map(|ranks| together(ranks)).collect()), nodes(4097));
}

#[test]
fn a_rank_without_seeds_has_the_keys_and_steps_of_the_others() {
    let config = ItemSamplerConfig { batch_size: 2, shuffle: false, ..Default::default() };
    let steps = steps(9, 4, config, TRAIN);
    assert_eq!(
        seeds(&steps),
        [[vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]], [vec![8], vec![], vec![], vec![]]]
    );
    for ranks in &steps {
        assert!(ranks.iter().all(|batch| batch.key == ranks[0].key));
    }
}

#[test]
fn no_items_give_no_steps_for_any_policy() {
    for uneven in ALL {
        assert!(steps(0, 3, ItemSamplerConfig { uneven, ..Default::default() }, TRAIN).is_empty());
    }
}

#[test]
fn uneven_shards_drop_omits_items_that_ranks_cannot_share_evenly() {
    let config =
        ItemSamplerConfig { batch_size: 2, shuffle: false, uneven: UnevenShards::Drop, ..Default::default() };
    let full = [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]];
    let cases =
        [(8, vec![]), (11, vec![]), (12, vec![[8], [9], [10], [11]]), (15, vec![[8], [9], [10], [11]])];
    for (n_items, last) in cases {
        let last: Vec<Vec<u32>> = last.iter().map(|seeds| seeds.to_vec()).collect();
        let expected: Vec<Vec<Vec<u32>>> =
            [full.to_vec(), last].into_iter().filter(|ranks| !ranks.is_empty()).collect();
        assert_eq!(seeds(&steps(n_items, 4, config, TRAIN)), expected, "{n_items} items");
    }
    assert!(steps(3, 4, config, TRAIN).is_empty());
}

#[test]
fn uneven_shards_pad_fills_the_last_step_with_the_first_items() {
    let config =
        ItemSamplerConfig { batch_size: 2, shuffle: false, uneven: UnevenShards::Pad, ..Default::default() };
    let cases = [
        (9, [vec![8], vec![0], vec![1], vec![2]]),
        (12, [vec![8], vec![9], vec![10], vec![11]]),
        (13, [vec![8, 9], vec![10, 11], vec![12, 0], vec![1, 2]]),
        (16, [vec![8, 9], vec![10, 11], vec![12, 13], vec![14, 15]]),
    ];
    for (n_items, last) in cases {
        let expected = [[vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7]], last];
        assert_eq!(seeds(&steps(n_items, 4, config, TRAIN)), expected, "{n_items} items");
    }
    // Items repeat if the padding needs more items than the list has.
    assert_eq!(seeds(&steps(1, 4, config, TRAIN)), [[[0], [0], [0], [0]]]);
    assert_eq!(seeds(&steps(2, 5, config, TRAIN)), [[[0], [1], [0], [1], [0]]]);
}

#[test]
fn padding_comes_from_the_start_of_the_shuffled_order() {
    let config = ItemSamplerConfig { batch_size: 8, uneven: UnevenShards::Pad, ..Default::default() };
    let order = ItemSampler::new(nodes(21), config).unwrap().epoch(TRAIN).items().to_vec();
    let steps = steps(21, 2, config, TRAIN);
    assert_eq!(together(&steps[0]), order[..16]);
    assert_eq!(together(&steps[1]), [&order[16..], &order[..1]].concat());
}

#[test]
fn a_short_last_step_that_is_dropped_is_not_padded() {
    for uneven in ALL {
        let config = ItemSamplerConfig { batch_size: 2, drop_last: true, uneven, ..Default::default() };
        let steps = steps(13, 4, config, TRAIN);
        assert_eq!(steps.len(), 1);
        assert_eq!(together(&steps[0]).len(), 8);
    }
}

#[test]
fn evaluation_uses_every_item_once_under_all_settings() {
    for n_ranks in [1, 2, 4, 5] {
        for n_items in [0, 1, 3, 8, 11, 4097] {
            for (uneven, drop_last) in ALL.into_iter().flat_map(|uneven| [(uneven, false), (uneven, true)]) {
                let config = ItemSamplerConfig { batch_size: 2, drop_last, uneven, ..Default::default() };
                let steps = steps(n_items, n_ranks, config, Phase::Validation);
                let judged: Vec<NodeId> = steps.iter().flat_map(|ranks| together(ranks)).collect();
                assert_eq!(judged, nodes(n_items), "{n_ranks} ranks, {config:?}");
            }
        }
    }
}

/// Guards against samplers that split the items only once: each rank would then see the same items in every epoch, and
/// the items left over from an even split would never be used.
#[test]
fn every_epoch_has_another_permutation_over_all_ranks() {
    let (n_items, n_ranks) = (103, 4);
    let config = ItemSamplerConfig { batch_size: 8, ..Default::default() };
    let mut orders = HashSet::new();
    let mut of_rank_0 = HashSet::new();
    for epoch in 0..10 {
        let steps = steps(n_items, n_ranks, config, Phase::Train { epoch });
        let order: Vec<NodeId> = steps.iter().flat_map(|ranks| together(ranks)).collect();
        assert_eq!(sorted(order.clone()), nodes(n_items), "epoch {epoch}");
        orders.insert(order);
        of_rank_0.extend(steps.iter().flat_map(|ranks| ranks[0].seeds.clone()));
    }
    assert_eq!(orders.len(), 10);
    // Rank 0 gets a quarter of the items per epoch, so it misses a given item in all ten epochs with a probability of 6
    // %.
    assert!(of_rank_0.len() > n_items * 3 / 4, "rank 0 used only {} of {n_items} items", of_rank_0.len());
}

/// A graph with in-degrees from 0 to 60, both above and below the fanouts.
fn graph(n_nodes: u32) -> Arc<Csc> {
    let mut srcs = Vec::new();
    let mut dsts = Vec::new();
    for dst in 0..n_nodes {
        for neighbor in 0..dst * 7 % 61 {
            srcs.push((dst * 31 + neighbor * neighbor * 17) % n_nodes);
            dsts.push(dst);
        }
    }
    Arc::new(CscBuilder::new(n_nodes as usize).build(&srcs, &dsts).unwrap())
}

/// Returns the picked edges of each destination.
fn picks(block: &Block) -> HashMap<NodeId, &[EdgeId]> {
    let edges = |row: usize| block.indptr()[row] as usize..block.indptr()[row + 1] as usize;
    block.dsts().iter().enumerate().map(|(row, &dst)| (dst, &block.edge_ids()[edges(row)])).collect()
}

#[test]
fn one_rank_of_4096_two_of_2048_and_four_of_1024_use_the_same_seeds_and_edges() {
    let n_items = 9000;
    let sampler = NeighborSampler::new(graph(n_items), [Fanout::UpTo(5), Fanout::UpTo(10), Fanout::UpTo(3)]);
    let mut scratch = Scratch::default();
    let mut blocks = |batch: &SeedBatch| {
        sampler.sample_blocks(&Seeds::nodes(batch.seeds.clone()), batch.key, &mut scratch).unwrap().blocks
    };
    let config = |batch_size| ItemSamplerConfig { batch_size, seed: 5, ..Default::default() };
    let phase = Phase::Train { epoch: 3 };
    let alone = steps(n_items as usize, 1, config(4096), phase);
    assert_eq!(alone.len(), 3);
    for n_ranks in [2, 4] {
        let many = steps(n_items as usize, n_ranks, config(4096 / n_ranks), phase);
        assert_eq!(many.len(), alone.len());
        for (ranks, alone) in many.iter().zip(&alone) {
            assert_eq!(together(ranks), alone[0].seeds, "{n_ranks} ranks");
            let whole = blocks(&alone[0]);
            let parts: Vec<Vec<Block>> = ranks.iter().map(&mut blocks).collect();
            for (layer, whole) in whole.iter().enumerate() {
                let expected = picks(whole);
                let mut seen = HashSet::new();
                for part in &parts {
                    for (dst, edges) in picks(&part[layer]) {
                        assert_eq!(Some(&edges), expected.get(&dst), "node {} in layer {layer}", dst.0);
                        seen.insert(dst);
                    }
                }
                assert_eq!(seen.len(), expected.len(), "destinations of layer {layer}");
            }
        }
    }
}

proptest! {
    #[test]
    fn ranks_split_each_step_evenly_under_every_policy(
        n_items in 0_usize..200,
        batch_size in 1_usize..12,
        n_ranks in 1_usize..7,
        uneven in prop::sample::select(ALL.to_vec()),
        seed: u64,
    ) {
        let config = ItemSamplerConfig { batch_size, uneven, seed, ..Default::default() };
        let steps = steps(n_items, n_ranks, config, TRAIN);
        let order = ItemSampler::new(nodes(n_items), config).unwrap().epoch(TRAIN).items().to_vec();
        let used: Vec<NodeId> = steps.iter().flat_map(|ranks| together(ranks)).collect();
        let n_used = match uneven {
            UnevenShards::Join => n_items,
            UnevenShards::Drop => n_items / n_ranks * n_ranks,
            UnevenShards::Pad => n_items.next_multiple_of(n_ranks),
        };
        prop_assert_eq!(used, order.into_iter().cycle().take(n_used).collect::<Vec<_>>());
        for ranks in &steps {
            let sizes: Vec<usize> = ranks.iter().map(|batch| batch.seeds.len()).collect();
            let (least, most) = (*sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
            prop_assert!(most <= batch_size && most > 0);
            prop_assert_eq!(sizes[0], most, "rank 0 should have the largest share");
            prop_assert!(most - least <= usize::from(uneven == UnevenShards::Join));
        }
    }
}

proptest! {
    /// A single rank with the batch size of all ranks together defines the items of a step. With sharding by owner,
    /// each rank gets those items that it owns, in the same order.
    #[test]
    fn sharding_by_owner_partitions_the_steps_of_one_rank(
        n_items in 0usize..300,
        n_ranks in 1usize..5,
        batch_size in 1usize..40,
        drop_last: bool,
        epoch in 0u64..3,
    ) {
        let owner = move |node: NodeId| node.0 as usize * 7 / 3 % n_ranks;
        let config = ItemSamplerConfig { batch_size, drop_last, ..Default::default() };
        for phase in [Phase::Train { epoch }, Phase::Validation] {
            let one = of_rank(n_items, ItemSamplerConfig { batch_size: batch_size * n_ranks, ..config }, phase);
            for rank in 0..n_ranks {
                let shard = Shard { rank, world_size: n_ranks };
                let sampler = ItemSampler::new(nodes(n_items), ItemSamplerConfig { shard, ..config }).unwrap();
                let order = sampler.shard_by_owner(owner).unwrap().epoch(phase);
                prop_assert_eq!(order.n_steps(), one.len());
                for (step, whole) in one.iter().enumerate() {
                    let own = whole.seeds.iter().copied().filter(|node| owner(*node) == rank);
                    let got = order.step(step);
                    prop_assert_eq!(&got.seeds, &own.collect::<Vec<_>>());
                    prop_assert_eq!(got.key, whole.key);
                }
            }
        }
    }
}

#[test]
fn sharding_by_owner_rejects_drop_and_pad() {
    for uneven in [UnevenShards::Drop, UnevenShards::Pad] {
        let config = ItemSamplerConfig { uneven, ..Default::default() };
        let error = ItemSampler::new(nodes(9), config).unwrap().shard_by_owner(|_| 0).unwrap_err();
        assert!(matches!(error, Error::OwnersNeedJoin), "{error}");
    }
}

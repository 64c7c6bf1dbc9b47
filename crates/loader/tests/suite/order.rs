//! The item sampler: order, sharding, last steps, keys.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_graph::NodeId;
use kiln_loader::{Error, ItemSampler, ItemSamplerConfig, Phase, Shard};
use kiln_sample::{KeyDomain, RngKey};
use proptest::prelude::*;

const TRAIN: Phase = Phase::Train { epoch: 0 };

fn nodes(n_items: usize) -> Vec<NodeId> {
    (0..n_items as u32).map(NodeId).collect()
}

fn sampler(items: Vec<NodeId>, config: ItemSamplerConfig) -> ItemSampler {
    ItemSampler::new(items, config).unwrap()
}

/// Returns the order of `n_items` items in a training epoch.
fn order(n_items: usize, seed: u64, epoch: u64) -> Vec<NodeId> {
    let config = ItemSamplerConfig { seed, ..Default::default() };
    sampler(nodes(n_items), config).epoch(Phase::Train { epoch }).items().to_vec()
}

/// The seeds of every step of one rank.
fn steps(sampler: &ItemSampler, phase: Phase) -> Vec<Vec<NodeId>> {
    let order = sampler.epoch(phase);
    (0..order.n_steps()).map(|step| order.step(step).seeds).collect()
}

#[test]
fn each_shuffled_epoch_has_another_permutation() {
    let one = order(1000, 1, 0);
    let mut sorted = one.clone();
    sorted.sort();
    assert_eq!(sorted, nodes(1000));
    assert_ne!(one, sorted);
    assert_ne!(one, order(1000, 1, 1));
    assert_ne!(one, order(1000, 2, 0));
    assert_eq!(one, order(1000, 1, 0));
}

/// Checks the algorithm that the docs of `ItemSampler` specify: a change breaks the reproducibility of every run.
#[test]
fn the_order_of_seed_7_epoch_3_is_as_documented() {
    assert_eq!(order(10, 7, 3), [5, 6, 3, 0, 8, 4, 2, 9, 7, 1].map(NodeId));
}

#[test]
fn every_position_is_reached_equally_often() {
    // Over 5,000 epochs, item 0 should be at each of the 5 positions 1,000 times. The standard deviation is 28, and the
    // tolerance is 5 standard deviations.
    let mut counts = [0_i32; 5];
    for epoch in 0..5000 {
        counts[order(5, 0, epoch).iter().position(|node| *node == NodeId(0)).unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| (count - 1000).abs() < 142), "{counts:?}");
}

#[test]
fn items_keep_their_order_without_shuffle_and_in_evaluation() {
    let config = ItemSamplerConfig { batch_size: 4, shuffle: false, ..Default::default() };
    let expected: Vec<Vec<NodeId>> = nodes(10).chunks(4).map(<[NodeId]>::to_vec).collect();
    assert_eq!(steps(&sampler(nodes(10), config), TRAIN), expected);
    let shuffled = sampler(nodes(10), ItemSamplerConfig { shuffle: true, ..config });
    assert_eq!(steps(&shuffled, Phase::Test), expected);
    assert_ne!(steps(&shuffled, TRAIN), expected);
}

#[test]
fn keys_of_training_are_folded_from_seed_epoch_and_step() {
    let config = ItemSamplerConfig { batch_size: 4, seed: 9, ..Default::default() };
    let items = sampler(nodes(10), config);
    let train = RngKey::new(9).fold_in(KeyDomain::Epoch, 5).fold_in(KeyDomain::Step, 2);
    assert_eq!(items.epoch(Phase::Train { epoch: 5 }).step(2).key, train);
}

/// The neighbours of a node are the same in every evaluation, but the negatives of a link are not.
#[test]
fn all_steps_of_all_evaluations_have_one_key() {
    let key = RngKey::new(9).fold_in(KeyDomain::Evaluation, 1);
    let phase_keys = [0, 1].map(|phase| RngKey::new(9).fold_in(KeyDomain::Evaluation, phase));
    for (batch_size, world_size) in [(4, 1), (1, 1), (2, 2), (1, 4)] {
        for rank in 0..world_size {
            let shard = Shard { rank, world_size };
            let items =
                sampler(nodes(10), ItemSamplerConfig { batch_size, seed: 9, shard, ..Default::default() });
            for (phase, phase_key) in [Phase::Validation, Phase::Test].into_iter().zip(phase_keys) {
                let plan = items.epoch(phase);
                for step in 0..plan.n_steps() {
                    let batch = plan.step(step);
                    assert_eq!((batch.key, batch.phase_key), (key, phase_key), "{phase:?}, step {step}");
                }
            }
        }
    }
}

#[test]
fn duplicate_items_are_drawn_as_often_as_listed() {
    let items = [3, 3, 5, 3].map(NodeId).to_vec();
    let mut drawn = steps(&sampler(items, ItemSamplerConfig { batch_size: 3, ..Default::default() }), TRAIN);
    assert_eq!(drawn.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
    let mut all = drawn.drain(..).flatten().collect::<Vec<_>>();
    all.sort();
    assert_eq!(all, [3, 3, 3, 5].map(NodeId));
}

#[test]
fn no_items_give_no_steps() {
    for drop_last in [false, true] {
        let items = sampler(Vec::new(), ItemSamplerConfig { drop_last, ..Default::default() });
        assert_eq!((items.n_steps(TRAIN), items.epoch(TRAIN).n_steps()), (0, 0));
    }
}

#[test]
fn an_overflowing_batch_size_takes_all_items_in_one_step() {
    let shard = Shard { rank: 1, world_size: 2 };
    let items = sampler(nodes(5), ItemSamplerConfig { batch_size: usize::MAX, shard, ..Default::default() });
    assert_eq!(items.epoch(TRAIN).step(0).seeds.len(), 2);
}

#[test]
fn rejects_a_zero_batch_size_and_a_rank_out_of_range() {
    let zero = ItemSamplerConfig { batch_size: 0, ..Default::default() };
    assert!(matches!(ItemSampler::new(nodes(1), zero), Err(Error::ZeroBatchSize)));
    for (rank, world_size) in [(4, 4), (5, 4), (0, 0)] {
        let config = ItemSamplerConfig { shard: Shard { rank, world_size }, ..Default::default() };
        let error = ItemSampler::new(nodes(1), config).unwrap_err();
        assert!(matches!(error, Error::BadShard { .. }));
        assert!(error.to_string().starts_with(&format!("rank {rank} of {world_size} ranks")));
    }
}

#[test]
#[should_panic(expected = "step 3 is out of range: the phase has 3 steps")]
fn a_step_after_the_last_panics() {
    let config = ItemSamplerConfig { batch_size: 4, ..Default::default() };
    sampler(nodes(10), config).epoch(TRAIN).step(3);
}

proptest! {
    /// The seeds of all ranks, in rank order, equal those of a single rank with the batch size of all ranks together.
    #[test]
    fn all_ranks_together_use_the_seeds_of_a_single_rank(
        n_items in 0_usize..300,
        batch_size in 1_usize..20,
        world_size in 1_usize..7,
        drop_last: bool,
        seed: u64,
    ) {
        let config = ItemSamplerConfig { batch_size, drop_last, seed, ..Default::default() };
        let alone = ItemSamplerConfig { batch_size: batch_size * world_size, ..config };
        let alone = sampler(nodes(n_items), alone);
        let mut together = vec![Vec::new(); alone.n_steps(TRAIN)];
        for rank in 0..world_size {
            let of_rank = sampler(nodes(n_items), ItemSamplerConfig { shard: Shard { rank, world_size }, ..config });
            prop_assert_eq!(of_rank.n_steps(TRAIN), alone.n_steps(TRAIN));
            for (step, seeds) in steps(&of_rank, TRAIN).into_iter().enumerate() {
                prop_assert!(seeds.len() <= batch_size);
                prop_assert_eq!(of_rank.epoch(TRAIN).step(step).key, alone.epoch(TRAIN).step(step).key);
                together[step].extend(seeds);
            }
        }
        prop_assert_eq!(&together, &steps(&alone, TRAIN));
        let n_drawn: usize = together.iter().map(Vec::len).sum();
        let per_step = batch_size * world_size;
        prop_assert_eq!(n_drawn, if drop_last { n_items / per_step * per_step } else { n_items });
    }
}

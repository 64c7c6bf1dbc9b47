//! Steps of several batches.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_graph::NodeId;
use kiln_loader::{
    BatchError, Batcher, Error, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, Phase, SeedBatch,
    Shard, StageTimes,
};

const TRAIN: Phase = Phase::Train { epoch: 3 };

/// A batcher that returns its seeds.
struct Seeds;

impl Batcher for Seeds {
    type Item = NodeId;
    type Batch = SeedBatch;
    type Scratch = ();

    fn batch(&self, seeds: SeedBatch, _: &mut (), _: &mut StageTimes) -> Result<SeedBatch, BatchError> {
        Ok(seeds)
    }

    fn n_bytes(batch: &SeedBatch) -> usize {
        batch.seeds.len() * 4
    }
}

fn sampler(config: ItemSamplerConfig) -> ItemSampler {
    let items: Vec<NodeId> = (0..50).map(NodeId).collect();
    ItemSampler::new(items, config).unwrap()
}

fn loader(config: ItemSamplerConfig, workers: usize) -> Loader<Seeds> {
    Loader::new(sampler(config), Seeds, LoaderConfig { workers, queue_bytes: 64 }).unwrap()
}

/// On each of two ranks, three batches of 2 have the seeds and the key of one batch of 6. The last of the 5 steps has 2 seeds.
#[test]
fn the_batches_of_a_step_divide_the_seeds_of_one_larger_batch() {
    for rank in 0..2 {
        let shard = Shard { rank, world_size: 2 };
        let small = ItemSamplerConfig { batch_size: 2, accumulate: 3, shard, ..Default::default() };
        let whole = sampler(ItemSamplerConfig { batch_size: 6, accumulate: 1, ..small }).epoch(TRAIN);
        for workers in [0, 3] {
            let batches: Vec<_> = loader(small, workers).epoch(TRAIN).map(Result::unwrap).collect();
            assert_eq!((whole.n_steps(), batches.len()), (5, 15));
            for (step, parts) in batches.chunks(3).enumerate() {
                let whole = whole.step(step);
                assert!(parts.iter().all(|part| (part.key, part.step) == (whole.key, step)));
                let seeds: Vec<_> = parts.iter().flat_map(|part| part.seeds.clone()).collect();
                assert_eq!(seeds, whole.seeds);
                let expected = if step < 4 { [2, 2, 2] } else { [1, 0, 0] };
                assert_eq!(parts.iter().map(|part| part.seeds.len()).collect::<Vec<_>>(), expected);
            }
        }
    }
}

#[test]
fn an_epoch_resumes_at_the_first_batch_of_a_step() {
    let config = ItemSamplerConfig { batch_size: 4, accumulate: 3, ..Default::default() };
    for workers in [0, 2] {
        let loader = loader(config, workers);
        let whole: Vec<_> = loader.epoch(TRAIN).map(Result::unwrap).collect();
        for first_step in 0..=6 {
            let batches = loader.epoch_from(TRAIN, first_step);
            assert_eq!(batches.n_steps(), 5);
            let rest: Vec<_> = batches.map(Result::unwrap).collect();
            assert_eq!(rest, whole[(3 * first_step).min(whole.len())..]);
        }
    }
}

#[test]
fn evaluation_has_one_batch_per_step() {
    let one = ItemSamplerConfig { batch_size: 4, ..Default::default() };
    let accumulating = ItemSamplerConfig { accumulate: 3, ..one };
    for phase in [Phase::Validation, Phase::Test] {
        let batches = |config| loader(config, 0).epoch(phase).map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(batches(accumulating), batches(one));
        assert_eq!(accumulating.items_per_step(phase), 4);
    }
    assert_eq!(accumulating.items_per_step(TRAIN), 12);
}

#[test]
fn rejects_steps_without_batches() {
    let config = ItemSamplerConfig { accumulate: 0, ..Default::default() };
    let error = ItemSampler::new(vec![NodeId(0)], config).unwrap_err();
    assert!(matches!(error, Error::ZeroAccumulate), "{error}");
}

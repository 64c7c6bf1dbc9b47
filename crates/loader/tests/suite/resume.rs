//! Resuming in the middle of an epoch.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kiln_graph::NodeId;
use kiln_loader::{
    BatchError, Batcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, Phase, SeedBatch, Shard,
    StageTimes, UnevenShards,
};

/// A batcher that returns its seeds and counts the batches that it makes.
struct Seeds(Arc<AtomicUsize>);

impl Batcher for Seeds {
    type Item = NodeId;
    type Batch = SeedBatch;
    type Scratch = ();

    fn batch(&self, seeds: SeedBatch, _: &mut (), _: &mut StageTimes) -> Result<SeedBatch, BatchError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(seeds)
    }

    fn n_bytes(batch: &SeedBatch) -> usize {
        batch.seeds.len() * 4
    }
}

#[test]
fn epoch_from_returns_the_remaining_batches_of_the_epoch() {
    let items: Vec<NodeId> = (0..50).map(NodeId).collect();
    let shard = Shard { rank: 1, world_size: 3 };
    for workers in [0, 1, 4] {
        for uneven in [UnevenShards::Join, UnevenShards::Drop, UnevenShards::Pad] {
            let config = ItemSamplerConfig { batch_size: 2, uneven, shard, ..Default::default() };
            let n_made = Arc::new(AtomicUsize::new(0));
            let items = ItemSampler::new(items.clone(), config).unwrap();
            let loader = LoaderConfig { workers, queue_bytes: 64 };
            let loader = Loader::new(items, Seeds(n_made.clone()), loader).unwrap();
            for phase in [Phase::Train { epoch: 4 }, Phase::Test] {
                let whole: Vec<SeedBatch> = loader.epoch(phase).map(Result::unwrap).collect();
                assert_eq!(whole.len(), loader.n_steps(phase));
                for first_step in [0, 1, 4, whole.len() - 1, whole.len(), whole.len() + 1, usize::MAX] {
                    n_made.store(0, Ordering::SeqCst);
                    let batches = loader.epoch_from(phase, first_step);
                    assert_eq!(batches.n_steps(), whole.len());
                    let rest: Vec<SeedBatch> = batches.map(Result::unwrap).collect();
                    let expected = whole.get(first_step..).unwrap_or_default();
                    assert_eq!(rest, expected, "{workers} workers from step {first_step}");
                    assert_eq!(n_made.load(Ordering::SeqCst), rest.len(), "batches made");
                }
            }
        }
    }
}

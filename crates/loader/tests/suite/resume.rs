//! Going on in the middle of an epoch.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kiln_graph::NodeId;
use kiln_loader::{
    Fetch, FetchError, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, Pass, SeedBatch, Shard,
    StageTimes, Uneven,
};

/// The seeds as they come; counts the batches that were made.
struct Seeds(Arc<AtomicUsize>);

impl Fetch for Seeds {
    type Batch = SeedBatch;
    type Scratch = ();

    fn fetch(&self, seeds: SeedBatch, _: &mut (), _: &mut StageTimes) -> Result<SeedBatch, FetchError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(seeds)
    }

    fn n_bytes(batch: &SeedBatch) -> usize {
        batch.seeds.len() * 4
    }
}

#[test]
fn an_epoch_from_a_step_is_the_epoch_without_the_steps_before() {
    let items: Vec<NodeId> = (0..50).map(NodeId).collect();
    let shard = Shard { rank: 1, world_size: 3 };
    for workers in [0, 1, 4] {
        for uneven in [Uneven::Join, Uneven::Drop, Uneven::Pad] {
            let config = ItemSamplerConfig { batch_size: 2, uneven, shard, ..Default::default() };
            let n_made = Arc::new(AtomicUsize::new(0));
            let items = ItemSampler::new(items.clone(), config).unwrap();
            let loader = LoaderConfig { workers, queue_bytes: 64 };
            let loader = Loader::new(items, Seeds(n_made.clone()), loader).unwrap();
            for pass in [Pass::Train { epoch: 4 }, Pass::Test] {
                let whole: Vec<SeedBatch> = loader.epoch(pass).map(Result::unwrap).collect();
                assert_eq!(whole.len(), loader.n_steps(pass));
                for first_step in [0, 1, 4, whole.len() - 1, whole.len(), whole.len() + 1, usize::MAX] {
                    n_made.store(0, Ordering::SeqCst);
                    let batches = loader.epoch_from(pass, first_step);
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

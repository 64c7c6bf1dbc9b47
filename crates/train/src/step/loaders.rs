use std::sync::Arc;

use kiln_graph::ItemId;
use kiln_loader::{Batcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, Shard, UnevenShards};

use crate::error::{Error, Result};
use crate::step::batch::{DeviceBatcher, ToDevice};
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

/// How items become batches. Seed and rank are the trainer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchConfig {
    /// The number of items in a batch of one rank.
    pub batch_size: usize,
    /// Whether each training epoch has its own random order. Evaluation never shuffles.
    pub shuffle: bool,
    /// Whether training leaves out a last step that is not full.
    pub drop_last: bool,
    /// What training does with a last step whose items do not divide by the number of ranks.
    pub uneven: UnevenShards,
}

impl Default for BatchConfig {
    /// Shuffled batches of 1,024, the short last one kept.
    fn default() -> Self {
        let ItemSamplerConfig { batch_size, shuffle, drop_last, uneven, .. } = ItemSamplerConfig::default();
        Self { batch_size, shuffle, drop_last, uneven }
    }
}

impl BatchConfig {
    pub(crate) fn with_seed(self, seed: u64, shard: Shard) -> ItemSamplerConfig {
        let Self { batch_size, shuffle, drop_last, uneven } = self;
        ItemSamplerConfig { batch_size, shuffle, drop_last, uneven, seed, shard }
    }
}

impl<T: Task> TaskTrainer<T> {
    /// This rank's share of the items, in the order that the trainer's seed gives.
    ///
    /// # Errors
    /// [`Error::Loader`] for batches of no items.
    pub fn items<I: ItemId>(
        &self,
        items: impl Into<Arc<[I]>>,
        config: BatchConfig,
    ) -> Result<ItemSampler<I>> {
        Ok(ItemSampler::new(items, config.with_seed(self.seed, self.shard()))?)
    }

    /// A loader of the items' batches, which its workers copy to the trainer's device. Batches that a
    /// [`DeviceNodeBatcher`](crate::DeviceNodeBatcher) makes there need no copy: they are for [`Loader::new`].
    ///
    /// # Errors
    /// [`Error::Loader`] for too many workers, and [`Error::OtherLoader`] for items that [`TaskTrainer::items`] has not made.
    pub fn loader<F>(
        &self,
        items: ItemSampler<F::Item>,
        batcher: F,
        config: LoaderConfig,
    ) -> Result<Loader<DeviceBatcher<F>>>
    where
        F: Batcher<Batch: ToDevice<Input = T::Input>>,
        T::Input: Send + 'static,
    {
        self.check_seed(&items)?;
        Ok(Loader::new(items, DeviceBatcher::new(batcher, &self.device), config)?)
    }

    /// Checks that items are this rank's share and ordered by the trainer's seed.
    pub(crate) fn check_items<I: ItemId>(&self, items: &ItemSampler<I>) -> Result<()> {
        self.check_seed(items)?;
        self.check_shard(items, self.shard())
    }

    pub(crate) fn check_seed<I: ItemId>(&self, items: &ItemSampler<I>) -> Result<()> {
        let seed = items.config().seed;
        if seed != self.seed {
            let (expected, got) = (format!("seed {}", self.seed), format!("seed {seed}"));
            return Err(Error::OtherLoader { expected, got });
        }
        Ok(())
    }

    /// Checks that items are the share of this rank.
    pub(crate) fn check_shard<I: ItemId>(&self, items: &ItemSampler<I>, expected: Shard) -> Result<()> {
        let got = items.config().shard;
        if got != expected {
            let text = |shard: Shard| format!("the share of rank {} of {}", shard.rank, shard.world_size);
            return Err(Error::OtherLoader { expected: text(expected), got: text(got) });
        }
        Ok(())
    }

    pub(crate) fn shard(&self) -> Shard {
        let rank_info = self.comm.rank_info();
        Shard { rank: rank_info.rank, world_size: rank_info.world_size }
    }
}

use std::sync::Arc;

use kiln_graph::ItemId;
use kiln_loader::{Batcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, Shard, UnevenShards};

use crate::error::{Error, Result, TrainerError};
use crate::step::batch::{DeviceBatcher, ToDevice};
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

/// The division of items into batches. The seed, the rank and the number of batches per step are the trainer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchConfig {
    /// The number of items in a batch of one rank.
    pub batch_size: usize,
    /// True to shuffle the items in every training epoch. Evaluation never shuffles.
    pub shuffle: bool,
    /// True to drop an incomplete last step in training.
    pub drop_last: bool,
    /// The treatment of a last training step whose number of items is not a multiple of the number of ranks.
    pub uneven: UnevenShards,
}

impl Default for BatchConfig {
    /// Returns the configuration of shuffled batches of 1,024 items, including the short last batch.
    fn default() -> Self {
        let ItemSamplerConfig { batch_size, shuffle, drop_last, uneven, .. } = ItemSamplerConfig::default();
        Self { batch_size, shuffle, drop_last, uneven }
    }
}

impl BatchConfig {
    pub(crate) fn with_seed(self, seed: u64, accumulate: usize, shard: Shard) -> ItemSamplerConfig {
        let Self { batch_size, shuffle, drop_last, uneven } = self;
        ItemSamplerConfig { batch_size, accumulate, shuffle, drop_last, uneven, seed, shard }
    }
}

impl<T: Task> TaskTrainer<T> {
    /// Returns this rank's share of the items, ordered by the trainer's seed.
    ///
    /// # Errors
    /// Returns [`Error::Loader`] for a batch size of 0.
    pub fn items<I: ItemId>(
        &self,
        items: impl Into<Arc<[I]>>,
        config: BatchConfig,
    ) -> Result<ItemSampler<I>> {
        Ok(ItemSampler::new(items, config.with_seed(self.seed, self.accumulate, self.shard()))?)
    }

    /// Creates a loader of the items' batches, whose workers copy them to the trainer's device. Use [`Loader::new`] for
    /// batches of a [`DeviceNodeBatcher`](crate::DeviceNodeBatcher), which are on the device already.
    ///
    /// # Errors
    /// Returns [`Error::Loader`] for too many workers, and [`TrainerError::OtherLoader`] for items of another seed than
    /// the trainer's.
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

    /// Checks that the items are this rank's share, ordered by the trainer's seed, in the trainer's number of batches
    /// per step.
    pub(crate) fn check_items<I: ItemId>(&self, items: &ItemSampler<I>) -> Result<()> {
        self.check_seed(items)?;
        let got = items.config().accumulate;
        if got != self.accumulate {
            let text = |accumulate| format!("{accumulate} batches per step");
            return Err(Error::Trainer(TrainerError::OtherLoader {
                expected: text(self.accumulate),
                got: text(got),
            }));
        }
        self.check_shard(items, self.shard())
    }

    pub(crate) fn check_seed<I: ItemId>(&self, items: &ItemSampler<I>) -> Result<()> {
        let seed = items.config().seed;
        if seed != self.seed {
            let expected = format!("seed {}", self.seed);
            let got = format!("seed {seed}");
            return Err(Error::Trainer(TrainerError::OtherLoader { expected, got }));
        }
        Ok(())
    }

    /// Checks that the items are those of the share `expected`.
    pub(crate) fn check_shard<I: ItemId>(&self, items: &ItemSampler<I>, expected: Shard) -> Result<()> {
        let got = items.config().shard;
        if got != expected {
            let text = |shard: Shard| format!("the share of rank {} of {}", shard.rank, shard.world_size);
            return Err(Error::Trainer(TrainerError::OtherLoader {
                expected: text(expected),
                got: text(got),
            }));
        }
        Ok(())
    }

    pub(crate) fn shard(&self) -> Shard {
        let rank_info = self.comm.rank_info();
        Shard { rank: rank_info.rank, world_size: rank_info.world_size }
    }
}

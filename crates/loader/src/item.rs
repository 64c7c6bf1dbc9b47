use std::ops::Range;
use std::sync::Arc;

use kiln_graph::NodeId;
use kiln_sample::{Domain, RngKey, Seeds};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::{Error, Result};

/// The value folded in [`Domain::Host`] for the stream that shuffles items.
const HOST_ITEM_ORDER: u64 = 0;

/// One rank of those that train together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// This rank, below `world_size`.
    pub rank: usize,
    /// Number of ranks, at least 1.
    pub world_size: usize,
}

impl Default for Shard {
    /// The only rank there is.
    fn default() -> Self {
        Self { rank: 0, world_size: 1 }
    }
}

/// How items become batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemSamplerConfig {
    /// Seeds in a batch of one rank. All ranks together take `batch_size * world_size` items a step.
    pub batch_size: usize,
    /// Whether each training epoch has its own random order. Evaluation never shuffles.
    pub shuffle: bool,
    /// Whether a last step with too few items for all ranks is left out.
    pub drop_last: bool,
    /// The run's seed, from which every key is folded.
    pub seed: u64,
    /// The rank whose share of each step is taken.
    pub shard: Shard,
}

impl Default for ItemSamplerConfig {
    /// Shuffled batches of 1,024 on one rank, the short last one kept, seed 0.
    fn default() -> Self {
        Self { batch_size: 1024, shuffle: true, drop_last: false, seed: 0, shard: Shard::default() }
    }
}

/// One way through the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// A training epoch: its order and its samples are its own.
    Train {
        /// The epoch, from 0.
        epoch: u64,
    },
    /// An evaluation: items in their given order, the same samples whenever it is repeated.
    Evaluate {
        /// Which evaluation: 0 validation, 1 test.
        split: u64,
    },
}

impl Pass {
    /// The key of the pass: `RngKey::new(seed)` folded with the epoch or the evaluation.
    pub fn key(self, seed: u64) -> RngKey {
        let run = RngKey::new(seed);
        match self {
            Self::Train { epoch } => run.fold(Domain::Epoch, epoch),
            Self::Evaluate { split } => run.fold(Domain::Evaluation, split),
        }
    }
}

/// Turns a list of items into shuffled, sharded batches of seeds.
///
/// Step `s` of a pass covers the items `s * g .. (s + 1) * g` of the pass's order, where
/// `g = batch_size * world_size`; the last step may be short. Of the `m` items of a step, rank `r` of `n`
/// takes `r * m / n .. (r + 1) * m / n`. So all ranks have the same number of steps, the ranks of a step
/// together are what a single rank with batches of `g` sees in that step, and a short last step is
/// spread over the ranks, of which some may get no seeds at all.
///
/// An item that stands in the list more than once is drawn as often.
///
/// # The order of a shuffled epoch
/// With `h = RngKey::new(seed).fold(Epoch, epoch).fold(Host, 0)`, the generator is xoshiro256** (Blackman
/// and Vigna 2018, "Scrambled linear pseudorandom number generators"), its state filled by four outputs of
/// SplitMix64 that starts from the 64-bit number `h` (first key word low). For `i` from the last position
/// down to 1, draw a 64-bit `u`, let `j = (u * (i + 1)) >> 64` in 128-bit arithmetic, and swap the
/// items at `i` and `j` (Fisher and Yates; Durstenfeld 1964, algorithm 235). The bias of a draw is below
/// `(i + 1) / 2^64`.
#[derive(Debug, Clone)]
pub struct ItemSampler {
    items: Arc<[NodeId]>,
    config: ItemSamplerConfig,
}

impl ItemSampler {
    /// Batches of the items as configured. No items give no steps.
    ///
    /// # Errors
    /// [`Error::ZeroBatchSize`], or [`Error::BadShard`] when the rank is not below the world size.
    pub fn new(items: impl Into<Arc<[NodeId]>>, config: ItemSamplerConfig) -> Result<Self> {
        if config.batch_size == 0 {
            return Err(Error::ZeroBatchSize);
        }
        let Shard { rank, world_size } = config.shard;
        if rank >= world_size {
            return Err(Error::BadShard { rank, world_size });
        }
        Ok(Self { items: items.into(), config })
    }

    /// The items in their given order.
    pub fn items(&self) -> &[NodeId] {
        &self.items
    }

    /// How items become batches.
    pub fn config(&self) -> &ItemSamplerConfig {
        &self.config
    }

    /// Number of steps in a pass, the same on all ranks.
    pub fn n_steps(&self) -> usize {
        let per_step = self.items_per_step();
        if self.config.drop_last { self.items.len() / per_step } else { self.items.len().div_ceil(per_step) }
    }

    /// The batches of one pass. Shuffling happens here, once: `n_items` swaps.
    pub fn epoch(&self, pass: Pass) -> ItemOrder {
        let key = pass.key(self.config.seed);
        let mut order = Arc::clone(&self.items);
        if self.config.shuffle && matches!(pass, Pass::Train { .. }) {
            shuffle(Arc::make_mut(&mut order), key.fold(Domain::Host, HOST_ITEM_ORDER));
        }
        ItemOrder { sampler: Self { items: order, config: self.config }, key }
    }

    fn items_per_step(&self) -> usize {
        // A product that does not fit is more than any list holds, and so is the largest number.
        self.config.batch_size.saturating_mul(self.config.shard.world_size)
    }
}

/// The batches of one pass: see [`ItemSampler::epoch`].
#[derive(Debug, Clone)]
pub struct ItemOrder {
    /// The same sampler over the items in this pass's order.
    sampler: ItemSampler,
    key: RngKey,
}

impl ItemOrder {
    /// Number of steps, the same on all ranks.
    pub fn n_steps(&self) -> usize {
        self.sampler.n_steps()
    }

    /// All items in the order of this pass, over all ranks.
    pub fn items(&self) -> &[NodeId] {
        self.sampler.items()
    }

    /// This rank's seeds of one step. They may be empty in the last step.
    ///
    /// # Panics
    /// When `step` is not below [`ItemOrder::n_steps`].
    pub fn step(&self, step: usize) -> SeedBatch {
        let n_steps = self.n_steps();
        assert!(step < n_steps, "step {step} of a pass of {n_steps}");
        let items = self.items();
        let per_step = self.sampler.items_per_step();
        let start = step * per_step;
        let of_step = &items[start..items.len().min(start.saturating_add(per_step))];
        let seeds = of_step[share(of_step.len(), self.sampler.config.shard)].to_vec();
        SeedBatch { step, key: self.key.fold(Domain::Step, step as u64), seeds: Seeds::nodes(seeds) }
    }
}

/// One rank's seeds of one step, and the key of all that is random in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedBatch {
    /// The step within the pass, from 0, the same on all ranks.
    pub step: usize,
    /// The pass's key folded with the step; the same on all ranks, so that a node's picks do not depend
    /// on the rank whose seed it is.
    pub key: RngKey,
    /// This rank's seeds.
    pub seeds: Seeds,
}

/// The part of `n_items` that a rank takes.
fn share(n_items: usize, shard: Shard) -> Range<usize> {
    let bound = |rank: usize| (rank as u128 * n_items as u128 / shard.world_size as u128) as usize;
    bound(shard.rank)..bound(shard.rank + 1)
}

fn shuffle(items: &mut [NodeId], key: RngKey) {
    let mut rng = Xoshiro256StarStar::seed_from_u64(key.to_u64());
    for last in (1..items.len()).rev() {
        let picked = (u128::from(rng.next_u64()) * (last as u128 + 1)) >> 64;
        items.swap(last, picked as usize);
    }
}

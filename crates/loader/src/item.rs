use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{ItemId, NodeId};
use kiln_sample::{KeyDomain, RngKey};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::seed_batch::{SeedBatch, StepItems};
use crate::{Error, Phase, Result};

/// The value that is folded into the epoch's key in [`KeyDomain::Host`] to derive the random stream that shuffles
/// items.
const HOST_ITEM_ORDER: u64 = 0;

/// A rank and the number of ranks among which items are sharded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// This rank, below `world_size`.
    pub rank: usize,
    /// The number of ranks, at least 1.
    pub world_size: usize,
}

impl Default for Shard {
    /// Returns rank 0 of a single rank.
    fn default() -> Self {
        Self { rank: 0, world_size: 1 }
    }
}

/// The policy for a training step whose number of items is not a multiple of the number of ranks. Only a short last
/// step can be uneven. Evaluation always uses [`UnevenShards::Join`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UnevenShards {
    /// Uses each item exactly once. The shares of the ranks differ by at most one item. Ranks other than rank 0 may
    /// have no items; they take part in the step with weight zero. With the other policies, the items of the last step
    /// depend on the number of ranks.
    #[default]
    Join,
    /// Drops up to `world_size - 1` items at the end of the step, so that all shares are equal. A step with fewer items
    /// than ranks is dropped.
    Drop,
    /// Pads the step with up to `world_size - 1` items from the start of the epoch's order, so that all shares are
    /// equal. Some items are then used twice. If the padding needs more items than the epoch has, the order repeats, as
    /// in PyTorch's `DistributedSampler`.
    Pad,
}

/// The settings by which an [`ItemSampler`] splits items into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemSamplerConfig {
    /// The number of seeds in a batch of one rank. All ranks together take `batch_size * world_size` items per step,
    /// and in training [`ItemSamplerConfig::accumulate`] times as many.
    pub batch_size: usize,
    /// The number of batches (micro-batches) of a rank that form one training step, at least 1. They share the step's
    /// key, so samples and dropout masks are those of one batch with all their seeds. Evaluation has one batch per step.
    pub accumulate: usize,
    /// True if each training epoch has its own random order. Evaluation never shuffles.
    pub shuffle: bool,
    /// True if training drops a last step with fewer items than the others. Evaluation never drops
    /// items.
    pub drop_last: bool,
    /// The policy for a last training step whose number of items is not a multiple of the number of ranks.
    pub uneven: UnevenShards,
    /// The seed of the run, from which all keys are derived.
    pub seed: u64,
    /// The rank whose seeds this sampler returns, and the number of ranks.
    pub shard: Shard,
}

impl Default for ItemSamplerConfig {
    /// Returns shuffled batches of 1,024 seeds on one rank, with a short last batch and seed 0.
    fn default() -> Self {
        Self {
            batch_size: 1024,
            accumulate: 1,
            shuffle: true,
            drop_last: false,
            uneven: UnevenShards::Join,
            seed: 0,
            shard: Shard::default(),
        }
    }
}

impl ItemSamplerConfig {
    /// Returns the configuration by which a single rank takes the items of all ranks, with the global batch size.
    #[must_use]
    pub fn all_ranks(self) -> Self {
        let batch_size = self.batch_size * self.shard.world_size;
        Self { batch_size, shard: Shard::default(), ..self }
    }

    /// Returns the number of batches of a rank in each step of a phase.
    pub fn batches_per_step(&self, phase: Phase) -> usize {
        if phase.is_training() { self.accumulate } else { 1 }
    }

    /// Returns the number of items that all ranks together take in each step of a phase, except a short last one.
    pub fn items_per_step(&self, phase: Phase) -> usize {
        // If the product overflows, `usize::MAX` is used instead: both exceed the length of any list.
        let of_ranks = self.batch_size.saturating_mul(self.shard.world_size);
        of_ranks.saturating_mul(self.batches_per_step(phase))
    }
}

/// Splits a list of items into shuffled, sharded batches of seeds. Items are nodes ([`NodeId`]) or the graphs of a set
/// ([`GraphId`](kiln_graph::GraphId)). An item that occurs several times in the list is used the same number of times
/// per epoch.
///
/// Step `s` of a phase covers the items `s * g .. (s + 1) * g` of the phase's order, where
/// `g` is [`ItemSamplerConfig::items_per_step`]; the last step may be short. Of the `m` items of a step, rank `r` of `n`
/// takes `r * m / n .. (r + 1) * m / n`, both rounded up, and divides them among its batches in the same way.
///
/// All ranks therefore have the same number of steps, and in each step the ranks together use the items that a single
/// rank with batches of `g` uses. A short last step is spread over the ranks. Some ranks may get no seeds in it, but
/// rank 0 always does, because the running statistics of batch normalisation are taken from rank 0. In training,
/// [`UnevenShards`] and [`ItemSamplerConfig::drop_last`] may change the items of the last step. Everything else depends
/// on `g` alone: 4 ranks with batches of 1,024 use the same items in each step as 1 rank with batches of 4,096.
///
/// # Equivalents in DGL and PyTorch
/// | DGL or PyTorch | kiln |
/// |---|---|
/// | `shuffle` | [`ItemSamplerConfig::shuffle`]: one permutation of all items per epoch, which the ranks split. GraphBolt's `DistributedItemSampler`, in versions that split before they shuffle, gives a rank the same items in each epoch |
/// | `drop_last` | [`ItemSamplerConfig::drop_last`]: drops a step over all ranks. GraphBolt drops the short batch of a rank, so the number of batches may differ between ranks |
/// | `drop_uneven_inputs` | [`UnevenShards::Drop`]. GraphBolt drops batches that not all ranks have, and the remaining batches may differ in size. Here all ranks always have the same number of steps, and fewer items are dropped than there are ranks |
/// | the `Join` context | [`UnevenShards::Join`], without a context manager |
/// | the padding of `DistributedSampler` | [`UnevenShards::Pad`] |
/// | `set_epoch(e)` | `Phase::Train { epoch: e }`, a required argument |
///
/// # The order of a shuffled epoch
/// The generator is xoshiro256** (Blackman and Vigna 2018, "Scrambled linear pseudorandom number generators"). Its
/// state is filled by four outputs of SplitMix64 that starts from the 64-bit number
/// `h = RngKey::new(seed).fold_in(Epoch, epoch).fold_in(Host, 0)` (first key word low). For `i` from the last position
/// down to 1, draw a 64-bit `u`, let `j = (u * (i + 1)) >> 64` in 128-bit arithmetic, and swap the items at `i` and `j`
/// (Fisher and Yates; Durstenfeld 1964, algorithm 235). The bias of a draw is below `(i + 1) / 2^64`.
#[derive(Debug, Clone)]
pub struct ItemSampler<I = NodeId> {
    items: Arc<[I]>,
    config: ItemSamplerConfig,
    owners: Option<Owners<I>>,
}

/// The function that returns the rank that owns an item.
#[derive(Clone)]
struct Owners<I>(Arc<dyn Fn(I) -> usize + Send + Sync>);

impl<I> fmt::Debug for Owners<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owners")
    }
}

impl<I: ItemId> ItemSampler<I> {
    /// Creates a sampler of these items, which may be empty.
    ///
    /// # Errors
    /// Returns [`Error::ZeroBatchSize`] if the batch size is 0, [`Error::ZeroAccumulate`] if a step has no batches, and
    /// [`Error::BadShard`] if the rank is not below the world size.
    pub fn new(items: impl Into<Arc<[I]>>, config: ItemSamplerConfig) -> Result<Self> {
        if config.batch_size == 0 {
            return Err(Error::ZeroBatchSize);
        }
        if config.accumulate == 0 {
            return Err(Error::ZeroAccumulate);
        }
        let Shard { rank, world_size } = config.shard;
        if rank >= world_size {
            return Err(Error::BadShard { rank, world_size });
        }
        Ok(Self { items: items.into(), config, owners: None })
    }

    /// Gives each rank those items of a step that it owns, in the order of the epoch, instead of an equal share. Use it
    /// for graphs that are partitioned among ranks. It applies to training and evaluation.
    ///
    /// The items of a step over all ranks do not change, so training differs only in the order in which gradients are
    /// summed. The size of a rank's batches varies around [`ItemSamplerConfig::batch_size`], and any rank may have no
    /// seeds in a step.
    ///
    /// # Errors
    /// Returns [`Error::OwnersNeedJoin`] unless [`ItemSamplerConfig::uneven`] is [`UnevenShards::Join`], because shares
    /// by owner are uneven in every step.
    pub fn shard_by_owner(self, owner: impl Fn(I) -> usize + Send + Sync + 'static) -> Result<Self> {
        match self.config.uneven {
            UnevenShards::Join => Ok(Self { owners: Some(Owners(Arc::new(owner))), ..self }),
            UnevenShards::Drop | UnevenShards::Pad => Err(Error::OwnersNeedJoin),
        }
    }

    /// Returns the items in their given order.
    pub fn items(&self) -> &[I] {
        &self.items
    }

    /// Returns the settings of the sampler.
    pub fn config(&self) -> &ItemSamplerConfig {
        &self.config
    }

    /// Returns the number of steps of a phase, the same on all ranks.
    pub fn n_steps(&self, phase: Phase) -> usize {
        let n_items = self.items.len();
        let per_step = self.config.items_per_step(phase);
        let n_in_last = n_items % per_step;
        let drops_last = match phase {
            Phase::Train { .. } => self.config.drop_last || self.n_used(phase, n_in_last) == 0,
            Phase::Validation | Phase::Test => false,
        };
        if drops_last { n_items / per_step } else { n_items.div_ceil(per_step) }
    }

    /// Returns the plan of one phase. For a shuffled epoch this copies and permutes the items once.
    pub fn epoch(&self, phase: Phase) -> EpochPlan<I> {
        let key = phase.key(self.config.seed);
        let mut order = Arc::clone(&self.items);
        if self.config.shuffle && matches!(phase, Phase::Train { .. }) {
            shuffle(Arc::make_mut(&mut order), key.fold_in(KeyDomain::Host, HOST_ITEM_ORDER));
        }
        EpochPlan { sampler: Self { items: order, ..self.clone() }, phase, key }
    }

    /// Returns the number of items that all ranks together use in a step to which the list contributes `n_items`. It is
    /// smaller if the policy drops items and larger if it pads the step.
    fn n_used(&self, phase: Phase, n_items: usize) -> usize {
        let n_ranks = self.config.shard.world_size;
        match (phase, self.config.uneven) {
            (Phase::Validation | Phase::Test, _) | (_, UnevenShards::Join) => n_items,
            (_, UnevenShards::Drop) => n_items - n_items % n_ranks,
            (_, UnevenShards::Pad) => n_items.next_multiple_of(n_ranks),
        }
    }
}

/// The plan of one phase, which returns the seeds of each step: see [`ItemSampler::epoch`].
#[derive(Debug, Clone)]
pub struct EpochPlan<I = NodeId> {
    /// The sampler of the items in this phase's order.
    sampler: ItemSampler<I>,
    phase: Phase,
    key: RngKey,
}

impl<I: ItemId> EpochPlan<I> {
    /// Returns the number of steps, the same on all ranks.
    pub fn n_steps(&self) -> usize {
        self.sampler.n_steps(self.phase)
    }

    /// Returns the number of batches of this rank in each step.
    pub fn batches_per_step(&self) -> usize {
        self.sampler.config.batches_per_step(self.phase)
    }

    /// Returns this rank's seeds of batch `index`, counted over all steps: a part of the seeds of step
    /// `index / batches_per_step`, with the key of the step. They may be empty in the last step.
    ///
    /// # Panics
    /// Panics if `index` is not below the number of steps times [`EpochPlan::batches_per_step`].
    pub fn batch(&self, index: usize) -> SeedBatch<I> {
        let world_size = self.batches_per_step();
        let mut batch = self.step(index / world_size);
        if 1 < world_size {
            let part = share(batch.seeds.len(), Shard { rank: index % world_size, world_size });
            batch.seeds = batch.seeds[part].to_vec();
        }
        batch
    }

    /// Returns the items of all ranks in the order of this phase, including items that a short last step drops.
    pub fn items(&self) -> &[I] {
        self.sampler.items()
    }

    /// Returns this rank's seeds of one step, of all its batches. They may be empty in the last step, or in any step if
    /// items are sharded by owner.
    ///
    /// # Panics
    /// Panics if `step` is not below [`EpochPlan::n_steps`].
    pub fn step(&self, step: usize) -> SeedBatch<I> {
        let n_steps = self.n_steps();
        assert!(step < n_steps, "step {step} is out of range: the phase has {n_steps} steps");
        let items = self.items();
        let per_step = self.sampler.config.items_per_step(self.phase);
        let start = step * per_step;
        let n_of_step = per_step.min(items.len() - start);
        let n_used = self.sampler.n_used(self.phase, n_of_step);
        let of_step = match self.phase {
            Phase::Train { .. } => StepItems::new(Arc::clone(&self.sampler.items), start, n_used),
            Phase::Validation | Phase::Test => {
                StepItems::new(Arc::clone(&self.sampler.items), 0, items.len())
            }
        };
        let batch = |seeds| SeedBatch {
            phase: self.phase,
            step,
            key: self.phase.step_key(self.sampler.config.seed, step),
            phase_key: self.key,
            seeds,
            times: None,
            of_step,
            excluded: None,
        };
        if let Some(Owners(owner)) = &self.sampler.owners {
            let rank = self.sampler.config.shard.rank;
            let of_step = items[start..start + n_of_step].iter().copied();
            return batch(of_step.filter(|item| owner(*item) == rank).collect());
        }
        let share = share(n_used, self.sampler.config.shard);
        // Positions after the step's items are padding, which is taken from the start of the order. The order repeats
        // if it has fewer items than the padding needs.
        let own = share.start.min(n_of_step)..share.end.min(n_of_step);
        let padding = share.start.max(n_of_step)..share.end.max(n_of_step);
        let mut seeds = items[start..][own].to_vec();
        seeds.extend(padding.map(|position| items[(position - n_of_step) % items.len()]));
        batch(seeds)
    }
}

/// Returns the part of `0..n_items` that a rank takes. Its bounds are rounded up, so rank 0 gets an item unless
/// `n_items` is 0.
fn share(n_items: usize, shard: Shard) -> Range<usize> {
    let bound = |rank: usize| (rank as u128 * n_items as u128).div_ceil(shard.world_size as u128) as usize;
    bound(shard.rank)..bound(shard.rank + 1)
}

fn shuffle<I>(items: &mut [I], key: RngKey) {
    let mut rng = Xoshiro256StarStar::seed_from_u64(key.to_u64());
    for last in (1..items.len()).rev() {
        let picked = (u128::from(rng.next_u64()) * (last as u128 + 1)) >> 64;
        items.swap(last, picked as usize);
    }
}

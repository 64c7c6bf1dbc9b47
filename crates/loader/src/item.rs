use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{ItemId, NodeId};
use kiln_sample::{KeyDomain, RngKey};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::{Error, Result};

/// The value folded in [`KeyDomain::Host`] for the stream that shuffles items.
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

/// The treatment of a training step whose items do not divide by the number of ranks, as happens in a
/// short last step only. Evaluation is always [`UnevenShards::Join`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UnevenShards {
    /// Each item is used exactly once. The ranks' shares differ by one item at most, and a rank may have
    /// none, but never the first: it takes part in the step with weight zero. Of the three, this alone gives
    /// a step the same items for any number of ranks.
    #[default]
    Join,
    /// The last items of the step are left out, fewer than there are ranks, so that all ranks have equally
    /// many. A step that has fewer items than there are ranks is left out.
    Drop,
    /// The step is filled up with items from the start of the pass's order, fewer than there are ranks, so
    /// that all ranks have equally many: some items are used twice. Where there are fewer items than are to
    /// be added, they are repeated, as PyTorch's `DistributedSampler` does.
    Pad,
}

/// How items become batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemSamplerConfig {
    /// Seeds in a batch of one rank. All ranks together take `batch_size * world_size` items a step.
    pub batch_size: usize,
    /// Whether each training epoch has its own random order. Evaluation never shuffles.
    pub shuffle: bool,
    /// Whether training leaves out a last step with fewer than `batch_size * world_size` items. Evaluation
    /// never does.
    pub drop_last: bool,
    /// What training does with a last step whose items do not divide by the number of ranks.
    pub uneven: UnevenShards,
    /// The run's seed, from which every key is folded.
    pub seed: u64,
    /// The rank whose share of each step is taken.
    pub shard: Shard,
}

impl Default for ItemSamplerConfig {
    /// Shuffled batches of 1,024 on one rank, the short last one kept, seed 0.
    fn default() -> Self {
        Self {
            batch_size: 1024,
            shuffle: true,
            drop_last: false,
            uneven: UnevenShards::Join,
            seed: 0,
            shard: Shard::default(),
        }
    }
}

/// A pass over the items: a training epoch or an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A training epoch: its order and its samples are its own.
    Train {
        /// The epoch, from 0.
        epoch: u64,
    },
    /// An evaluation on the validation split: every item exactly once over all ranks, in the given order, with the same
    /// samples whenever it is repeated.
    Validation,
    /// An evaluation on the test split, as the one on the validation split but for its samples.
    Test,
}

impl Phase {
    /// Whether the pass is an epoch of training.
    pub fn is_training(self) -> bool {
        matches!(self, Self::Train { .. })
    }

    /// The key of the pass: `RngKey::new(seed)` folded with the epoch or the evaluation.
    pub fn key(self, seed: u64) -> RngKey {
        let run = RngKey::new(seed);
        match self {
            Self::Train { epoch } => run.fold_in(KeyDomain::Epoch, epoch),
            Self::Validation => run.fold_in(KeyDomain::Evaluation, 0),
            Self::Test => run.fold_in(KeyDomain::Evaluation, 1),
        }
    }
}

/// Turns a list of items into shuffled, sharded batches of seeds. Items are nodes ([`NodeId`]) or the graphs of a set
/// ([`GraphId`](kiln_graph::GraphId)).
///
/// Step `s` of a pass covers the items `s * g .. (s + 1) * g` of the pass's order, where
/// `g = batch_size * world_size`; the last step may be short. Of the `m` items of a step, rank `r` of `n`
/// takes `r * m / n .. (r + 1) * m / n`, both rounded up. So all ranks have the same number of steps, the ranks of a step
/// together are what a single rank with batches of `g` sees in that step, and a short last step is
/// spread over the ranks, of which some may get no seeds at all, but never the first, whose running
/// statistics are those that are kept. In training, [`UnevenShards`] and
/// [`ItemSamplerConfig::drop_last`] may change the items of that last step; everything else depends on
/// `g` alone, so that 1 rank with batches of 4,096 sees what 4 ranks with batches of 1,024 see.
///
/// An item that stands in the list more than once is drawn as often.
///
/// # In the words of DGL and PyTorch
/// | there | here |
/// |---|---|
/// | `shuffle` | [`ItemSamplerConfig::shuffle`]: one permutation of all items an epoch, of which the ranks take their parts. GraphBolt's `DistributedItemSampler`, in versions that split before they shuffle, gives a rank the same items in each epoch |
/// | `drop_last` | [`ItemSamplerConfig::drop_last`]: of a step over all ranks. GraphBolt drops a rank's short batch, so that ranks may differ in their number of batches |
/// | `drop_uneven_inputs` | [`UnevenShards::Drop`]. GraphBolt leaves out batches that not all ranks have, and the batches that are left may differ in size; here all ranks have the same number of steps in any case, and fewer items are lost than there are ranks |
/// | the `Join` context | [`UnevenShards::Join`], without a wrapper around each path |
/// | the padding of `DistributedSampler` | [`UnevenShards::Pad`] |
/// | `set_epoch(e)` | `Phase::Train { epoch: e }`: there is nothing to forget |
///
/// # The order of a shuffled epoch
/// With `h = RngKey::new(seed).fold_in(Epoch, epoch).fold_in(Host, 0)`, the generator is xoshiro256** (Blackman
/// and Vigna 2018, "Scrambled linear pseudorandom number generators"), its state filled by four outputs of
/// SplitMix64 that starts from the 64-bit number `h` (first key word low). For `i` from the last position
/// down to 1, draw a 64-bit `u`, let `j = (u * (i + 1)) >> 64` in 128-bit arithmetic, and swap the
/// items at `i` and `j` (Fisher and Yates; Durstenfeld 1964, algorithm 235). The bias of a draw is below
/// `(i + 1) / 2^64`.
#[derive(Debug, Clone)]
pub struct ItemSampler<I = NodeId> {
    items: Arc<[I]>,
    config: ItemSamplerConfig,
    owners: Option<Owners<I>>,
}

/// The rank that each item belongs to.
#[derive(Clone)]
struct Owners<I>(Arc<dyn Fn(I) -> usize + Send + Sync>);

impl<I> fmt::Debug for Owners<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owners")
    }
}

impl<I: ItemId> ItemSampler<I> {
    /// Batches of the items as configured. No items give no steps.
    ///
    /// # Errors
    /// [`Error::ZeroBatchSize`], or [`Error::BadShard`] when the rank is not below the world size.
    pub fn new(items: impl Into<Arc<[I]>>, config: ItemSamplerConfig) -> Result<Self> {
        if config.batch_size == 0 {
            return Err(Error::ZeroBatchSize);
        }
        let Shard { rank, world_size } = config.shard;
        if rank >= world_size {
            return Err(Error::BadShard { rank, world_size });
        }
        Ok(Self { items: items.into(), config, owners: None })
    }

    /// The same batches over all ranks, of which each rank takes the items that it owns, in their order, in training and
    /// in evaluation: for graphs that are parted among ranks. Steps are the same as without owners, so that training is,
    /// too, but for the order in which gradients are added up. A rank's batches then vary about
    /// [`ItemSamplerConfig::batch_size`], as owners of items drawn at random do, and any rank may have none in a step.
    ///
    /// # Errors
    /// [`Error::OwnersNeedJoin`] unless the uneven last step is joined: that of each rank is uneven here.
    pub fn shard_by_owner(self, owner: impl Fn(I) -> usize + Send + Sync + 'static) -> Result<Self> {
        match self.config.uneven {
            UnevenShards::Join => Ok(Self { owners: Some(Owners(Arc::new(owner))), ..self }),
            UnevenShards::Drop | UnevenShards::Pad => Err(Error::OwnersNeedJoin),
        }
    }

    /// The items in their given order.
    pub fn items(&self) -> &[I] {
        &self.items
    }

    /// How items become batches.
    pub fn config(&self) -> &ItemSamplerConfig {
        &self.config
    }

    /// Number of steps in a pass, the same on all ranks.
    pub fn n_steps(&self, phase: Phase) -> usize {
        let (n_items, per_step) = (self.items.len(), self.items_per_step());
        let n_in_last = n_items % per_step;
        let drops_last = match phase {
            Phase::Train { .. } => self.config.drop_last || self.n_used(phase, n_in_last) == 0,
            Phase::Validation | Phase::Test => false,
        };
        if drops_last { n_items / per_step } else { n_items.div_ceil(per_step) }
    }

    /// The batches of one pass. Shuffling happens here, once: `n_items` swaps.
    pub fn epoch(&self, phase: Phase) -> EpochPlan<I> {
        let key = phase.key(self.config.seed);
        let mut order = Arc::clone(&self.items);
        if self.config.shuffle && matches!(phase, Phase::Train { .. }) {
            shuffle(Arc::make_mut(&mut order), key.fold_in(KeyDomain::Host, HOST_ITEM_ORDER));
        }
        EpochPlan { sampler: Self { items: order, ..self.clone() }, phase, key }
    }

    fn items_per_step(&self) -> usize {
        // A product that does not fit is more than any list holds, and so is the largest number.
        self.config.batch_size.saturating_mul(self.config.shard.world_size)
    }

    /// How many items all ranks together use in a step that has `n_items` of the list.
    fn n_used(&self, phase: Phase, n_items: usize) -> usize {
        let n_ranks = self.config.shard.world_size;
        match (phase, self.config.uneven) {
            (Phase::Validation | Phase::Test, _) | (_, UnevenShards::Join) => n_items,
            (_, UnevenShards::Drop) => n_items - n_items % n_ranks,
            (_, UnevenShards::Pad) => n_items.next_multiple_of(n_ranks),
        }
    }
}

/// The plan of one pass, which gives the batch of each step: see [`ItemSampler::epoch`].
#[derive(Debug, Clone)]
pub struct EpochPlan<I = NodeId> {
    /// The same sampler over the items in this pass's order.
    sampler: ItemSampler<I>,
    phase: Phase,
    key: RngKey,
}

impl<I: ItemId> EpochPlan<I> {
    /// Number of steps, the same on all ranks.
    pub fn n_steps(&self) -> usize {
        self.sampler.n_steps(self.phase)
    }

    /// All items in the order of this pass, over all ranks; those that a short last step leaves out too.
    pub fn items(&self) -> &[I] {
        self.sampler.items()
    }

    /// This rank's seeds of one step. They may be empty in the last step, and with owners in any.
    ///
    /// # Panics
    /// When `step` is not below [`EpochPlan::n_steps`].
    pub fn step(&self, step: usize) -> SeedBatch<I> {
        let n_steps = self.n_steps();
        assert!(step < n_steps, "step {step} of a pass of {n_steps}");
        let (items, per_step) = (self.items(), self.sampler.items_per_step());
        let start = step * per_step;
        let n_of_step = per_step.min(items.len() - start);
        let batch = |seeds| SeedBatch {
            phase: self.phase,
            step,
            key: self.key.fold_in(KeyDomain::Step, step as u64),
            seeds,
        };
        if let Some(Owners(owner)) = &self.sampler.owners {
            let rank = self.sampler.config.shard.rank;
            let of_step = items[start..start + n_of_step].iter().copied();
            return batch(of_step.filter(|item| owner(*item) == rank).collect());
        }
        let share = share(self.sampler.n_used(self.phase, n_of_step), self.sampler.config.shard);
        // What lies behind the step's own items pads it: it comes from the start of the order, which may have
        // to be gone through more than once.
        let own = share.start.min(n_of_step)..share.end.min(n_of_step);
        let padding = share.start.max(n_of_step)..share.end.max(n_of_step);
        let mut seeds = items[start..][own].to_vec();
        seeds.extend(padding.map(|position| items[(position - n_of_step) % items.len()]));
        batch(seeds)
    }
}

/// One rank's seeds of one step, and the key of all that is random in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedBatch<I = NodeId> {
    /// The pass: in training, blocks are prepared for the backward pass, too.
    pub phase: Phase,
    /// The step within the pass, from 0, the same on all ranks.
    pub step: usize,
    /// The pass's key folded with the step; the same on all ranks, so that a node's picks do not depend
    /// on the rank whose seed it is.
    pub key: RngKey,
    /// This rank's seeds.
    pub seeds: Vec<I>,
}

/// The part of `n_items` that a rank takes; the first has some wherever there are any.
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

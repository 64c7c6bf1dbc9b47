use kiln_sample::{KeyDomain, RngKey};

/// A pass over the items: a training epoch or an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A training epoch, which has its own order and its own random draws.
    Train {
        /// The epoch, from 0.
        epoch: u64,
    },
    /// An evaluation on the validation split. It uses every item exactly once over all ranks, in the given order. The
    /// sampled neighbours of an item are the same in every evaluation, whatever else is evaluated.
    Validation,
    /// An evaluation on the test split. Same as [`Phase::Validation`]; the negatives of a link are others.
    Test,
}

impl Phase {
    /// Returns true if the phase is a training epoch.
    pub fn is_training(self) -> bool {
        matches!(self, Self::Train { .. })
    }

    /// Returns the name of the split of the phase: `training`, `validation` or `test`.
    pub fn split_name(self) -> &'static str {
        match self {
            Self::Train { .. } => "training",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }

    /// Returns the key of the phase, for draws that do not depend on the step, such as the negatives of a link:
    /// `RngKey::new(seed)` folded with the epoch, or with the kind of evaluation.
    pub fn key(self, seed: u64) -> RngKey {
        let run = RngKey::new(seed);
        match self {
            Self::Train { epoch } => run.fold_in(KeyDomain::Epoch, epoch),
            Self::Validation => run.fold_in(KeyDomain::Evaluation, 0),
            Self::Test => run.fold_in(KeyDomain::Evaluation, 1),
        }
    }

    /// Returns the key with which the neighbours of a step are sampled. In training, it is the key of the phase folded with
    /// the step. Evaluations and predictions have one key, that of [`Phase::Test`], so that the neighbours of a node depend on
    /// the seed and the node, and not on the split, the step, the batch or the rank.
    pub fn step_key(self, seed: u64, step: usize) -> RngKey {
        match self {
            Self::Train { .. } => self.key(seed).fold_in(KeyDomain::Step, step as u64),
            Self::Validation | Self::Test => Self::Test.key(seed),
        }
    }
}

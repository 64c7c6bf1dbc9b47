use std::sync::{Arc, OnceLock};

use kiln_loader::Phase;
use kiln_sample::Negatives;

/// The negatives of each phase whose nodes exist at the times of links, which are made once. Clones of a loader share them.
#[derive(Debug, Clone, Default)]
pub(super) struct ExistingNegatives(Arc<[OnceLock<Negatives>; 3]>);

impl ExistingNegatives {
    /// Returns the negatives of a phase, which `make` makes at the first call.
    pub(super) fn get_or_make(&self, phase: Phase, make: impl FnOnce() -> Negatives) -> Negatives {
        let [of_training, of_validation, of_test] = &*self.0;
        let of_phase = match phase {
            Phase::Train { .. } => of_training,
            Phase::Validation => of_validation,
            Phase::Test => of_test,
        };
        of_phase.get_or_init(make).clone()
    }
}

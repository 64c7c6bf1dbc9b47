//! How processes end that a launcher has started, and what has it start them again.

use crate::{BoxError, Failure, RankError};

/// Exit status of a process whose peer is lost, that was told to stop and has left a checkpoint, or whose rank has met
/// with a [`TransientError`]: start the same again (`EX_TEMPFAIL` of BSD's `sysexits.h`).
pub const EXIT_RETRY: u8 = 75;

/// Exit status of a process whose job has failed: an error or a panic of some rank (`EX_SOFTWARE`).
pub const EXIT_FAILED: u8 = 70;

/// An error of a rank's body that another attempt may not meet, for example that of a full disk: a rank that returns it,
/// itself in the box and not in another error, ends the processes of its job with [`EXIT_RETRY`].
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TransientError(pub BoxError);

impl TransientError {
    /// Whether a rank returned one, and its end is the reason for that of the others.
    pub fn is_cause_of(error: &RankError) -> bool {
        matches!(error, RankError::Rank { failure: Failure::Failed(error), .. } if error.is::<Self>())
    }
}

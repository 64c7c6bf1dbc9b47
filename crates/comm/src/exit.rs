//! The exit statuses of launched processes, and the errors after which a launcher should start them again.

use std::sync::OnceLock;

use crate::{BoxError, Failure, JobError, RankError};

/// The exit status that asks the launcher to start the same job again (`EX_TEMPFAIL` of BSD's `sysexits.h`): a peer was
/// lost, the process was signalled to stop and wrote a checkpoint, or a rank returned a [`TransientError`].
pub const EXIT_RETRY: u8 = 75;

/// The exit status of a failed job (`EX_SOFTWARE`): a rank returned an error or panicked.
pub const EXIT_FAILED: u8 = 70;

/// An error after which another attempt may succeed, such as a full disk. If a rank's body returns it, the processes of
/// the job exit with [`EXIT_RETRY`]. The body must return it directly, not as the source of another error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TransientError(pub BoxError);

/// What [`clean_up_at_end`] sets.
static CLEAN_UP: OnceLock<fn()> = OnceLock::new();

/// Sets a function that runs before this process ends with its job because another rank was lost or failed. No destructor runs
/// then, so it removes what they would: unfinished files. It has 3 s. Only the first call has an effect.
///
/// ```
/// kiln_comm::clean_up_at_end(|| drop(std::fs::remove_file("out.tmp")));
/// ```
pub fn clean_up_at_end(clean_up: fn()) {
    CLEAN_UP.get_or_init(|| clean_up);
}

/// Runs the function of [`clean_up_at_end`], if it was called.
#[cfg(feature = "grpc")]
pub(crate) fn clean_up() {
    if let Some(clean_up) = CLEAN_UP.get() {
        clean_up();
    }
}

impl TransientError {
    /// Returns true if the rank that `error` reports returned a `TransientError`.
    pub fn is_cause_of(error: &RankError) -> bool {
        matches!(error, RankError::Rank { failure: Failure::Failed(error), .. } if error.is::<Self>())
    }
}

impl RankError {
    /// Returns the status with which a process should exit: [`EXIT_RETRY`] if another attempt may succeed, otherwise
    /// [`EXIT_FAILED`].
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Join(error) => error.status(),
            _ if TransientError::is_cause_of(self) => EXIT_RETRY,
            _ => EXIT_FAILED,
        }
    }
}

impl JobError {
    /// Returns the status with which the process should exit: [`EXIT_RETRY`] if another attempt may succeed, otherwise
    /// [`EXIT_FAILED`].
    pub fn status(&self) -> u8 {
        match self {
            Self::Lost { .. } => EXIT_RETRY,
            #[cfg(feature = "grpc")]
            Self::Rpc(crate::rpc::Error::NoAnswer { .. }) => EXIT_RETRY,
            _ => EXIT_FAILED,
        }
    }
}

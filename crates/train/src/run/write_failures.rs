//! What becomes of a run whose files cannot be written.

use std::fmt;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The training that a run may lose: it fails when it has had no complete checkpoint for longer.
const LIMIT: Duration = Duration::from_secs(3600);

/// The time since a fixed moment.
pub(crate) struct Clock(pub(crate) Box<dyn Fn() -> Duration + Send>);

impl Default for Clock {
    fn default() -> Self {
        let start = Instant::now();
        Self(Box::new(move || start.elapsed()))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// Decides whether a run continues although a write has failed.
#[derive(Debug)]
pub(crate) struct WriteFailures {
    clock: Clock,
    /// When the last checkpoint was complete; before the first one, when the run started or resumed.
    last_checkpoint: Duration,
    /// Whether the failure was logged, since files could be written for the last time.
    is_logged: bool,
}

impl WriteFailures {
    /// A run starts or resumes now.
    pub(crate) fn new(clock: Clock) -> Self {
        let last_checkpoint = clock.0();
        Self { clock, last_checkpoint, is_logged: false }
    }

    /// The same with another clock, by which the age of the last checkpoint counts from now.
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { is_logged: self.is_logged, ..Self::new(clock) }
    }

    /// A checkpoint is complete.
    pub(crate) fn checkpoint_written(&mut self) {
        self.last_checkpoint = self.clock.0();
    }

    /// All files are written.
    pub(crate) fn all_written(&mut self) {
        self.is_logged = false;
    }

    /// A write has failed: returns a warning for the first of several failures, and none for the others.
    ///
    /// # Errors
    /// The error, if it is not transient; [`Error::CheckpointOverdue`] if too much training would be lost.
    pub(crate) fn tolerate(&mut self, error: Error) -> Result<Option<String>> {
        if !error.is_transient() {
            return Err(error);
        }
        let age = self.clock.0().saturating_sub(self.last_checkpoint);
        if LIMIT < age {
            return Err(Error::CheckpointOverdue { age, last: Box::new(error) });
        }
        let is_first = !std::mem::replace(&mut self.is_logged, true);
        Ok(is_first.then(|| {
            format!(
                "{error}: the run continues and retries at each checkpoint that is due, and fails when the last complete \
                 one is older than {} minutes",
                LIMIT.as_secs() / 60
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn error(source: io::Error) -> Error {
        Error::Io { path: "checkpoint".into(), source }
    }

    /// A clock that shows these seconds.
    fn failures(seconds: &Arc<AtomicU64>) -> WriteFailures {
        let seconds = Arc::clone(seconds);
        let now = move || Duration::from_secs(seconds.load(Ordering::Relaxed));
        WriteFailures::new(Clock(Box::new(now)))
    }

    #[test]
    fn a_transient_failure_is_logged_once_until_a_write_succeeds() {
        let mut failures = failures(&Arc::default());
        let mut full =
            || failures.tolerate(error(io::ErrorKind::StorageFull.into())).expect("a transient error");
        assert!(full().is_some_and(|warning| warning.contains("checkpoint: no storage space")));
        assert_eq!((full(), full()), (None, None));
        failures.all_written();
        assert!(
            failures.tolerate(error(io::ErrorKind::StorageFull.into())).expect("a transient error").is_some()
        );
    }

    #[test]
    fn fails_when_the_last_checkpoint_is_older_than_an_hour() {
        let seconds = Arc::new(AtomicU64::new(100));
        let mut failures = failures(&seconds);
        let mut fails_at = |now, is_written| {
            seconds.store(now, Ordering::Relaxed);
            if is_written {
                failures.checkpoint_written();
            }
            failures.tolerate(error(io::Error::from_raw_os_error(5))).err()
        };
        // Without a checkpoint, since the start.
        assert!(fails_at(3700, false).is_none());
        let overdue = fails_at(3701, false).expect("a checkpoint that is overdue");
        assert!(matches!(overdue, Error::CheckpointOverdue { age, .. } if age == Duration::from_secs(3601)));
        assert!(overdue.is_transient());
        // A complete one starts the hour anew.
        assert!(fails_at(5000, true).is_none());
        assert!(fails_at(8600, false).is_none());
        assert!(fails_at(8601, false).is_some());
    }

    #[test]
    fn an_error_that_a_retry_does_not_mend_ends_the_run_at_once() {
        let mut failures = failures(&Arc::default());
        let denied = error(io::ErrorKind::PermissionDenied.into());
        assert!(matches!(failures.tolerate(denied), Err(Error::Io { .. })));
    }
}

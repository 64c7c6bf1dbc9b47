//! The policy for failed writes: which failures a run tolerates, and for how long.

use std::fmt;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// The maximum age of the last complete checkpoint at a failed write. If it is older, the run fails.
const LIMIT: Duration = Duration::from_secs(3600);

/// A monotonic clock: returns the time since a fixed moment.
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

/// Decides whether a run continues after a failed write.
#[derive(Debug)]
pub(crate) struct WriteFailures {
    clock: Clock,
    /// The time of the last complete checkpoint; before the first one, the time at which the run started or resumed.
    last_checkpoint: Duration,
    /// True if a warning was returned since all files were last written completely.
    is_logged: bool,
}

impl WriteFailures {
    /// Starts measuring the age of the last checkpoint. It is called when a run starts or resumes.
    pub(crate) fn new(clock: Clock) -> Self {
        let last_checkpoint = clock.0();
        Self { clock, last_checkpoint, is_logged: false }
    }

    /// Uses another clock, and measures the age of the last checkpoint from this clock's current time.
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { is_logged: self.is_logged, ..Self::new(clock) }
    }

    /// Measures the age of the last checkpoint from now on, before the first one.
    pub(crate) fn restart(&mut self) {
        self.last_checkpoint = self.clock.0();
    }

    /// Records that a checkpoint is complete.
    pub(crate) fn checkpoint_written(&mut self) {
        self.last_checkpoint = self.clock.0();
    }

    /// Records that all files are written.
    pub(crate) fn all_written(&mut self) {
        self.is_logged = false;
    }

    /// Handles a failed write. Returns a warning for the first of consecutive failures, and `None` for the others.
    ///
    /// # Errors
    /// Returns the error if it is not transient, and [`Error::CheckpointOverdue`] if the last checkpoint is too old.
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
                "{error}: the run continues, retries at each due checkpoint, and fails when the last complete one is \
                 older than {} minutes",
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
    use crate::error::RunError;

    fn error(source: io::Error) -> Error {
        Error::Run(RunError::Io { path: "checkpoint".into(), source })
    }

    /// Creates a policy whose clock shows these seconds.
    fn failures(seconds: &Arc<AtomicU64>) -> WriteFailures {
        let seconds = Arc::clone(seconds);
        WriteFailures::new(Clock(Box::new(move || Duration::from_secs(seconds.load(Ordering::Relaxed)))))
    }

    #[test]
    fn a_transient_failure_is_logged_once_until_a_write_succeeds() {
        let mut failures = failures(&Arc::default());
        let mut full = || {
            failures
                .tolerate(error(io::ErrorKind::StorageFull.into()))
                .expect("a full disk should be tolerated")
        };
        assert!(full().is_some_and(|warning| warning.contains("checkpoint: no storage space")));
        assert_eq!((full(), full()), (None, None));
        failures.all_written();
        assert!(
            failures
                .tolerate(error(io::ErrorKind::StorageFull.into()))
                .expect("a full disk should be tolerated")
                .is_some()
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
        // Before the first checkpoint, the hour counts from the start.
        assert!(fails_at(3700, false).is_none());
        let overdue = fails_at(3701, false).expect("an overdue checkpoint should be an error");
        assert!(matches!(overdue, Error::CheckpointOverdue { age, .. } if age == Duration::from_secs(3601)));
        assert!(overdue.is_transient());
        // A complete checkpoint restarts the hour.
        assert!(fails_at(5000, true).is_none());
        assert!(fails_at(8600, false).is_none());
        assert!(fails_at(8601, false).is_some());
    }

    #[test]
    fn a_permanent_error_ends_the_run_at_once() {
        let mut failures = failures(&Arc::default());
        let denied = error(io::ErrorKind::PermissionDenied.into());
        assert!(matches!(failures.tolerate(denied), Err(Error::Run(RunError::Io { .. }))));
    }
}

use std::time::{Duration, Instant};

/// How often a process says what it does, and the first one that it is alive.
pub(crate) const BEAT: Duration = Duration::from_millis(500);

/// A rank that was heard from within this time is alive: ten beats, as a loaded machine may delay some.
pub(crate) const RECENT: Duration = Duration::from_secs(5);

/// How long is waited for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// For processes to join.
    pub(crate) join: Duration,
    /// For a process that says nothing.
    pub(crate) deadline: Duration,
}

/// Tells how long this process did not run, between ticks that should be less than a second apart.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the last tick that is more than a busy machine explains: that of a process that was stopped.
    pub(crate) fn tick(&mut self) -> Duration {
        let now = Instant::now();
        let since = now - std::mem::replace(&mut self.0, now);
        if Duration::from_secs(2) < since { since } else { Duration::ZERO }
    }
}

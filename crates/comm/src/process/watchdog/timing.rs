use std::time::{Duration, Instant};

/// The interval at which rank 0 sends heartbeats. Processes send their activity to rank 0 twice as often.
pub(crate) const BEAT: Duration = Duration::from_millis(500);

/// The time for which a rank counts as alive after its last message: ten times [`BEAT`], because a loaded machine may
/// delay messages.
pub(crate) const RECENT: Duration = Duration::from_secs(5);

/// The timeouts of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// The maximum time until all processes have joined.
    pub(crate) join: Duration,
    /// The time after which a process that sends no message counts as lost.
    pub(crate) deadline: Duration,
}

/// Detects that this process was stopped, and for how long, from calls of `tick` that should be less than a second
/// apart.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the last tick if it exceeds two seconds, because the process was then stopped; otherwise
    /// zero. A shorter delay may be due to a busy machine.
    pub(crate) fn tick(&mut self) -> Duration {
        let now = Instant::now();
        let since = now - std::mem::replace(&mut self.0, now);
        if Duration::from_secs(2) < since { since } else { Duration::ZERO }
    }
}

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts events that other processes cause, and limits the rate at which they are logged, so repeated events cannot fill the log.
#[derive(Debug)]
pub struct Throttle {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    n_events: u64,
    logged: Option<Instant>,
}

impl Throttle {
    /// Creates a throttle that logs the first event, and later ones at most once per `every`.
    pub fn new(every: Duration) -> Self {
        Self { every, state: Mutex::default() }
    }

    /// Counts an event. Calls `log` with the number of events so far, unless this throttle called it less than `every` ago (see
    /// [`Throttle::new`]).
    pub fn event(&self, log: impl FnOnce(u64)) {
        if let Some(n_events) = self.count(Instant::now()) {
            log(n_events);
        }
    }

    /// Returns the number of events so far.
    pub fn n_events(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).n_events
    }

    /// Counts an event. Returns the number of events so far if this one should be logged, otherwise `None`.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.n_events += 1;
        if state.logged.is_some_and(|logged| now.saturating_duration_since(logged) < self.every) {
            return None;
        }
        state.logged = Some(now);
        Some(state.n_events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_the_first_event_and_then_one_per_period() {
        let throttle = Throttle::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| throttle.count(start + Duration::from_secs(seconds));
        assert_eq!(
            [at(0), at(1), at(9), at(10), at(11), at(25)],
            [Some(1), None, None, Some(4), None, Some(6)]
        );
        assert_eq!(throttle.n_events(), 6);
    }
}

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The leases of a server's clients. A lease expires if its client makes no call for the lease time.
#[derive(Debug)]
pub(crate) struct Leases {
    time: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The time of the last call with each lease.
    heard: HashMap<u64, Instant>,
    next: u64,
    /// The time at which a lease was last taken or ended; `None` before the first lease.
    free_since: Option<Instant>,
}

impl Leases {
    /// Creates an empty set of leases whose ids start at `first`. `first` should be random, so that ids differ from
    /// those of other servers, including one that ran at the same address before.
    pub(crate) fn new(time: Duration, first: u64) -> Self {
        let state = State { heard: HashMap::new(), next: first, free_since: None };
        Self { time, state: Mutex::new(state) }
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn take(&self, now: Instant) -> u64 {
        let mut state = self.state(now);
        let id = state.next;
        state.next = state.next.wrapping_add(1);
        state.heard.insert(id, now);
        state.free_since = Some(now);
        id
    }

    /// Renews a lease. Returns false if there is no such lease.
    pub(crate) fn renew(&self, id: u64, now: Instant) -> bool {
        let mut state = self.state(now);
        let heard = state.heard.get_mut(&id);
        let is_there = heard.is_some();
        heard.into_iter().for_each(|heard| *heard = now);
        is_there
    }

    pub(crate) fn end(&self, id: u64, now: Instant) {
        let mut state = self.state(now);
        if state.heard.remove(&id).is_some() {
            state.free_since = Some(now);
        }
    }

    pub(crate) fn n_held(&self, now: Instant) -> usize {
        self.state(now).heard.len()
    }

    /// Returns the time since the last lease ended; `None` while there are leases, and before the first lease.
    pub(crate) fn free_for(&self, now: Instant) -> Option<Duration> {
        let state = self.state(now);
        state.free_since.filter(|_| state.heard.is_empty()).map(|since| now.saturating_duration_since(since))
    }

    /// Locks the state, and removes expired leases.
    fn state(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = |heard: &Instant| *heard + self.time;
        let last_end = state.heard.values().map(ends).filter(|end| *end <= now).max();
        state.heard.retain(|_, heard| now < *heard + self.time);
        if let Some(end) = last_end {
            state.free_since = state.free_since.max(Some(end));
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_expire_unless_renewed() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let leases = Leases::new(10 * second, 7);
        assert_eq!(leases.free_for(start), None);
        let (first, other) = (leases.take(start), leases.take(start + second));
        assert_ne!(first, other);
        assert!(leases.renew(first, start + 9 * second));
        assert_eq!(leases.n_held(start + 12 * second), 1);
        assert!(!leases.renew(other, start + 12 * second), "the lease should have expired");
        assert_eq!(leases.free_for(start + 12 * second), None);
        assert_eq!(leases.free_for(start + 24 * second), Some(5 * second));
        leases.end(first, start + 24 * second);
        assert_eq!(
            leases.free_for(start + 24 * second),
            Some(5 * second),
            "ending an expired lease should have no effect"
        );
        let third = leases.take(start + 30 * second);
        leases.end(third, start + 31 * second);
        assert_eq!(leases.free_for(start + 33 * second), Some(2 * second));
    }
}

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// Finished batches on their way from the workers to the caller, in the order of their steps.
///
/// **Bound.** A worker starts a step only when the bytes that are ready, and the bytes that the steps in
/// flight and this one will take, fit `queue_bytes`; a step not made yet counts as the largest batch so
/// far. Before the first batch is known, and when a single batch is larger than the queue, one step at a
/// time is made. The bytes exceed the bound only by what the steps in flight turn out larger than the
/// largest batch before them.
///
/// **Nothing waits for ever.** Steps are started in ascending order and the caller takes them in
/// ascending order. When the caller waits for step `s`, every step before it was taken, so `s` is ready,
/// in flight or the next to be started. Ready: the caller takes it. In flight: its worker holds no lock
/// while it makes the batch, and publishes whatever comes of it, a panic included. Next to be started:
/// then nothing is ready or in flight, and such a start is always allowed. A fault keeps later steps from
/// being started, and the caller asks for none of them. A worker waits only for a step that it may start,
/// and is woken by [`Queue::close`], by a fault, and when the last step was started.
///
/// **Locks.** The state's mutex is the only lock taken here; no code of the user's runs under it, so a
/// poisoned one still guards a valid state and is used on.
#[derive(Debug)]
pub(crate) struct Queue<B> {
    state: Mutex<State<B>>,
    /// Notified, for all, at every change of the state.
    changed: Condvar,
}

#[derive(Debug)]
struct State<B> {
    /// The step that a worker starts next.
    next_step: usize,
    /// The first step that is not to be started: the number of steps, or what follows the first fault.
    end_step: usize,
    n_in_flight: usize,
    /// Steps that are finished and not taken.
    ready: BTreeMap<usize, Made<B>>,
    ready_bytes: usize,
    largest_bytes: usize,
    queue_bytes: usize,
}

/// What came of one step.
#[derive(Debug)]
pub(crate) struct Made<B> {
    /// The batch, or why there is none.
    pub(crate) outcome: Result<B, Error>,
    /// Bytes of the batch; 0 without one.
    pub(crate) n_bytes: usize,
}

impl<B> State<B> {
    fn may_start(&self) -> bool {
        if self.n_in_flight == 0 && self.ready.is_empty() {
            return true;
        }
        let unmade = self.largest_bytes.saturating_mul(self.n_in_flight + 1);
        self.largest_bytes > 0 && self.ready_bytes.saturating_add(unmade) <= self.queue_bytes
    }
}

impl<B> Queue<B> {
    /// A queue for these steps; `largest_bytes` is the largest batch known from before, or 0.
    pub(crate) fn new(steps: Range<usize>, queue_bytes: usize, largest_bytes: usize) -> Self {
        let state = State {
            next_step: steps.start,
            end_step: steps.end,
            n_in_flight: 0,
            ready: BTreeMap::new(),
            ready_bytes: 0,
            largest_bytes,
            queue_bytes,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until a step may be started and returns it; `None` when no more are to be.
    pub(crate) fn start(&self) -> Option<usize> {
        let mut state = self.lock();
        while state.next_step < state.end_step {
            if state.may_start() {
                let step = state.next_step;
                state.next_step += 1;
                state.n_in_flight += 1;
                self.changed.notify_all();
                return Some(step);
            }
            state = self.wait(state);
        }
        None
    }

    /// Hands over what came of a step that was started.
    pub(crate) fn publish(&self, step: usize, made: Made<B>) {
        let mut state = self.lock();
        state.n_in_flight -= 1;
        state.ready_bytes = state.ready_bytes.saturating_add(made.n_bytes);
        match made.outcome {
            // At least 1, which says that a batch is known.
            Ok(_) => state.largest_bytes = state.largest_bytes.max(made.n_bytes).max(1),
            Err(_) => state.end_step = state.end_step.min(step + 1),
        }
        state.ready.insert(step, made);
        self.changed.notify_all();
    }

    /// Waits for a step and takes what came of it. Steps are taken in ascending order, none after a fault.
    pub(crate) fn take(&self, step: usize) -> Result<B, Error> {
        let mut state = self.lock();
        loop {
            if let Some(made) = state.ready.remove(&step) {
                state.ready_bytes = state.ready_bytes.saturating_sub(made.n_bytes);
                self.changed.notify_all();
                return made.outcome;
            }
            state = self.wait(state);
        }
    }

    /// Lets no further step be started.
    pub(crate) fn close(&self) {
        self.lock().end_step = 0;
        self.changed.notify_all();
    }

    /// Gives back what nobody will take, to be dropped without the lock.
    pub(crate) fn drain(&self) -> BTreeMap<usize, Made<B>> {
        let mut state = self.lock();
        state.ready_bytes = 0;
        std::mem::take(&mut state.ready)
    }

    /// The largest batch so far, in bytes.
    pub(crate) fn largest_bytes(&self) -> usize {
        self.lock().largest_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<B>>) -> MutexGuard<'a, State<B>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_start(queue: &Queue<()>) -> bool {
        queue.lock().may_start()
    }

    fn publish(queue: &Queue<()>, step: usize, n_bytes: usize) {
        queue.publish(step, Made { outcome: Ok(()), n_bytes });
    }

    #[test]
    fn one_step_at_a_time_is_made_until_a_batch_is_known() {
        let queue = Queue::new(0..10, 30, 0);
        assert_eq!(queue.start(), Some(0));
        assert!(!may_start(&queue));
        publish(&queue, 0, 10);
        assert!(may_start(&queue));
    }

    #[test]
    fn steps_in_flight_count_as_the_largest_batch() {
        let queue = Queue::new(0..10, 30, 10);
        assert_eq!((queue.start(), queue.start(), queue.start()), (Some(0), Some(1), Some(2)));
        assert!(!may_start(&queue));
        // A smaller batch than feared leaves too little room for another of the largest size.
        publish(&queue, 1, 4);
        assert!(!may_start(&queue));
        publish(&queue, 0, 6);
        assert!(may_start(&queue));
        publish(&queue, 2, 10);
        assert!(may_start(&queue));
        assert_eq!(queue.start(), Some(3));
        assert!(!may_start(&queue));
        queue.take(0).unwrap();
        assert!(!may_start(&queue));
        queue.take(1).unwrap();
        assert!(may_start(&queue));
    }

    #[test]
    fn a_batch_larger_than_the_queue_is_made_alone() {
        for queue_bytes in [0, 5] {
            let queue = Queue::new(0..3, queue_bytes, 0);
            for step in 0..3 {
                assert_eq!(queue.start(), Some(step));
                publish(&queue, step, 10);
                assert!(!may_start(&queue));
                queue.take(step).unwrap();
            }
            assert_eq!(queue.start(), None);
        }
    }

    #[test]
    fn a_fault_keeps_later_steps_from_starting() {
        let queue = Queue::<()>::new(0..10, 100, 10);
        assert_eq!((queue.start(), queue.start()), (Some(0), Some(1)));
        queue.publish(1, Made { outcome: Err(Error::ZeroBatchSize), n_bytes: 0 });
        assert_eq!(queue.start(), None);
        publish(&queue, 0, 10);
        queue.take(0).unwrap();
        assert!(queue.take(1).is_err());
    }
}

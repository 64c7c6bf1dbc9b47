use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Error;

/// A bounded queue of finished batches from the workers to the caller, in the order of their steps.
///
/// **Bound.** A worker starts a step only if the ready batches, the steps in flight and this step fit `queue_bytes`,
/// where an unfinished step counts as the largest batch so far. Until the size of a first batch is known, and if a
/// single batch is larger than the queue, steps are made one at a time. The queue exceeds the bound only if a batch in
/// flight is larger than all batches before it, and only by the difference.
///
/// **No deadlock.** Workers start steps in ascending order and the caller takes them in ascending order. While the
/// caller waits for step `s`, every step before it has been taken, so `s` is ready, in flight or the next to start. If
/// it is ready, the caller takes it. If it is in flight, its worker makes the batch without holding a lock and
/// publishes the outcome, even after a panic. If it is the next to start, nothing is ready or in flight, and such a
/// start is always allowed. After a fault no later step is started, and the caller takes no further step. A worker
/// waits only until it may start a step; [`Queue::close`], a fault and the start of the last step also wake it.
///
/// **Locks.** The mutex of the state is the only lock taken here. No user code runs while it is held, so the state is
/// valid even if the mutex is poisoned.
#[derive(Debug)]
pub(crate) struct Queue<B> {
    state: Mutex<State<B>>,
    /// The condition variable that wakes all waiters at every change of the state.
    changed: Condvar,
}

#[derive(Debug)]
struct State<B> {
    /// The next step to start.
    next_step: usize,
    /// One past the last step to start: the number of steps, or the step after the first fault.
    end_step: usize,
    n_in_flight: usize,
    /// The finished steps that the caller has not taken.
    ready: BTreeMap<usize, Made<B>>,
    ready_bytes: usize,
    largest_bytes: usize,
    queue_bytes: usize,
}

/// The outcome of one step.
#[derive(Debug)]
pub(crate) struct Made<B> {
    /// The batch of the step, or the error.
    pub(crate) outcome: Result<B, Error>,
    /// The size of the batch in bytes; 0 for an error.
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
    /// Creates a queue for these steps; `largest_bytes` is the size of the largest batch of earlier phases, or 0.
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

    /// Waits until a step may be started and returns it, or `None` if no step is left to start.
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

    /// Publishes the outcome of a step that was started.
    pub(crate) fn publish(&self, step: usize, made: Made<B>) {
        let mut state = self.lock();
        state.n_in_flight -= 1;
        state.ready_bytes = state.ready_bytes.saturating_add(made.n_bytes);
        match made.outcome {
            // The size is at least 1, because 0 means that no batch size is known.
            Ok(_) => state.largest_bytes = state.largest_bytes.max(made.n_bytes).max(1),
            Err(_) => state.end_step = state.end_step.min(step + 1),
        }
        state.ready.insert(step, made);
        self.changed.notify_all();
    }

    /// Waits for a step and takes its outcome. The caller must take steps in ascending order, and must not take a step
    /// after a fault.
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

    /// Waits until the outcome of a step can be taken without waiting, for at most this time, and returns whether it can.
    pub(crate) fn wait_for(&self, step: usize, at_most: Duration) -> bool {
        let state = self.lock();
        let waited =
            self.changed.wait_timeout_while(state, at_most, |state| !state.ready.contains_key(&step));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.ready.contains_key(&step)
    }

    /// Ends the queue: no further step is started, and waiting workers return.
    pub(crate) fn close(&self) {
        self.lock().end_step = 0;
        self.changed.notify_all();
    }

    /// Removes and returns the outcomes that were not taken, so that the caller can drop them without the lock.
    pub(crate) fn drain(&self) -> BTreeMap<usize, Made<B>> {
        let mut state = self.lock();
        state.ready_bytes = 0;
        std::mem::take(&mut state.ready)
    }

    /// Returns the size of the largest batch so far, in bytes.
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
    fn steps_start_one_at_a_time_until_a_batch_size_is_known() {
        let queue = Queue::new(0..10, 30, 0);
        assert_eq!(queue.start(), Some(0));
        assert!(!may_start(&queue));
        publish(&queue, 0, 10);
        assert!(may_start(&queue));
    }

    #[test]
    fn steps_in_flight_are_assumed_to_have_the_size_of_the_largest_batch() {
        let queue = Queue::new(0..10, 30, 10);
        assert_eq!((queue.start(), queue.start(), queue.start()), (Some(0), Some(1), Some(2)));
        assert!(!may_start(&queue));
        // The batch has 4 bytes instead of the assumed 10, which leaves too little room for another 10.
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
    fn batches_larger_than_the_queue_are_made_one_at_a_time() {
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
    fn a_wait_for_a_step_ends_when_it_is_ready_or_after_its_time() {
        let queue = Queue::new(0..2, 100, 10);
        assert_eq!(queue.start(), Some(0));
        assert!(!queue.wait_for(0, Duration::ZERO));
        std::thread::scope(|scope| {
            scope.spawn(|| publish(&queue, 0, 10));
            assert!(queue.wait_for(0, Duration::MAX));
        });
        queue.take(0).unwrap();
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

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;
use crate::call::Call;
use crate::threads::group::{Arrival, Farewell, GroupId, Origin, Payload};
use crate::threads::state::{Ending, Seat, State};

/// The time between the drop of a communicator that other ranks wait for and the end of the world. If the body of the
/// dropping rank ends within this time, the other ranks report its error or panic as the cause. Only a body that
/// continues after the drop takes longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The rendezvous of all ranks of a process, in all their channels and subgroups.
///
/// **No wait is infinite.** A thread waits only in [`World::meet`], for the last member of its group to join the round.
/// There are four cases. The member joins and wakes all. It has left the group or its body has ended, which ends the
/// world at once, or, if its body still runs, at the latest a second later. It panics or fails, which ends its body. Or
/// it does none of these, and the deadline of the waiting thread ends the world; that thread wakes by itself and needs
/// only the lock. The end of the world is final and wakes all threads in every group.
///
/// **No wake-up is lost.** Every change that threads wait for is made under the lock, by methods that notify all
/// threads before they unlock. A thread checks the state under the same lock before it sleeps.
///
/// **All or none.** A round is complete when all members have joined, and each of them collects it before it checks
/// anything else. So a collective succeeds on all its ranks, or on none if the world ends before.
///
/// **Locks.** The state's mutex is the only lock. The work done under it grows only with the number of ranks and
/// groups, and includes no user code. Poisoning is ignored.
#[derive(Debug)]
pub(crate) struct World {
    state: Mutex<State>,
    /// All threads that wait for this are woken whenever the state has news.
    changed: Condvar,
    deadline: Duration,
}

impl World {
    /// Creates a world in which drops of communicators are the only sign that a rank has ended.
    pub(crate) fn new(n_ranks: usize, deadline: Duration) -> Self {
        Self { state: Mutex::new(State::new(n_ranks, None)), changed: Condvar::new(), deadline }
    }

    /// Creates a world whose owner calls [`World::end_body`] for each rank.
    pub(crate) fn with_bodies(n_ranks: usize, deadline: Duration) -> Self {
        Self { state: Mutex::new(State::new(n_ranks, Some(LAST_WORDS))), changed: Condvar::new(), deadline }
    }

    /// Returns the maximum time that a rank waits in a collective.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Joins the collective with `payload`, waits for all members of the group, and returns the payloads of all
    /// members, by rank of the group.
    pub(crate) fn meet(
        &self,
        seat: Seat,
        call: Call,
        number: u64,
        deadline: Duration,
        payload: Payload,
    ) -> Result<Vec<Payload>, Error> {
        let start = Instant::now();
        // A deadline beyond the range of the clock means no deadline.
        let until = start.checked_add(deadline);
        let mut state = self.lock();
        let arrival = state.arrive(seat, Arrival { call, number, payload }, start);
        self.notify(&mut state);
        let round = arrival.map_err(|cause| state.refusal(seat, &call, number, &cause))?;
        loop {
            if let Some(brought) = state.collect(seat, round) {
                return Ok(brought);
            }
            if let Some(cause) = state.why_not(seat) {
                return Err(state.error(seat, &call, number, &cause));
            }
            let now = Instant::now();
            state.look(now);
            if until.is_some_and(|until| until <= now) {
                state.give_up(seat, deadline);
            }
            self.notify(&mut state);
            if state.why_not(seat).is_none() {
                let wake = [until, state.looks_again()].into_iter().flatten().min();
                state = self.wait(state, wake.map(|wake| wake.saturating_duration_since(now)));
            }
        }
    }

    /// Takes the rank's seat in the group of this origin.
    pub(crate) fn take_seat(&self, rank: usize, origin: Origin) -> GroupId {
        self.lock().take_seat(rank, origin)
    }

    /// Sets the step of the rank, for messages.
    pub(crate) fn set_step(&self, rank: usize, step: u64) {
        self.lock().set_step(rank, step);
    }

    /// Records that the rank has dropped its communicator of the group.
    pub(crate) fn leave(&self, seat: Seat, farewell: Farewell) {
        let mut state = self.lock();
        state.leave(seat, farewell, Instant::now());
        self.notify(&mut state);
    }

    /// Records that the rank's body has ended. The rank leaves all groups.
    pub(crate) fn end_body(&self, rank: usize, ending: Ending) {
        let mut state = self.lock();
        state.end_body(rank, ending, Instant::now());
        self.notify(&mut state);
    }

    /// Returns why the world has ended, if it has.
    pub(crate) fn cause(&self) -> Option<String> {
        self.lock().over().map(|cause| cause.to_string())
    }

    /// Returns the rank to investigate first, if the world has ended.
    pub(crate) fn culprit(&self) -> Option<usize> {
        self.lock().over().map(|cause| cause.rank())
    }

    fn notify(&self, state: &mut State) {
        if state.has_news() {
            self.changed.notify_all();
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, timeout: Option<Duration>) -> MutexGuard<'a, State> {
        match timeout {
            Some(timeout) => {
                self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

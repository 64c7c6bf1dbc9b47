use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;
use crate::call::Call;
use crate::threads::group::{Arrival, Farewell, GroupId, Origin, Payload};
use crate::threads::state::{Ending, Seat, State};

/// How long a rank that drops its communicator, while others wait for it, has to come to its end, so that
/// they hear of the error or panic behind it. Only a rank that drops it and goes on takes longer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where all ranks of a process meet, in all their channels and subgroups.
///
/// **Nothing waits for ever.** A thread waits in [`World::meet`] and nowhere else, for the last member of
/// its group to come to the round. That member comes, and wakes all; or it has let go of the group or its
/// body has ended, which ends the world at once, or after a second in which its body may end; or it
/// panics or fails, which is the end of its body; or it does none of these, and the deadline of the thread
/// that waits ends the world. The thread wakes by itself for that and needs nothing but the lock. The end of
/// the world wakes all, in every group; nobody waits in a world that is over. It is never taken back.
///
/// **No wake-up is lost.** Whatever threads wait for is changed under the lock, by methods that notify all
/// before they unlock; a thread that waits looks under the same lock before it sleeps.
///
/// **All or none.** A round is done when all have come, and who has come collects it before it looks at
/// anything else. So a collective succeeds on all its ranks or, as the world ends before, on none.
///
/// **Locks.** The state's mutex is the only one. It is held for work that grows with the number of ranks
/// and groups and with nothing else, no code of the user's runs under it, and a poisoned one is used on.
#[derive(Debug)]
pub(crate) struct World {
    state: Mutex<State>,
    /// Notified, for all, whenever the state has news.
    changed: Condvar,
    deadline: Duration,
}

impl World {
    /// A world whose ranks tell of their end in nothing but drops.
    pub(crate) fn new(n_ranks: usize, deadline: Duration) -> Self {
        Self { state: Mutex::new(State::new(n_ranks, None)), changed: Condvar::new(), deadline }
    }

    /// A world in which [`World::end_body`] will be called for each rank.
    pub(crate) fn with_bodies(n_ranks: usize, deadline: Duration) -> Self {
        Self { state: Mutex::new(State::new(n_ranks, Some(LAST_WORDS))), changed: Condvar::new(), deadline }
    }

    /// How long a rank waits in a collective.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Brings `payload` to the collective, waits for all members of the group, and returns what each has
    /// brought, by rank of the group.
    pub(crate) fn meet(
        &self,
        seat: Seat,
        call: Call,
        number: u64,
        deadline: Duration,
        payload: Payload,
    ) -> Result<Vec<Payload>, Error> {
        let start = Instant::now();
        // Longer than the clock goes is without a deadline, as was asked for.
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

    /// Seats the rank in the group of that origin.
    pub(crate) fn take_seat(&self, rank: usize, origin: Origin) -> GroupId {
        self.lock().take_seat(rank, origin)
    }

    /// Says which step the rank is in.
    pub(crate) fn set_step(&self, rank: usize, step: u64) {
        self.lock().set_step(rank, step);
    }

    /// The rank's communicator of that group is gone.
    pub(crate) fn leave(&self, seat: Seat, farewell: Farewell) {
        let mut state = self.lock();
        state.leave(seat, farewell, Instant::now());
        self.notify(&mut state);
    }

    /// The rank's body has come to its end, and with it all its communicators.
    pub(crate) fn end_body(&self, rank: usize, ending: Ending) {
        let mut state = self.lock();
        state.end_body(rank, ending, Instant::now());
        self.notify(&mut state);
    }

    /// The rank to look at first, if the world is over.
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

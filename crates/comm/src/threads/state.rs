use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::call::Call;
use crate::cause::{Cause, Whereabouts};
use crate::threads::group::{Arrival, Farewell, Group, GroupId, Origin, Payload};

/// A rank's membership in a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) group: GroupId,
    /// The rank in the world.
    pub(crate) rank: usize,
}

/// The way in which the body of a rank ended.
#[derive(Debug)]
pub(crate) enum Ending {
    Returned,
    Failed(String),
    Panicked(String),
}

/// The shared state of all ranks. It takes no lock, reads no clock and does not notify waiters. The owner notifies them
/// when [`State::has_news`] returns true.
#[derive(Debug)]
pub(crate) struct State {
    ranks: Vec<Rank>,
    groups: BTreeMap<GroupId, Group>,
    /// The number of groups created so far.
    n_groups: u64,
    /// The reason why the world has ended. Set once.
    over: Option<Arc<Cause>>,
    /// The suspected cause. It ends the world at `until`, unless the rank's body ends before with a more precise cause.
    suspicion: Option<Suspicion>,
    /// The time between a suspicion and the end of the world; `None` if ends of bodies are not reported.
    last_words: Option<Duration>,
    has_news: bool,
}

#[derive(Debug, Clone, Default)]
struct Rank {
    step: Option<u64>,
    /// True if the rank's body has ended.
    has_ended: bool,
}

#[derive(Debug)]
struct Suspicion {
    cause: Cause,
    until: Instant,
}

impl State {
    /// Creates the state of a world. If `last_words` is set, the owner must call [`State::end_body`] for each rank.
    pub(crate) fn new(n_ranks: usize, last_words: Option<Duration>) -> Self {
        Self {
            ranks: vec![Rank::default(); n_ranks],
            groups: BTreeMap::from([(GroupId::WORLD, Group::world(n_ranks))]),
            n_groups: 1,
            over: None,
            suspicion: None,
            last_words,
            has_news: false,
        }
    }

    /// Returns the reason why the world has ended, if it has.
    pub(crate) fn over(&self) -> Option<&Arc<Cause>> {
        self.over.as_ref()
    }

    /// Returns why a wait in this seat must fail (the world has ended or the rank has left), or `None` if it may go on.
    pub(crate) fn why_not(&self, seat: Seat) -> Option<Arc<Cause>> {
        let is_seated = self.groups.get(&seat.group).is_some_and(|group| group.is_seated(seat.rank));
        match &self.over {
            Some(cause) => Some(Arc::clone(cause)),
            None if is_seated => None,
            None => Some(Arc::new(self.departure(seat.rank, Farewell::Dropped))),
        }
    }

    /// Returns true if the state has changed for waiting threads since the last call.
    pub(crate) fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    pub(crate) fn set_step(&mut self, rank: usize, step: u64) {
        self.ranks[rank].step = Some(step);
    }

    /// Takes the rank's seat in the group of this origin. The first rank creates the group.
    pub(crate) fn take_seat(&mut self, rank: usize, origin: Origin) -> GroupId {
        let mut groups = self.groups.iter_mut();
        if let Some((id, group)) = groups.find(|(_, group)| group.origin.as_ref() == Some(&origin)) {
            group.take_seat(rank);
            return *id;
        }
        let id = GroupId(self.n_groups);
        self.n_groups += 1;
        // If all ranks have left the parent, no group is created, and collectives with the returned id fail.
        if let Some(parent) = self.groups.get(&origin.parent) {
            let mut group = parent.child(origin);
            group.take_seat(rank);
            self.groups.insert(id, group);
        }
        id
    }

    /// Joins the open round of the group and returns the round's number.
    ///
    /// # Errors
    /// Returns the cause if the world has ended, possibly because of this call, or if the rank has left the group.
    pub(crate) fn arrive(&mut self, seat: Seat, arrival: Arrival, now: Instant) -> Result<u64, Arc<Cause>> {
        if let Some(cause) = self.why_not(seat) {
            return Err(cause);
        }
        let group = self.groups.get_mut(&seat.group).expect("a rank with a seat should have a group");
        if let Some((rank, first)) = group.contradiction(&arrival.call) {
            let cause = Cause::Mismatch {
                meeting: Box::new(first.call.meeting(first.number, &group.name)),
                rank,
                step: self.ranks[rank].step,
                other_rank: seat.rank,
                other_step: self.ranks[seat.rank].step,
                other_collective: arrival.call.to_string(),
            };
            return Err(self.end(cause));
        }
        let round = group.arrive(seat.rank, arrival);
        if group.is_done(round) {
            self.has_news = true;
        } else if let Some((rank, farewell)) = group.lost() {
            self.suspect(rank, farewell, now);
        }
        Ok(round)
    }

    /// Returns the payloads of the round, by rank of the group, or `None` if the round is still open. After payloads
    /// were returned, a rank must not call this again for the same round.
    pub(crate) fn collect(&mut self, seat: Seat, round: u64) -> Option<Vec<Payload>> {
        let group = self.groups.get_mut(&seat.group)?;
        group.is_done(round).then(|| group.collect())
    }

    /// Leaves the group, and those children of it whose seats the rank has not taken.
    pub(crate) fn leave(&mut self, seat: Seat, farewell: Farewell, now: Instant) {
        let Some(group) = self.groups.get_mut(&seat.group) else { return };
        group.leave(seat.rank, farewell);
        let lost = group.lost();
        if group.is_deserted() {
            self.groups.remove(&seat.group);
        }
        if let Some((rank, farewell)) = lost {
            self.suspect(rank, farewell, now);
        }
        let is_closed = |group: &Group| group.is_child_of(seat.group) && group.is_untaken(seat.rank);
        let closed = self.groups.iter().filter(|(_, group)| is_closed(group)).map(|(id, _)| *id);
        for group in closed.collect::<Vec<_>>() {
            self.leave(Seat { group, ..seat }, farewell, now);
        }
    }

    /// Records the end of the body. The rank leaves all groups; its failure, or a suspicion against it, ends the world.
    pub(crate) fn end_body(&mut self, rank: usize, ending: Ending, now: Instant) {
        self.ranks[rank].has_ended = true;
        self.has_news = true;
        let step = self.ranks[rank].step;
        match ending {
            Ending::Returned => {}
            Ending::Failed(message) => drop(self.end(Cause::Failed { rank, step, message })),
            Ending::Panicked(message) => {
                drop(self.end(Cause::Panicked { rank, step, message: Some(message) }));
            }
        }
        for group in self.groups.keys().copied().collect::<Vec<_>>() {
            self.leave(Seat { group, rank }, Farewell::Dropped, now);
        }
        if self.suspicion.as_ref().is_some_and(|suspicion| suspicion.cause.rank() == rank)
            && let Some(suspicion) = self.suspicion.take()
        {
            self.end(suspicion.cause);
        }
    }

    /// Returns the time from which [`State::look`] ends the world because of the suspicion, if there is one.
    pub(crate) fn looks_again(&self) -> Option<Instant> {
        self.suspicion.as_ref().map(|suspicion| suspicion.until)
    }

    /// Ends the world if there is a suspicion whose time has come.
    pub(crate) fn look(&mut self, now: Instant) {
        if let Some(suspicion) = self.suspicion.take_if(|suspicion| suspicion.until <= now) {
            self.end(suspicion.cause);
        }
    }

    /// Ends the world because the rank has waited in its seat for `deadline`.
    pub(crate) fn give_up(&mut self, seat: Seat, deadline: Duration) {
        if let Some(suspicion) = self.suspicion.take() {
            self.end(suspicion.cause);
            return;
        }
        let Some(group) = self.groups.get(&seat.group) else { return };
        let Some(meeting) = group.meeting(seat.rank) else { return };
        let mut missing = group.missing();
        let elsewhere = |rank: &usize| self.groups.values().find_map(|group| group.meeting(*rank));
        let suspect = missing.iter().position(|rank| elsewhere(rank).is_none()).unwrap_or(0);
        let rank = missing.remove(suspect);
        let whereabouts = match elsewhere(&rank) {
            Some(place) => Whereabouts::Elsewhere(place),
            None if group.is_untaken(rank) => Whereabouts::Untaken,
            None => Whereabouts::Away,
        };
        let step = self.ranks[rank].step;
        let meeting = Box::new(meeting);
        self.end(Cause::Missed { rank, step, meeting, deadline, whereabouts, others: missing });
    }

    /// Returns the error for a rank that calls this collective after the world has ended.
    pub(crate) fn refusal(&self, seat: Seat, call: &Call, number: u64, cause: &Cause) -> Error {
        match cause {
            Cause::Missed { rank, meeting, deadline, others, .. }
                if *rank == seat.rank || others.contains(&seat.rank) =>
            {
                let rank = seat.rank;
                let step = self.ranks[seat.rank].step;
                Error::Late { rank, step, meeting: meeting.to_string(), deadline: *deadline }
            }
            _ => self.error(seat, call, number, cause),
        }
    }

    /// Returns the error for a rank that was in this collective when the world ended.
    pub(crate) fn error(&self, seat: Seat, call: &Call, number: u64, cause: &Cause) -> Error {
        let name = self.groups.get(&seat.group).map_or("", |group| &group.name);
        cause.error(&call.meeting(number, name))
    }

    /// Returns the cause for a rank that has left.
    fn departure(&self, rank: usize, farewell: Farewell) -> Cause {
        let step = self.ranks[rank].step;
        match farewell {
            Farewell::Dropped => Cause::Left { rank, step },
            Farewell::Panicking => Cause::Panicked { rank, step, message: None },
        }
    }

    /// Ends the world because a rank that others wait for has left: within `last_words`, or at once if its body ended.
    fn suspect(&mut self, rank: usize, farewell: Farewell, now: Instant) {
        let cause = self.departure(rank, farewell);
        match self.last_words {
            Some(last_words) if !self.ranks[rank].has_ended => {
                self.suspicion.get_or_insert(Suspicion { cause, until: now + last_words });
                self.has_news = true;
            }
            _ => drop(self.end(cause)),
        }
    }

    /// Ends the world unless it has ended. Returns the cause that is in effect.
    fn end(&mut self, cause: Cause) -> Arc<Cause> {
        if let Some(cause) = &self.over {
            return Arc::clone(cause);
        }
        self.suspicion = None;
        self.groups.values_mut().for_each(Group::clear);
        self.has_news = true;
        Arc::clone(self.over.insert(Arc::new(cause)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::group::Birth;

    const WORLD: GroupId = GroupId::WORLD;
    const SECOND: Duration = Duration::from_secs(1);

    fn channel(parent: GroupId, nth: u64) -> Origin {
        Origin { parent, birth: Birth::Channel("x".to_owned()), nth }
    }

    /// Joins the first collective of the group, a barrier.
    fn arrive(state: &mut State, group: GroupId, rank: usize, now: Instant) -> Result<u64, Arc<Cause>> {
        let arrival = Arrival { call: Call::Barrier, number: 1, payload: Arc::new(()) };
        state.arrive(Seat { group, rank }, arrival, now)
    }

    fn leave(state: &mut State, group: GroupId, rank: usize, now: Instant) {
        state.leave(Seat { group, rank }, Farewell::Dropped, now);
    }

    fn over(state: &State) -> String {
        state.over().map_or(String::new(), |cause| cause.to_string())
    }

    #[test]
    fn missed_deadline_names_first_the_rank_that_waits_in_no_collective() {
        let now = Instant::now();
        let mut state = State::new(4, None);
        let pair = Origin { parent: WORLD, birth: Birth::Subgroup(vec![1, 3]), nth: 0 };
        let pair = state.take_seat(1, pair);
        arrive(&mut state, WORLD, 0, now).unwrap();
        arrive(&mut state, pair, 1, now).unwrap();
        state.give_up(Seat { group: WORLD, rank: 0 }, SECOND);
        let expected = "rank 2, last seen before its first step, did not join barrier (collective 1) within 1s; \
                        find what delayed it, or set a longer deadline; also missing: ranks [1, 3]";
        assert_eq!(over(&state), expected);
    }

    #[test]
    fn missed_deadline_names_the_collective_the_rank_waits_in() {
        let now = Instant::now();
        let mut state = State::new(2, None);
        let group = state.take_seat(1, channel(WORLD, 0));
        arrive(&mut state, WORLD, 0, now).unwrap();
        arrive(&mut state, group, 1, now).unwrap();
        state.give_up(Seat { group, rank: 1 }, SECOND);
        let expected = "rank 0, last seen before its first step, did not join barrier (collective 1 of channel \
                        \"x\") within 1s; it waits in barrier (collective 1)";
        assert_eq!(over(&state), expected);
    }

    /// A program may create a channel for each epoch.
    #[test]
    fn groups_are_freed_when_all_members_have_left() {
        let now = Instant::now();
        let mut state = State::new(2, None);
        for nth in 0..3 {
            for rank in 0..2 {
                let group = state.take_seat(rank, channel(WORLD, nth));
                leave(&mut state, group, rank, now);
            }
            assert_eq!(state.groups.len(), 1);
        }
        // Rank 1 never takes its seat in this group. The group is freed because rank 1 leaves the world.
        let group = state.take_seat(0, channel(WORLD, 3));
        leave(&mut state, group, 0, now);
        leave(&mut state, WORLD, 1, now);
        assert_eq!(state.groups.len(), 1);
        leave(&mut state, WORLD, 0, now);
        assert!(state.groups.is_empty() && state.over().is_none());
    }

    #[test]
    fn collectives_of_a_group_fail_if_a_rank_left_the_parent() {
        let now = Instant::now();
        for takes_before in [true, false] {
            let mut state = State::new(2, None);
            if takes_before {
                state.take_seat(0, channel(WORLD, 0));
            }
            leave(&mut state, WORLD, 1, now);
            let group = state.take_seat(0, channel(WORLD, 0));
            arrive(&mut state, group, 0, now).unwrap();
            assert_eq!(state.over().map(|cause| cause.rank()), Some(1));
        }
    }

    /// A failing body drops its communicators before its error is reported.
    #[test]
    fn body_error_soon_after_a_drop_is_reported_instead_of_the_drop() {
        let now = Instant::now();
        let failed = || Ending::Failed("disk full".to_owned());
        for is_first in [true, false] {
            let mut state = State::new(2, Some(SECOND));
            if is_first {
                leave(&mut state, WORLD, 1, now);
            }
            arrive(&mut state, WORLD, 0, now).unwrap();
            leave(&mut state, WORLD, 1, now);
            state.look(now + SECOND / 2);
            assert_eq!((over(&state).as_str(), state.looks_again()), ("", Some(now + SECOND)));
            state.end_body(1, failed(), now + SECOND / 2);
            assert_eq!(over(&state), "rank 1 failed before its first step: disk full");
        }
        let mut state = State::new(2, Some(SECOND));
        arrive(&mut state, WORLD, 0, now).unwrap();
        leave(&mut state, WORLD, 1, now);
        state.look(now + SECOND);
        assert!(matches!(state.over().map(Arc::as_ref), Some(Cause::Left { rank: 1, .. })));
        state.end_body(1, failed(), now + SECOND);
        assert!(matches!(state.over().map(Arc::as_ref), Some(Cause::Left { rank: 1, .. })));
    }

    /// If a body ends while one of its threads waits in a collective, the others do not receive that contribution.
    #[test]
    fn end_of_a_body_withdraws_its_contributions() {
        let now = Instant::now();
        let mut state = State::new(2, Some(SECOND));
        arrive(&mut state, WORLD, 1, now).unwrap();
        state.end_body(1, Ending::Returned, now);
        assert!(state.why_not(Seat { group: WORLD, rank: 1 }).is_some() && state.over().is_none());
        arrive(&mut state, WORLD, 0, now).unwrap();
        assert!(matches!(state.over().map(Arc::as_ref), Some(Cause::Left { rank: 1, .. })));
    }
}

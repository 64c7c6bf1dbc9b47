use std::any::Any;
use std::sync::Arc;

use crate::call::{Call, group_name};
use crate::cause::Meeting;

/// The id of a group, unique within its world and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u64);

impl GroupId {
    /// The id of the group of all ranks.
    pub(crate) const WORLD: Self = Self(0);
}

/// The origin of a group. Ranks that create a group with equal origins are in the same group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) parent: GroupId,
    pub(crate) birth: Birth,
    /// The number of groups with the same `birth` that the rank created from this parent before.
    pub(crate) nth: u64,
}

/// The operation that created a group from its parent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Birth {
    Channel(String),
    /// The subgroup of these ranks of the parent. Their order is the order of the ranks in the subgroup.
    Subgroup(Vec<usize>),
}

/// The data that a rank contributes to a round.
pub(crate) type Payload = Arc<dyn Any + Send + Sync>;

/// The way in which a rank dropped its communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Farewell {
    Dropped,
    /// The communicator was dropped while its thread panicked.
    Panicking,
}

/// A world, channel or subgroup, with its open round. Ranks are ranks of the world.
///
/// A collective consists of one or two rounds. A rank joins a round only after it has collected the payloads of the
/// previous one. Therefore the group stores the payloads of at most one completed round besides those of the open
/// round.
#[derive(Debug)]
pub(crate) struct Group {
    /// The origin; `None` for the world.
    pub(crate) origin: Option<Origin>,
    /// The name in messages; empty for the world.
    pub(crate) name: String,
    /// The rank of each member in the world, in group order. `seats`, `arrivals` and `brought` have the same order.
    ranks: Arc<[usize]>,
    seats: Vec<Seat>,
    /// The contributions to the open round.
    arrivals: Vec<Option<Arrival>>,
    /// The number of completed rounds.
    n_done: u64,
    /// The payloads of the last completed round, until all members have collected them.
    brought: Vec<Payload>,
    n_to_collect: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    Untaken,
    Taken,
    Left(Farewell),
}

/// A rank's contribution to a round.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) call: Call,
    /// The sequence number of the collective in its group.
    pub(crate) number: u64,
    pub(crate) payload: Payload,
}

impl Group {
    /// Creates the group of all ranks; every seat is taken.
    pub(crate) fn world(n_ranks: usize) -> Self {
        Self::new(None, String::new(), (0..n_ranks).collect(), vec![Seat::Taken; n_ranks])
    }

    /// Creates a child group whose seats are not taken yet. Ranks that have left this group have left the child, too.
    pub(crate) fn child(&self, origin: Origin) -> Self {
        let members: Vec<usize> = match &origin.birth {
            Birth::Channel(_) => (0..self.ranks.len()).collect(),
            Birth::Subgroup(members) => members.clone(),
        };
        let ranks: Arc<[usize]> = members.iter().map(|member| self.ranks[*member]).collect();
        let seats = members
            .iter()
            .map(|member: &usize| match self.seats[*member] {
                Seat::Left(farewell) => Seat::Left(farewell),
                Seat::Taken | Seat::Untaken => Seat::Untaken,
            })
            .collect();
        let name = self.name_of(&origin, &ranks);
        Self::new(Some(origin), name, ranks, seats)
    }

    fn new(origin: Option<Origin>, name: String, ranks: Arc<[usize]>, seats: Vec<Seat>) -> Self {
        let arrivals = ranks.iter().map(|_| None).collect();
        Self { origin, name, ranks, seats, arrivals, n_done: 0, brought: Vec::new(), n_to_collect: 0 }
    }

    /// Takes the rank's seat, unless the rank has left.
    pub(crate) fn take_seat(&mut self, rank: usize) {
        if let Some(member) = self.member(rank)
            && self.seats[member] == Seat::Untaken
        {
            self.seats[member] = Seat::Taken;
        }
    }

    /// Marks the rank as left, and removes its contribution to the open round.
    pub(crate) fn leave(&mut self, rank: usize, farewell: Farewell) {
        if let Some(member) = self.member(rank) {
            self.arrivals[member] = None;
            if !matches!(self.seats[member], Seat::Left(_)) {
                self.seats[member] = Seat::Left(farewell);
            }
        }
    }

    pub(crate) fn is_seated(&self, rank: usize) -> bool {
        self.member(rank).is_some_and(|member| self.seats[member] == Seat::Taken)
    }

    /// Returns true if the rank is a member that has not taken its seat yet.
    pub(crate) fn is_untaken(&self, rank: usize) -> bool {
        self.member(rank).is_some_and(|member| self.seats[member] == Seat::Untaken)
    }

    pub(crate) fn is_child_of(&self, parent: GroupId) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.parent == parent)
    }

    pub(crate) fn is_deserted(&self) -> bool {
        self.seats.iter().all(|seat| matches!(seat, Seat::Left(_)))
    }

    /// Returns the first member that has joined the open round with a different call, and its contribution.
    pub(crate) fn contradiction(&self, call: &Call) -> Option<(usize, &Arrival)> {
        let arrived = self.ranks.iter().zip(&self.arrivals);
        let mut arrived = arrived.filter_map(|(rank, arrival)| Some((*rank, arrival.as_ref()?)));
        arrived.find(|(_, arrival)| arrival.call != *call)
    }

    /// Adds a contribution to the open round and returns the round's number. The last contribution completes the round.
    pub(crate) fn arrive(&mut self, rank: usize, arrival: Arrival) -> u64 {
        let round = self.n_done;
        if let Some(member) = self.member(rank) {
            self.arrivals[member] = Some(arrival);
        }
        if self.arrivals.iter().all(Option::is_some) {
            self.brought =
                self.arrivals.iter_mut().filter_map(|arrival| Some(arrival.take()?.payload)).collect();
            self.n_to_collect = self.ranks.len();
            self.n_done += 1;
        }
        round
    }

    pub(crate) fn is_done(&self, round: u64) -> bool {
        round < self.n_done
    }

    /// Returns the payloads of the completed round, by rank of the group. Each member must call this once; the last
    /// call frees them.
    pub(crate) fn collect(&mut self) -> Vec<Payload> {
        self.n_to_collect = self.n_to_collect.saturating_sub(1);
        if self.n_to_collect == 0 { std::mem::take(&mut self.brought) } else { self.brought.clone() }
    }

    /// Removes all contributions to the open round.
    pub(crate) fn clear(&mut self) {
        self.arrivals.iter_mut().for_each(|arrival| *arrival = None);
    }

    /// Returns the first member that has left, or `None` if no member waits in the open round or none has left.
    pub(crate) fn lost(&self) -> Option<(usize, Farewell)> {
        if self.arrivals.iter().all(Option::is_none) {
            return None;
        }
        self.ranks.iter().zip(&self.seats).find_map(|(rank, seat)| match seat {
            Seat::Left(farewell) => Some((*rank, *farewell)),
            Seat::Taken | Seat::Untaken => None,
        })
    }

    /// Returns the members that have not joined the open round.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let members = self.ranks.iter().zip(&self.arrivals);
        members.filter(|(_, arrival)| arrival.is_none()).map(|(rank, _)| *rank).collect()
    }

    /// Returns the collective in which the rank waits, if there is one.
    pub(crate) fn meeting(&self, rank: usize) -> Option<Meeting> {
        let arrival = self.arrivals[self.member(rank)?].as_ref()?;
        Some(arrival.call.meeting(arrival.number, &self.name))
    }

    /// Returns the name of a child, for messages. A subgroup is named by its ranks of the world.
    fn name_of(&self, origin: &Origin, ranks: &[usize]) -> String {
        let name = match &origin.birth {
            Birth::Channel(name) => format!("channel {name:?}"),
            Birth::Subgroup(_) => format!("subgroup {ranks:?}"),
        };
        group_name(&name, origin.nth, &self.name)
    }

    fn member(&self, rank: usize) -> Option<usize> {
        self.ranks.iter().position(|other| *other == rank)
    }
}

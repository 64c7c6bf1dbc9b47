use std::any::Any;
use std::sync::Arc;

use crate::call::{Call, group_name};
use crate::cause::Meeting;

/// Names a group of a world; none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u64);

impl GroupId {
    /// The group of all ranks.
    pub(crate) const WORLD: Self = Self(0);
}

/// Where a group comes from: who asks for the same is in the same group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) parent: GroupId,
    pub(crate) birth: Birth,
    /// Which of its parent's groups of this birth it is.
    pub(crate) nth: u64,
}

/// How a group comes out of its parent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Birth {
    Channel(String),
    /// Ranks of the parent, in the order of the new group.
    Subgroup(Vec<usize>),
}

/// What a rank brings to a round.
pub(crate) type Payload = Arc<dyn Any + Send + Sync>;

/// How a rank let go of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Farewell {
    Dropped,
    /// Dropped while its thread panicked.
    Panicking,
}

/// A world, channel or subgroup, and the one round of it that can be open. Ranks are those of the world.
///
/// A collective is one round or two. A rank comes to a round only after it has collected what came of the
/// one before, so that what was brought to one round at most is kept, next to what is brought to the open
/// one.
#[derive(Debug)]
pub(crate) struct Group {
    /// Where it comes from; nothing for the world.
    pub(crate) origin: Option<Origin>,
    /// For messages; empty for the world.
    pub(crate) name: String,
    /// By rank of the group, as are all below.
    ranks: Arc<[usize]>,
    seats: Vec<Seat>,
    /// Who came to the open round.
    arrivals: Vec<Option<Arrival>>,
    /// Rounds to which all came.
    n_done: u64,
    /// What was brought to the last of them, until all have collected it.
    brought: Vec<Payload>,
    n_to_collect: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    Untaken,
    Taken,
    Left(Farewell),
}

/// What a rank comes with to a round.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) call: Call,
    /// Which collective of its group it is.
    pub(crate) number: u64,
    pub(crate) payload: Payload,
}

impl Group {
    /// All ranks, each in its seat.
    pub(crate) fn world(n_ranks: usize) -> Self {
        Self::new(None, String::new(), (0..n_ranks).collect(), vec![Seat::Taken; n_ranks])
    }

    /// A group of this one that nobody is in yet. Who has left this one has left that one.
    pub(crate) fn child(&self, origin: Origin) -> Self {
        let members: Vec<usize> = match &origin.birth {
            Birth::Channel(_) => (0..self.ranks.len()).collect(),
            Birth::Subgroup(members) => members.clone(),
        };
        let ranks: Arc<[usize]> = members.iter().map(|member| self.ranks[*member]).collect();
        let inherited = |member: &usize| match self.seats[*member] {
            Seat::Left(farewell) => Seat::Left(farewell),
            Seat::Taken | Seat::Untaken => Seat::Untaken,
        };
        let seats = members.iter().map(inherited).collect();
        let name = self.name_of(&origin, &ranks);
        Self::new(Some(origin), name, ranks, seats)
    }

    fn new(origin: Option<Origin>, name: String, ranks: Arc<[usize]>, seats: Vec<Seat>) -> Self {
        let arrivals = ranks.iter().map(|_| None).collect();
        Self { origin, name, ranks, seats, arrivals, n_done: 0, brought: Vec::new(), n_to_collect: 0 }
    }

    /// Seats the rank, unless it has left.
    pub(crate) fn take_seat(&mut self, rank: usize) {
        if let Some(member) = self.member(rank)
            && self.seats[member] == Seat::Untaken
        {
            self.seats[member] = Seat::Taken;
        }
    }

    /// The rank comes no more: what it brought to the open round is withdrawn.
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

    /// Whether the rank is a member that has not come into the group yet.
    pub(crate) fn is_untaken(&self, rank: usize) -> bool {
        self.member(rank).is_some_and(|member| self.seats[member] == Seat::Untaken)
    }

    pub(crate) fn is_child_of(&self, parent: GroupId) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.parent == parent)
    }

    pub(crate) fn is_deserted(&self) -> bool {
        self.seats.iter().all(|seat| matches!(seat, Seat::Left(_)))
    }

    /// The rank that came first, by number, to another call than this one, and what it came with.
    pub(crate) fn contradiction(&self, call: &Call) -> Option<(usize, &Arrival)> {
        let arrived = self.ranks.iter().zip(&self.arrivals);
        let mut arrived = arrived.filter_map(|(rank, arrival)| Some((*rank, arrival.as_ref()?)));
        arrived.find(|(_, arrival)| arrival.call != *call)
    }

    /// Brings something to the open round, and returns which round that is. If all have come with that,
    /// the round is done.
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

    /// What all brought to a round that is done, by rank of the group. Each member collects it once, and
    /// the last one leaves nothing.
    pub(crate) fn collect(&mut self) -> Vec<Payload> {
        self.n_to_collect = self.n_to_collect.saturating_sub(1);
        if self.n_to_collect == 0 { std::mem::take(&mut self.brought) } else { self.brought.clone() }
    }

    /// Forgets what was brought to the open round.
    pub(crate) fn clear(&mut self) {
        self.arrivals.iter_mut().for_each(|arrival| *arrival = None);
    }

    /// The first member that has left while others are in the open round.
    pub(crate) fn lost(&self) -> Option<(usize, Farewell)> {
        if self.arrivals.iter().all(Option::is_none) {
            return None;
        }
        self.ranks.iter().zip(&self.seats).find_map(|(rank, seat)| match seat {
            Seat::Left(farewell) => Some((*rank, *farewell)),
            Seat::Taken | Seat::Untaken => None,
        })
    }

    /// Members that have not come to the open round.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let members = self.ranks.iter().zip(&self.arrivals);
        members.filter(|(_, arrival)| arrival.is_none()).map(|(rank, _)| *rank).collect()
    }

    /// The collective that the rank waits in, if it does.
    pub(crate) fn meeting(&self, rank: usize) -> Option<Meeting> {
        let arrival = self.arrivals[self.member(rank)?].as_ref()?;
        Some(arrival.call.meeting(arrival.number, &self.name))
    }

    /// A name for messages, by the ranks of the world.
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

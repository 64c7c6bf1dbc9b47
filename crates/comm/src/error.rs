use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What can go wrong between ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank that does not exist.
    #[error("rank {rank} of a group of {world_size}: ranks count from 0")]
    NoSuchRank {
        /// The rank asked for.
        rank: usize,
        /// Ranks of the group.
        world_size: usize,
    },
    /// Not one message a rank.
    #[error("{got} messages for {world_size} ranks: give one a rank, empty where there is nothing to say")]
    SendCount {
        /// Ranks of the group.
        world_size: usize,
        /// Messages given.
        got: usize,
    },
    /// A list of ranks that is no subgroup with this rank in it.
    #[error(
        "{ranks:?} is no subgroup with rank {rank} of {world_size} in it: list each of its ranks once, this one too"
    )]
    BadSubgroup {
        /// The ranks asked for.
        ranks: Vec<usize>,
        /// This rank.
        rank: usize,
        /// Ranks of the group.
        world_size: usize,
    },
    /// The ranks do not meet any more.
    #[error("{}", Over { meeting, cause })]
    Over {
        /// The collective that this rank asked for.
        meeting: Box<Meeting>,
        /// What ended the meetings, the same for all ranks.
        cause: Arc<Cause>,
    },
    /// What carries bytes between processes has failed.
    #[error("{meeting}: {reason}")]
    Engine {
        /// The collective that this rank asked for.
        meeting: Box<Meeting>,
        /// What it says.
        reason: String,
    },
    /// This rank is the one that the others waited for until the deadline.
    #[error(
        "this rank, {rank}, came too late {}: the others had waited for it {deadline:?} in {meeting} and gave up; \
         find what held it up, or give a longer deadline",
        When(step)
    )]
    Late {
        /// This rank, in the world.
        rank: usize,
        /// The step that it was in when the others gave up.
        step: Option<u64>,
        /// What it did not come to.
        meeting: Box<Meeting>,
        /// How long the others waited.
        deadline: Duration,
    },
}

/// One collective of one group, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meeting {
    /// The collective, with what ranks must agree on: `all_reduce_sum of 5 f32`.
    pub collective: String,
    /// Which one of its group it is, from 1.
    pub number: u64,
    /// The channel or subgroup, nothing for the world: `channel "loss" of subgroup [0, 2]`.
    pub group: String,
}

/// Why the ranks of a world do not meet any more. Ranks are counted as in the world, also where the meeting
/// was one of a subgroup; a step is the one that a rank last said it was in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A rank panicked.
    Panicked {
        /// The rank.
        rank: usize,
        /// Its step.
        step: Option<u64>,
        /// What the panic said, where that is known.
        message: Option<String>,
    },
    /// A rank ended with an error of its own.
    Failed {
        /// The rank.
        rank: usize,
        /// Its step.
        step: Option<u64>,
        /// The error and what is behind it.
        message: String,
    },
    /// A rank ended without an error, or dropped its communicator, and another wanted to meet it.
    Left {
        /// The rank.
        rank: usize,
        /// Its step.
        step: Option<u64>,
    },
    /// A rank did not come within the deadline.
    Missed {
        /// The rank: of several that did not come, the first that was in no collective of another group.
        rank: usize,
        /// Its step.
        step: Option<u64>,
        /// What it did not come to.
        meeting: Box<Meeting>,
        /// How long another rank had waited there.
        deadline: Duration,
        /// Where it was instead.
        whereabouts: Whereabouts,
        /// The other ranks that did not come.
        others: Vec<usize>,
    },
    /// Two ranks met in different collectives.
    Mismatch {
        /// The collective of a rank that had come before.
        meeting: Box<Meeting>,
        /// That rank.
        rank: usize,
        /// Its step.
        step: Option<u64>,
        /// The rank that came to another collective.
        other_rank: usize,
        /// The other's step.
        other_step: Option<u64>,
        /// The other's collective.
        other_collective: String,
    },
}

/// Where a rank is that does not come to a collective.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whereabouts {
    /// In no collective.
    Away,
    /// It never took the channel or subgroup.
    Untaken,
    /// In a collective of another group.
    Elsewhere(Meeting),
}

impl Cause {
    /// The rank to look at first: the one that panicked, failed, left or did not come; of two in different
    /// collectives the lower one.
    pub fn rank(&self) -> usize {
        match self {
            Self::Panicked { rank, .. }
            | Self::Failed { rank, .. }
            | Self::Left { rank, .. }
            | Self::Missed { rank, .. } => *rank,
            Self::Mismatch { rank, other_rank, .. } => *rank.min(other_rank),
        }
    }

    /// The collective that went wrong, if one did.
    pub fn meeting(&self) -> Option<&Meeting> {
        match self {
            Self::Missed { meeting, .. } | Self::Mismatch { meeting, .. } => Some(meeting),
            _ => None,
        }
    }
}

impl fmt::Display for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (collective {}", self.collective, self.number)?;
        if !self.group.is_empty() {
            write!(f, " of {}", self.group)?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { rank, step, message } => {
                write!(f, "rank {rank} panicked {}", When(step))?;
                message.as_ref().map_or(Ok(()), |message| write!(f, ": {message}"))
            }
            Self::Failed { rank, step, message } => write!(f, "rank {rank} failed {}: {message}", When(step)),
            Self::Left { rank, step } => write!(
                f,
                "rank {rank} left {}: it ended without an error, or dropped its communicator; \
                 all ranks must call the same collectives",
                When(step)
            ),
            Self::Missed { rank, step, meeting, deadline, whereabouts, others } => {
                write!(
                    f,
                    "rank {rank}, last seen {}, did not come to {meeting} within {deadline:?}",
                    When(step)
                )?;
                match whereabouts {
                    Whereabouts::Away => f.write_str("; find what held it up, or give a longer deadline")?,
                    Whereabouts::Untaken => write!(f, "; it never took {}", meeting.group)?,
                    Whereabouts::Elsewhere(place) => write!(f, "; it waits in {place}")?,
                }
                if others.is_empty() { Ok(()) } else { write!(f, "; nor did ranks {others:?} come") }
            }
            Self::Mismatch { meeting, rank, step, other_rank, other_step, other_collective } => write!(
                f,
                "ranks met in different collectives: rank {rank} in {meeting}, {}; rank {other_rank} in \
                 {other_collective}, {}; all ranks must call the same ones in the same order",
                When(step),
                When(other_step)
            ),
        }
    }
}

/// What one rank hears when the ranks do not meet any more.
struct Over<'a> {
    meeting: &'a Meeting,
    cause: &'a Cause,
}

impl fmt::Display for Over<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { meeting, cause } = self;
        let is_told = cause
            .meeting()
            .is_some_and(|told| (told.number, &told.group) == (meeting.number, &meeting.group));
        if is_told { write!(f, "{cause}") } else { write!(f, "{meeting}: {cause}") }
    }
}

/// The step that a rank was last seen in.
struct When<'a>(&'a Option<u64>);

impl fmt::Display for When<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(step) => write!(f, "in step {step}"),
            None => f.write_str("before its first step"),
        }
    }
}

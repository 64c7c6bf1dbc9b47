//! The reasons why a world has ended, and their messages.

use std::fmt;
use std::time::Duration;

use crate::Error;
use crate::when::When;

/// One collective of one group, as shown in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meeting {
    /// The collective with the arguments that ranks must agree on, such as `all_reduce_sum of 5 f32`.
    pub(crate) collective: String,
    /// The sequence number of the collective in its group, from 1.
    pub(crate) number: u64,
    /// The channel or subgroup, such as `channel "loss" of subgroup [0, 2]`; empty for the world.
    pub(crate) group: String,
}

/// The reason why a world has ended. All ranks are ranks of the world, also if the collective belonged to a subgroup. A
/// step is the last one that the rank set with `set_step`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A rank panicked; the message is `None` if it is unknown.
    Panicked { rank: usize, step: Option<u64>, message: Option<String> },
    /// A rank's body returned an error; the message includes the error's sources.
    Failed { rank: usize, step: Option<u64>, message: String },
    /// A rank returned without an error, or dropped its communicator, while another rank waited for it.
    Left { rank: usize, step: Option<u64> },
    /// A rank did not join a collective within the deadline.
    Missed {
        /// The missing rank. If several are missing, it is the first of them that is in no other collective; if all are
        /// in other collectives, it is the first of them.
        rank: usize,
        step: Option<u64>,
        /// The collective that the rank missed.
        meeting: Box<Meeting>,
        /// The time that another rank had waited in the collective.
        deadline: Duration,
        whereabouts: Whereabouts,
        /// The missing ranks other than `rank`.
        others: Vec<usize>,
    },
    /// Two ranks called different collectives.
    Mismatch {
        /// The collective of the rank that called first.
        meeting: Box<Meeting>,
        rank: usize,
        step: Option<u64>,
        other_rank: usize,
        other_step: Option<u64>,
        other_collective: String,
    },
}

/// The state of a rank that is missing from a collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// The rank is not in any collective.
    Away,
    /// The rank never created the channel or subgroup.
    Untaken,
    /// The rank waits in a collective of another group.
    Elsewhere(Meeting),
}

impl Cause {
    /// Returns the rank to investigate first: the one that panicked, failed, left or was missing. After a mismatch,
    /// this is the lower of the two ranks.
    pub(crate) fn rank(&self) -> usize {
        match self {
            Self::Panicked { rank, .. }
            | Self::Failed { rank, .. }
            | Self::Left { rank, .. }
            | Self::Missed { rank, .. } => *rank,
            Self::Mismatch { rank, other_rank, .. } => *rank.min(other_rank),
        }
    }

    /// Returns the error for a rank that calls the collective `called` or waits in it.
    pub(crate) fn error(&self, called: &Meeting) -> Error {
        let is_named = match self {
            Self::Missed { meeting, .. } | Self::Mismatch { meeting, .. } => {
                (meeting.number, &meeting.group) == (called.number, &called.group)
            }
            _ => false,
        };
        let reason = if is_named { self.to_string() } else { format!("{called}: {self}") };
        Error::Over { rank: self.rank(), reason }
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
                "rank {rank} left {}: it returned without an error, or dropped its communicator; \
                 all ranks must call the same collectives",
                When(step)
            ),
            Self::Missed { rank, step, meeting, deadline, whereabouts, others } => {
                write!(
                    f,
                    "rank {rank}, last seen {}, did not join {meeting} within {deadline:?}",
                    When(step)
                )?;
                match whereabouts {
                    Whereabouts::Away => f.write_str("; find what delayed it, or set a longer deadline")?,
                    Whereabouts::Untaken => write!(f, "; it never created {}", meeting.group)?,
                    Whereabouts::Elsewhere(place) => write!(f, "; it waits in {place}")?,
                }
                if others.is_empty() { Ok(()) } else { write!(f, "; also missing: ranks {others:?}") }
            }
            Self::Mismatch { meeting, rank, step, other_rank, other_step, other_collective } => write!(
                f,
                "ranks called different collectives: rank {rank} is in {meeting}, {}; rank {other_rank} is in \
                 {other_collective}, {}; all ranks must call the same collectives in the same order",
                When(step),
                When(other_step)
            ),
        }
    }
}

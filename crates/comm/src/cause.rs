//! Why the ranks of a world have ended, and the words of messages about it.

use std::fmt;
use std::time::Duration;

use crate::Error;

/// One collective of one group, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meeting {
    /// The collective, with what ranks must agree on: `all_reduce_sum of 5 f32`.
    pub(crate) collective: String,
    /// Which one of its group it is, from 1.
    pub(crate) number: u64,
    /// The channel or subgroup, nothing for the world: `channel "loss" of subgroup [0, 2]`.
    pub(crate) group: String,
}

/// Why the ranks of a world do not meet any more. Ranks are counted as in the world, also where the meeting
/// was one of a subgroup; a step is the one that a rank last said it was in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A rank panicked, with this message where it is known.
    Panicked { rank: usize, step: Option<u64>, message: Option<String> },
    /// A rank ended with an error of its own: the error and its sources.
    Failed { rank: usize, step: Option<u64>, message: String },
    /// A rank ended without an error, or dropped its communicator, and another wanted to meet it.
    Left { rank: usize, step: Option<u64> },
    /// A rank did not come within the deadline.
    Missed {
        /// Of several that did not come, the first that was in no collective of another group.
        rank: usize,
        step: Option<u64>,
        /// The collective that it missed.
        meeting: Box<Meeting>,
        /// How long another rank had waited there.
        deadline: Duration,
        whereabouts: Whereabouts,
        /// The other ranks that did not come.
        others: Vec<usize>,
    },
    /// Two ranks met in different collectives.
    Mismatch {
        /// The collective of the rank that had come before the other.
        meeting: Box<Meeting>,
        rank: usize,
        step: Option<u64>,
        other_rank: usize,
        other_step: Option<u64>,
        other_collective: String,
    },
}

/// Where a rank is that does not come to a collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whereabouts {
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
    pub(crate) fn rank(&self) -> usize {
        match self {
            Self::Panicked { rank, .. }
            | Self::Failed { rank, .. }
            | Self::Left { rank, .. }
            | Self::Missed { rank, .. } => *rank,
            Self::Mismatch { rank, other_rank, .. } => *rank.min(other_rank),
        }
    }

    /// The error of a rank that calls or waits in this collective.
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

/// The step that a rank was last seen in.
pub(crate) struct When<'a>(pub(crate) &'a Option<u64>);

impl fmt::Display for When<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(step) => write!(f, "in step {step}"),
            None => f.write_str("before its first step"),
        }
    }
}

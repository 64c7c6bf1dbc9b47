use std::time::Duration;

use crate::cause::When;

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
    /// The ranks have ended together: one panicked, failed, left or missed a deadline, or they called different
    /// collectives. The same for all ranks, up to the collective that each of them called.
    #[error("{reason}")]
    Over {
        /// The rank to look at first: the one that panicked, failed, left or missed the deadline; of two in different
        /// collectives the lower one. Counted as in the world, also in a subgroup.
        rank: usize,
        /// The collective that this rank called, and what ended the ranks.
        reason: String,
    },
    /// What carries bytes between processes has failed.
    #[error("{meeting}: {reason}")]
    Engine {
        /// The collective that this rank called.
        meeting: String,
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
        /// The collective that it missed.
        meeting: String,
        /// How long the others waited.
        deadline: Duration,
    },
}

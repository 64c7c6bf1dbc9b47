use std::time::Duration;

use crate::when::When;

/// An error of a collective, or of creating a subgroup or channel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rank does not exist in the group.
    #[error("rank {rank} does not exist in a group of {world_size}: ranks count from 0")]
    NoSuchRank {
        /// The requested rank.
        rank: usize,
        /// The number of ranks in the group.
        world_size: usize,
    },
    /// The number of messages differs from the number of ranks.
    #[error(
        "{got} messages for {world_size} ranks: pass one per rank, an empty one if there is nothing to send"
    )]
    SendCount {
        /// The number of ranks in the group.
        world_size: usize,
        /// The number of messages passed.
        got: usize,
    },
    /// The list of ranks is not a valid subgroup that contains this rank.
    #[error(
        "invalid subgroup {ranks:?} on rank {rank} of {world_size}: list each member once, including this rank"
    )]
    BadSubgroup {
        /// The requested ranks.
        ranks: Vec<usize>,
        /// This rank.
        rank: usize,
        /// The number of ranks in the group.
        world_size: usize,
    },
    /// The world has ended: a rank panicked, failed, left or missed a deadline, or ranks called different collectives.
    /// All ranks get the same error, except for the collective that each of them called.
    #[error("{reason}")]
    Over {
        /// The rank to investigate first: the one that panicked, failed, left or missed the deadline. If two ranks
        /// called different collectives, it is the lower of the two. It is the rank in the world, even if the collective
        /// belonged to a subgroup.
        rank: usize,
        /// The collective that this rank called, and the cause.
        reason: String,
    },
    /// The engine that transfers data between processes failed.
    #[error("{meeting} failed: {reason}")]
    Engine {
        /// The collective that this rank called.
        meeting: String,
        /// The engine's error.
        reason: String,
    },
    /// The other ranks waited for this rank until their deadline.
    #[error(
        "this rank, {rank}, was late {}: the other ranks waited {deadline:?} for it in {meeting} and failed; find what \
         delayed it, or set a longer deadline",
        When(step)
    )]
    Late {
        /// This rank, as a rank of the world.
        rank: usize,
        /// The step of this rank when the deadline passed.
        step: Option<u64>,
        /// The collective that this rank missed.
        meeting: String,
        /// The time that the other ranks waited.
        deadline: Duration,
    },
}

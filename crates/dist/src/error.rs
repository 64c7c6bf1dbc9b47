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
}

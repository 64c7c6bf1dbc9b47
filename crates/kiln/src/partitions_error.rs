/// What partitions lack that an operation needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionsError {
    /// The number of edge types of a partitioned graph is unknown, because an older version of kiln wrote its partitions.
    #[error(
        "the partitions do not record the number of their edge types: partition the dataset again with this version of \
         kiln"
    )]
    UnrecordedEdgeTypes,
    /// The partitions of a graph have no self loops.
    #[error(
        "the partitions were written without self loops, which cannot be added to them: partition the dataset again \
         with `kiln data partition --add-self-loops`"
    )]
    NoSelfLoops,
    /// The operation needs a partition in this process, but graph servers hold all partitions.
    #[error(
        "{what} needs a local partition: open the partitions instead of connecting to servers, or sample on the host (--graph-mode host)"
    )]
    NotLocal {
        /// The operation, as text for the message.
        what: &'static str,
    },
}

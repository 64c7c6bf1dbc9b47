/// An error in the times of seeds or of edges.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimesError {
    /// The sampler does not support seeds with times.
    #[error(
        "seeds with times are sampled from all edges, not from edges that were cut at one time: use the whole graph"
    )]
    NotSupported,
    /// The edges of the graph have times and no order by time ([`Csc::with_edge_times`](kiln_graph::Csc::with_edge_times)).
    #[error("the edges have times and no order by time, which seeds with times need: order them first")]
    NoOrder,
    /// Seeds have another number of times.
    #[error("{n_times} times for {n_seeds} seeds: pass one time per seed")]
    Length {
        /// The number of times.
        n_times: usize,
        /// The number of seeds.
        n_seeds: usize,
    },
    /// The items are graphs of a set, whose neighbours are not sampled.
    #[error("the graphs of a set have no times at which neighbours would be sampled: remove the times")]
    OfGraphs,
    /// Seeds have times, and neither the edges nor their sources do, so that the times would limit nothing.
    #[error(
        "the seeds have times, and no edges do, so that all would be known at each time: order the edges by their times first, or \
         let the seeds have no times"
    )]
    NoEdgeTimes,
    /// A relation whose edges have no times has a rule or a window of its own that reads them.
    #[error(
        "the relation `{relation}` has {what}, and neither its edges nor their sources have times: remove it, or use data \
         whose relation has times"
    )]
    RelationWithoutTimes {
        /// The name of the relation.
        relation: String,
        /// What reads the times.
        what: &'static str,
    },
    /// The rule picks by time, and the seeds have no times ([`Seeds::with_times`](crate::Seeds::with_times)).
    #[error(
        "the rule `most-recent` picks by time, and the seeds have no times: let them have some, or use another rule"
    )]
    NoTimes,
}

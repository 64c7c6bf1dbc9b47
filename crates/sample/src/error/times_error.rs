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
    /// The rule picks by time, and the seeds have no times ([`Seeds::with_times`](crate::Seeds::with_times)).
    #[error(
        "the rule `most-recent` picks by time, and the seeds have no times: let them have some, or use another rule"
    )]
    NoTimes,
}

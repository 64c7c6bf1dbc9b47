/// An error in the times of seeds or of edges.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimesError {
    /// The sampler does not support seeds with times.
    #[error(
        "seeds with times are sampled on the host from a whole graph, not on devices or partitions: keep the graph on the host"
    )]
    NotSupported,
    /// The edges of the graph have times and no order by time ([`Csc::with_edge_times`](kiln_graph::Csc::with_edge_times)).
    #[error("the edges have times and no order by time, which seeds with times need: order them first")]
    NoOrder,
    /// The rule picks by time, and the seeds have no times ([`Seeds::with_times`](crate::Seeds::with_times)).
    #[error(
        "the rule `most-recent` picks by time, and the seeds have no times: let them have some, or use another rule"
    )]
    NoTimes,
}

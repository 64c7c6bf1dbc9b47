use kiln_graph::{Csc, EdgeColumns, EdgeTimes};

use crate::Result;

/// The edges that a destination may know at its time: those before it, or also those at it, and not older than a window.
///
/// ```
/// use kiln_sample::TimeLimits;
/// let limits = TimeLimits::default();
/// assert_eq!(limits.range(10), (None, 10));
/// let limits = TimeLimits { includes_equal: true, window: Some(3) };
/// assert_eq!(limits.range(10), (Some(8), 11));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TimeLimits {
    /// True if edges at the time itself are known, too. By default, edges are known strictly before it.
    pub includes_equal: bool,
    /// The length of the time before a destination's time from which edges are taken, in the unit of the times; `None` for all
    /// that is known. Edges without a time are in every window.
    pub window: Option<u64>,
}

impl TimeLimits {
    /// Returns the times that are known at a time: from the first, if there is a window, to the second, exclusive.
    pub fn range(&self, time: i64) -> (Option<i64>, i64) {
        let end = time.saturating_add(i64::from(self.includes_equal));
        // Edges without a time are known at every time.
        let end = end.max(EdgeTimes::ALWAYS + 1);
        let first = self.window.map(|window| end.saturating_sub_unsigned(window));
        (first, end)
    }

    /// Returns the graph of the edges that destinations of one time know, with their columns: what an exact evaluation at that time
    /// reads. The edges of `graph` are ordered by time, as for a sampler ([`Csc::with_edge_times`]); those of a graph without times
    /// are all known. The result has no times.
    ///
    /// ```
    /// use kiln_graph::CscBuilder;
    /// use kiln_sample::TimeLimits;
    /// let graph = CscBuilder::new(3).build(&[0, 1], &[2, 2])?.with_edge_times(vec![5_i64, 9])?;
    /// assert_eq!(TimeLimits::default().known_graph(&graph, 9)?.n_edges(), 1);
    /// let until = TimeLimits { includes_equal: true, window: None };
    /// assert_eq!(until.known_graph(&graph, 9)?.n_edges(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the graph is damaged, or if the edges do not fit in memory.
    pub fn known_graph(&self, graph: &Csc, time: i64) -> Result<Csc> {
        let Some(edge_times) = graph.edge_times() else { return Ok(graph.clone()) };
        let (first, end) = self.range(time);
        let times = edge_times.times();
        let kept = graph.find_edges(|edge, _, _| {
            let is_in_window = first.is_none_or(|first| first <= times[edge]);
            times[edge] == EdgeTimes::ALWAYS || (is_in_window && times[edge] < end)
        })?;
        let known = graph.select_edges(&kept)?;
        let columns = known.columns().clone().without(EdgeColumns::TIMES);
        Ok(known.with_columns(&columns)?)
    }
}

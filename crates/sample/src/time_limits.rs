use kiln_graph::EdgeTimes;

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
}

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of sampled nodes and gathered feature rows, by location. Rows are those of nodes unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FetchStats {
    /// The number of feature rows read from the local partition.
    pub own_rows: u64,
    /// The number of remote rows read from the partition's static cache.
    pub hot_rows: u64,
    /// The number of remote rows read from the dynamic cache.
    pub kept_rows: u64,
    /// The number of rows received over the network.
    pub remote_rows: u64,
    /// The number of feature rows of edges read from the local partition.
    pub own_edge_rows: u64,
    /// The number of feature rows of edges received over the network.
    pub remote_edge_rows: u64,
    /// The number of destinations that were sampled locally.
    pub own_dsts: u64,
    /// The number of destinations that servers sampled.
    pub remote_dsts: u64,
    /// The number of response bytes received over the network.
    pub remote_bytes: u64,
    /// The number of requests to servers.
    pub n_requests: u64,
}

impl FetchStats {
    /// Returns the share of remote rows that caches served, 0 to 1; `None` if no remote row was read.
    pub fn hit_rate(&self) -> Option<f64> {
        let n_cached = self.hot_rows + self.kept_rows;
        let n_others = n_cached + self.remote_rows;
        (0 < n_others).then(|| n_cached as f64 / n_others as f64)
    }
}

/// Writes the row counts, the cache hit rate and the received MiB for the report of an epoch.
impl fmt::Display for FetchStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { own_rows, hot_rows, kept_rows, remote_rows, remote_bytes, .. } = self;
        let Self { own_edge_rows, remote_edge_rows, .. } = self;
        let n_cached = hot_rows + kept_rows;
        let mib = *remote_bytes as f64 / f64::from(1 << 20);
        write!(f, "rows: {own_rows} own, {n_cached} cached, {remote_rows} remote")?;
        if let Some(rate) = self.hit_rate() {
            write!(f, " (cache hits {:.1} %)", 100.0 * rate)?;
        }
        if 0 < own_edge_rows + remote_edge_rows {
            write!(f, ", edge rows: {own_edge_rows} own, {remote_edge_rows} remote")?;
        }
        write!(f, ", {mib:.1} MiB received")
    }
}

/// Thread-safe counters of [`FetchStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) own_rows: AtomicU64,
    pub(crate) hot_rows: AtomicU64,
    pub(crate) kept_rows: AtomicU64,
    pub(crate) remote_rows: AtomicU64,
    pub(crate) own_edge_rows: AtomicU64,
    pub(crate) remote_edge_rows: AtomicU64,
    pub(crate) own_dsts: AtomicU64,
    pub(crate) remote_dsts: AtomicU64,
    pub(crate) remote_bytes: AtomicU64,
    pub(crate) n_requests: AtomicU64,
}

impl Counters {
    /// Returns the counts and resets them to 0.
    pub(crate) fn take(&self) -> FetchStats {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        FetchStats {
            own_rows: take(&self.own_rows),
            hot_rows: take(&self.hot_rows),
            kept_rows: take(&self.kept_rows),
            remote_rows: take(&self.remote_rows),
            own_edge_rows: take(&self.own_edge_rows),
            remote_edge_rows: take(&self.remote_edge_rows),
            own_dsts: take(&self.own_dsts),
            remote_dsts: take(&self.remote_dsts),
            remote_bytes: take(&self.remote_bytes),
            n_requests: take(&self.n_requests),
        }
    }
}

/// Adds `n` to a counter.
pub(crate) fn count(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

use serde::Serialize;

/// The work of one iteration of a bench, from which `cargo xtask bench` computes the rate and a lower bound of the
/// time.
///
/// `cargo xtask bench` divides the streamed bytes, the rows' bytes, the cache lines and the floating-point operations
/// by the measured ceilings for this number of threads. The largest of these times is the lower bound. The bound
/// divided by the median is the bench's fraction of the ceiling. A bench in which all of these numbers are 0 has no
/// ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Work {
    /// The number of processed elements.
    pub elements: u64,
    /// The unit of the elements, such as `edges`, `rows` or `seeds`.
    pub unit: &'static str,
    /// The number of threads that do the work.
    pub threads: usize,
    /// The minimum number of bytes that are read or written sequentially; 0 if they do not bound the bench.
    pub streamed: u64,
    /// The number of bytes of randomly accessed rows; 0 if no rows are accessed.
    pub row_traffic: u64,
    /// The kind of access to the rows.
    pub access: Access,
    /// The number of cache lines that are read randomly, besides those of rows; 0 if there are no such reads.
    pub lines: u64,
    /// The size in bytes of the array that rows or lines are read from. A small array fits into a cache.
    pub among: u64,
    /// The number of floating-point operations; a fused multiply-add counts as two. 0 if they do not bound the bench.
    pub flop: u64,
    /// The seconds for reading the rows alone in the order of the bench, which replaces the ceiling of random rows; 0 if it
    /// was not measured.
    pub replayed: f64,
}

/// The kind of access to the rows of a [`Work`], which selects their ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The bench accesses no rows.
    Nothing,
    /// The bench reads rows randomly and writes them sequentially; both count. The value is the size of a row in bytes.
    Gather(u64),
    /// The bench reads rows randomly and sums them. The value is the size of a row in bytes.
    Read(u64),
}

impl Work {
    /// Returns the work of a bench without a ceiling.
    pub fn new(elements: u64, unit: &'static str, threads: usize) -> Self {
        let streamed = 0;
        let row_traffic = 0;
        let lines = 0;
        let among = 0;
        let flop = 0;
        let access = Access::Nothing;
        Self { elements, unit, threads, streamed, row_traffic, access, lines, among, flop, replayed: 0.0 }
    }

    /// Sets the number of sequentially accessed bytes.
    pub fn streamed(self, streamed: u64) -> Self {
        Self { streamed, ..self }
    }

    /// Sets the bytes of randomly accessed rows, the kind of access, and the size of their array in bytes.
    pub fn rows(self, row_traffic: u64, access: Access, among: u64) -> Self {
        Self { row_traffic, access, among, ..self }
    }

    /// Sets the number of randomly read cache lines, and the size of their array in bytes.
    pub fn lines(self, lines: u64, among: u64) -> Self {
        Self { lines, among, ..self }
    }

    /// Sets the seconds for reading the rows alone, from [`seconds_to_read_rows`](crate::seconds_to_read_rows).
    pub fn replayed(self, seconds: f64) -> Self {
        Self { replayed: seconds, ..self }
    }

    /// Sets the number of floating-point operations.
    pub fn flop(self, flop: u64) -> Self {
        Self { flop, ..self }
    }
}

use serde::Serialize;

/// The rate of accesses to rows of one width.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RowRate {
    /// The size of a row in bytes.
    pub row_bytes: usize,
    /// The rate in bytes per second.
    pub bytes_per_second: f64,
}

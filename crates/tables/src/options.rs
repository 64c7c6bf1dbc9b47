use std::sync::Arc;

use crate::BadRows;
use crate::record::Import;

/// The default memory limit in bytes.
const MEMORY_BYTES: u64 = 1 << 30;

/// The options of an import.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The maximum number of bytes on the heap; see the table of the [crate](crate#memory).
    pub memory_bytes: u64,
    /// The number of threads; `None` for those of the current thread pool. The result does not depend on it.
    pub n_threads: Option<usize>,
    /// An earlier import whose transforms and classes are used, for new rows of the same tables. Its node types must have
    /// the same columns; targets may be absent.
    pub transforms_of: Option<Arc<Import>>,
}

impl Default for ImportOptions {
    /// Returns a limit of 1 GiB, the threads of the current pool, and statistics of the imported tables.
    fn default() -> Self {
        Self { memory_bytes: MEMORY_BYTES, n_threads: None, transforms_of: None }
    }
}

/// The report of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportReport {
    /// The name and the number of nodes of each node type.
    pub node_types: Vec<(String, u64)>,
    /// The name and the number of edges of each relation.
    pub relations: Vec<(String, u64)>,
    /// The rows that were dropped.
    pub dropped: Vec<BadRows>,
}

//! Limits of counts: ids have 32 bits, and a count in a damaged file must not make a reader allocate all memory.

use std::path::Path;

use kiln_feature::MAX_DIM;
use kiln_graph::Relations;
use kiln_store::Error as StoreError;

use crate::Result;

/// The default memory limit, in bytes, of a conversion and of a compressed edge list that is opened.
pub(crate) const MEMORY_BYTES: u64 = 1 << 30;

/// The maximum number of node types of a heterogeneous set: two for each of the relations. It limits the work of reading a
/// damaged manifest.
pub(crate) const MAX_TYPES: usize = 2 * Relations::MOST;

/// Returns the default names of classes: the numbers `0..n_classes` as text.
pub(crate) fn numbers(n_classes: usize) -> Vec<String> {
    (0..n_classes).map(|class| class.to_string()).collect()
}

/// The maximum number of classes. Each class has a name in memory, so a single very large label in a damaged file could
/// otherwise exhaust the memory.
pub(crate) const MAX_CLASSES: usize = 1 << 20;

/// Checks that there are at most [`MAX_CLASSES`] classes and returns the number of classes. `path` is the file that
/// states `n_classes`, for the error.
pub(crate) fn check_n_classes(path: &Path, n_classes: u64) -> Result<usize> {
    usize::try_from(n_classes).ok().filter(|&n_classes| n_classes <= MAX_CLASSES).ok_or_else(|| {
        StoreError::Metadata {
            path: path.to_owned(),
            key: "the number of classes".into(),
            expected: format!("at most {MAX_CLASSES}: number the classes from 0"),
            found: n_classes.to_string(),
        }
        .into()
    })
}

/// Checks that the ids of all nodes fit in 32 bits and returns the number of nodes. `path` is the file that states
/// `n_nodes`, for the error.
pub(crate) fn check_n_nodes(path: &Path, n_nodes: u64) -> Result<usize> {
    let is_usable = n_nodes < u64::from(u32::MAX);
    usize::try_from(n_nodes).ok().filter(|_| is_usable).ok_or_else(|| {
        StoreError::Metadata {
            path: path.to_owned(),
            key: "the number of nodes".into(),
            expected: format!("below {}: ids have 32 bits", u32::MAX),
            found: n_nodes.to_string(),
        }
        .into()
    })
}

/// Checks that the ids of all nodes fit in 32 bits.
pub(crate) fn check_node_count(n_nodes: usize) -> Result<()> {
    let (n, max) = (n_nodes as u64, u32::MAX.into());
    if n > max {
        return Err(kiln_graph::Error::TooMany { what: "nodes", n, max }.into());
    }
    Ok(())
}

/// Returns the error for a number of feature columns that is 0 or above [`MAX_DIM`].
pub(crate) fn bad_dim(path: &Path, dim: usize) -> StoreError {
    StoreError::Metadata {
        path: path.to_owned(),
        key: "the number of columns".into(),
        expected: format!("1 to {MAX_DIM}"),
        found: dim.to_string(),
    }
}

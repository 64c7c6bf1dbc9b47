//! The sizes of columns of Parquet files and of windows, which are found once for all readings of an import.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The sizes of some columns of a Parquet file, or of a text file, which has no columns here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TableSizes {
    /// The memory for the largest pages and dictionaries of a row group.
    pub(super) reading_bytes: u64,
    /// A bound of the length of texts per row.
    pub(super) text_bytes: u64,
    /// The window of a decoder of zstd.
    pub(super) window_bytes: u64,
}

/// The sizes by file and by the positions of the columns, ascending. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownSizes(Arc<Mutex<SizesByColumns>>);

type SizesByColumns = HashMap<(PathBuf, Vec<usize>), TableSizes>;

impl KnownSizes {
    pub(super) fn get(&self, path: &Path, positions: &[usize]) -> Option<TableSizes> {
        self.lock().get(&(path.to_owned(), positions.to_vec())).copied()
    }

    pub(super) fn insert(&self, path: &Path, positions: &[usize], sizes: TableSizes) {
        self.lock().insert((path.to_owned(), positions.to_vec()), sizes);
    }

    fn lock(&self) -> MutexGuard<'_, SizesByColumns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

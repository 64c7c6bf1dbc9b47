//! How much memory the reading of tables may take.

use std::io;
use std::path::Path;

use super::zstd::MAX_WINDOW;
use crate::error::io_error;
use crate::{Error, Result};

/// The maximum length of a record in bytes. It protects from gzip bombs and from quotes that are never closed.
pub(super) const MAX_RECORD_BYTES: u64 = 1 << 24;

/// The largest limit with which rows of text may only have [`SMALL_RECORD_BYTES`].
const SMALL_MEMORY: u64 = 64 << 20;

/// The largest row of text within the memory that each import has for long rows.
const SMALL_RECORD_BYTES: u64 = 1 << 20;

/// The memory of an import besides that of pages: for batches, buffers and a small index. A part of it is for small pages.
const OTHER_BYTES: u64 = 10 << 20;

/// The bytes in memory for each byte of the largest row: buffers that grow by doubling, the batch, and its values.
const COPIES: u64 = 8;

/// The memory limit of an import, from which the limits of rows and of pages follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadLimit {
    memory_bytes: u64,
}

impl ReadLimit {
    /// No limit but that of the length of a row of text. Pages are not looked at before they are read.
    pub(crate) const NONE: Self = Self { memory_bytes: u64::MAX };

    /// The default memory limit of an import in bytes.
    pub(crate) const DEFAULT_BYTES: u64 = 1 << 30;

    pub(crate) fn new(memory_bytes: u64) -> Self {
        Self { memory_bytes }
    }

    /// Returns the largest size of a row of text. All copies of it take at most a quarter of the memory.
    pub(super) fn record_bytes(self) -> u64 {
        match self.memory_bytes < SMALL_MEMORY {
            true => SMALL_RECORD_BYTES,
            false => (self.memory_bytes / SMALL_MEMORY * (SMALL_MEMORY / (4 * COPIES))).min(MAX_RECORD_BYTES),
        }
    }

    /// Returns the memory for rows of text in bytes.
    pub(super) fn text_bytes(self) -> u64 {
        COPIES * self.record_bytes()
    }

    /// Returns an error if the pages of a row group, which begins at a row, take more memory than the limit.
    pub(super) fn large_pages(self, path: &Path, row: u64, n_bytes: u64) -> Option<Error> {
        let needed_bytes = n_bytes.saturating_add(OTHER_BYTES);
        (self.memory_bytes < needed_bytes).then(|| {
            let what = format!("{}: the pages of the row group from row {row}", path.display());
            self.too_small(what, needed_bytes)
        })
    }

    /// Returns an error if a batch of an Arrow file, which begins at a row, takes more memory than the limit with the dictionaries.
    pub(super) fn large_batch(self, path: &Path, row: u64, n_bytes: u64) -> Option<Error> {
        let needed_bytes = n_bytes.saturating_add(OTHER_BYTES);
        (self.memory_bytes < needed_bytes).then(|| {
            let what = format!(
                "{}: the columns of the record batch from row {row} (smaller batches take less)",
                path.display()
            );
            self.too_small(what, needed_bytes)
        })
    }

    /// Returns an error if the decoder of a file with this window takes more memory than the limit, or the window is larger than any
    /// that is read.
    pub(super) fn large_window(self, path: &Path, window_bytes: u64, n_bytes: u64) -> Option<Error> {
        if MAX_WINDOW < window_bytes {
            let table = path.display().to_string();
            let what =
                format!("a zstd frame with a window of {window_bytes} bytes (compress it as a stream)");
            return Some(Error::TooLarge { table, what, max: MAX_WINDOW });
        }
        let needed_bytes = n_bytes.saturating_add(OTHER_BYTES);
        (self.memory_bytes < needed_bytes).then(|| {
            let what = format!("{}: a zstd frame with a window of {window_bytes} bytes", path.display());
            self.too_small(what, needed_bytes)
        })
    }

    /// Returns the error of a row of text that is larger than [`ReadLimit::record_bytes`]; `None` for the header.
    pub(super) fn long_row(self, path: &Path, row: Option<u64>) -> Error {
        let row = row.map_or_else(|| "the header".to_owned(), |row| format!("row {row}"));
        let most = self.record_bytes();
        if most == MAX_RECORD_BYTES {
            let said = format!(
                "{row}: a row of more than {most} bytes: the file is not a table, or a quote is open"
            );
            return io_error(path)(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        let larger = ReadLimit::new((2 * self.memory_bytes).max(2 * SMALL_MEMORY));
        let what = format!(
            "{}: {row} takes more than {most} bytes with its fields, and a row of up to {} bytes",
            path.display(),
            larger.record_bytes()
        );
        self.too_small(what, larger.memory_bytes)
    }

    /// Checks the memory for the different values of a table's columns. They may take half of the memory while they are counted,
    /// before keys take it.
    pub(crate) fn check_values(self, table: &str, n_bytes: u64) -> Result<()> {
        match 2 * n_bytes <= self.memory_bytes {
            true => Ok(()),
            false => {
                let what =
                    format!("{table}: different values of its columns, which take more than {n_bytes} bytes");
                Err(self.too_small(what, 4 * n_bytes))
            }
        }
    }

    /// Returns the error of a limit that is too small.
    pub(super) fn too_small(self, what: String, needed_bytes: u64) -> Error {
        Error::Memory { what, needed_bytes, budget_bytes: self.memory_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_grow_with_the_limit_and_their_copies_take_a_quarter_of_it() {
        for (mebibytes, kibibytes) in
            [(1, 1024), (63, 1024), (64, 2048), (300, 8192), (512, 16384), (9999, 16384)]
        {
            let limit = ReadLimit::new(mebibytes << 20);
            assert_eq!(limit.record_bytes(), kibibytes << 10, "{mebibytes} MiB");
            assert!(mebibytes < 64 || COPIES * limit.record_bytes() <= mebibytes << 18);
        }
    }

    #[test]
    fn the_error_of_a_long_row_names_a_limit_that_allows_a_longer_one() {
        let limit = ReadLimit::new(20 << 20);
        let error = limit.long_row(Path::new("a.csv"), Some(3));
        let Error::Memory { what, needed_bytes, .. } = error else { panic!("{error}") };
        assert!(what.starts_with("a.csv: row 3 takes more than 1048576 bytes"), "{what}");
        assert!(limit.record_bytes() < ReadLimit::new(needed_bytes).record_bytes());
        let error = ReadLimit::new(2 << 30).long_row(Path::new("a.csv"), None);
        assert!(
            error.to_string().starts_with("a.csv: the header: a row of more than 16777216 bytes"),
            "{error}"
        );
    }
}

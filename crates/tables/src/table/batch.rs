use std::path::PathBuf;
use std::sync::Arc;

use super::cell::{BatchColumn, Cell};
use super::missing::MissingTexts;
use crate::BadRow;

/// The maximum number of rows of a batch.
pub(crate) const BATCH_ROWS: usize = 1 << 13;

/// The number of bytes in memory after which a batch ends.
pub(super) const BATCH_BYTES: usize = 1 << 20;

/// Some rows of a table.
#[derive(Debug)]
pub(crate) struct TableBatch {
    pub(crate) path: PathBuf,
    /// The number of rows of the file before the batch.
    pub(crate) first_row: u64,
    pub(crate) n_rows: usize,
    /// The values of each column.
    pub(crate) columns: Vec<BatchColumn>,
    pub(crate) missing: Arc<MissingTexts>,
    /// The rows that cannot be read, ascending.
    pub(crate) malformed: Vec<Malformed>,
}

/// A row that cannot be read, such as one with too few fields.
#[derive(Debug)]
pub(crate) struct Malformed {
    pub(crate) row: usize,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl TableBatch {
    /// Returns the value of a column in a row.
    pub(crate) fn cell(&self, column: usize, row: usize) -> Cell<'_> {
        let cell = self.columns[column].cell(row);
        if self.missing.contains(&cell) { Cell::Missing } else { cell }
    }

    /// Returns the reason why a row cannot be read.
    pub(crate) fn malformed(&self, row: usize) -> Option<&Malformed> {
        let position = self.malformed.binary_search_by_key(&row, |malformed| malformed.row).ok()?;
        Some(&self.malformed[position])
    }

    /// Returns a row as an example of bad rows.
    pub(crate) fn bad_row(&self, row: usize, column: &str, expected: &str, found: String) -> BadRow {
        BadRow {
            path: self.path.clone(),
            row: self.first_row + row as u64 + 1,
            column: column.to_owned(),
            expected: expected.to_owned(),
            found,
        }
    }
}

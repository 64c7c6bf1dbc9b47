use std::path::{Path, PathBuf};
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
    /// The number of rows of the file before those that were read.
    pub(crate) first_row: u64,
    pub(crate) n_rows: usize,
    /// The positions of the rows among those that were read, ascending; `None` for all of them.
    rows: Option<Vec<u32>>,
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
    /// Creates a batch of all rows that were read.
    pub(super) fn new(
        path: &Path,
        first_row: u64,
        n_rows: usize,
        columns: Vec<BatchColumn>,
        missing: &Arc<MissingTexts>,
    ) -> Self {
        let path = path.to_owned();
        let missing = missing.clone();
        Self { path, first_row, n_rows, rows: None, columns, missing, malformed: Vec::new() }
    }

    /// Sets the rows that cannot be read, ascending.
    pub(super) fn with_malformed(self, malformed: Vec<Malformed>) -> Self {
        Self { malformed, ..self }
    }

    /// Keeps the rows at these positions, ascending.
    pub(super) fn keep_rows(&mut self, rows: Vec<u32>) {
        if rows.len() < self.n_rows {
            self.n_rows = rows.len();
            self.rows = Some(rows);
        }
    }

    /// Returns the position of a row among those that were read.
    fn read_row(&self, row: usize) -> usize {
        self.rows.as_ref().map_or(row, |rows| rows[row] as usize)
    }

    /// Returns the value of a column in a row.
    pub(crate) fn cell(&self, column: usize, row: usize) -> Cell<'_> {
        let cell = self.columns[column].cell(self.read_row(row));
        if self.missing.contains(&cell) { Cell::Missing } else { cell }
    }

    /// Returns the reason why a row cannot be read.
    pub(crate) fn malformed(&self, row: usize) -> Option<&Malformed> {
        let row = self.read_row(row);
        let position = self.malformed.binary_search_by_key(&row, |malformed| malformed.row).ok()?;
        Some(&self.malformed[position])
    }

    /// Returns a row as an example of bad rows.
    pub(crate) fn bad_row(&self, row: usize, column: &str, expected: &str, found: String) -> BadRow {
        BadRow {
            path: self.path.clone(),
            row: self.first_row + self.read_row(row) as u64 + 1,
            column: column.to_owned(),
            expected: expected.to_owned(),
            found,
        }
    }
}

//! Tables in files: Parquet, CSV and JSON lines, read in batches of rows.

mod batch;
mod canonical;
mod cell;
mod csv_file;
mod json_lines;
mod limit;
mod lines;
mod missing;
mod parquet_file;
mod parquet_footer;
mod parquet_pages;
mod parquet_thrift;
mod sizes;
mod source;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::KEYS_OF_OBJECTS;
use crate::{Error, Result, SpecError};

pub(crate) use self::batch::TableBatch;
pub(crate) use self::canonical::TIME_IN_YEARS;
pub(crate) use self::cell::{Cell, text_cell};
use self::csv_file::CsvFile;
use self::json_lines::JsonLinesFile;
pub(crate) use self::limit::ReadLimit;
pub(crate) use self::missing::MissingTexts;
use self::parquet_file::ParquetFile;
pub(crate) use self::source::SourceFiles;

/// The formats of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableFormat {
    Parquet,
    Csv,
    JsonLines,
}

impl TableFormat {
    pub(crate) const EXPECTED: &str = "a name that ends in .parquet, .csv, .csv.gz, .jsonl or .jsonl.gz";

    /// Returns the format of a file by its name.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_suffix(".gz").filter(|name| !name.ends_with(".parquet")).unwrap_or(name);
        match name.rsplit_once('.')?.1 {
            "parquet" => Some(Self::Parquet),
            "csv" => Some(Self::Csv),
            "jsonl" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// Columns of a table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) files: Vec<PathBuf>,
    /// The names of the columns of each batch; they differ.
    pub(crate) columns: Vec<String>,
    pub(crate) missing: Arc<MissingTexts>,
    /// The files of the import, by which each reading has the same bytes.
    pub(crate) sources: SourceFiles,
}

/// The reader of a file.
enum TableFile {
    Parquet(ParquetFile),
    Csv(CsvFile),
    JsonLines(JsonLinesFile),
}

impl Table {
    /// Calls `visit` with all rows in their order, until it returns `Break`.
    pub(crate) fn for_each_batch(
        &self,
        visit: &mut dyn FnMut(&TableBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut seen = vec![false; self.columns.len()];
        let mut n_good_rows = 0;
        for (position, path) in self.files.iter().enumerate() {
            let mut file = self.open(path)?;
            let mut first_row = 0;
            while let Some(batch) = file.next_batch(first_row)? {
                first_row += batch.n_rows as u64;
                n_good_rows += batch.n_rows - batch.malformed.len();
                if visit(&batch)?.is_break() {
                    return Ok(());
                }
            }
            file.check_end(first_row)?;
            file.mark_columns(&mut seen);
            if position + 1 == self.files.len() && n_good_rows > 0 {
                self.check_columns(path, &seen)?;
            }
        }
        Ok(())
    }

    /// Checks, after the last file, that each column occurred in some row: an absent key of an object is a missing value, but
    /// a column without any value is a typing error.
    fn check_columns(&self, last: &Path, seen: &[bool]) -> Result<()> {
        match self.columns.iter().zip(seen).find(|(_, is_seen)| !**is_seen) {
            None => Ok(()),
            Some((column, _)) => Err(Error::Spec(SpecError::Column {
                path: last.to_owned(),
                column: column.clone(),
                n_found: 0,
                known: KEYS_OF_OBJECTS.into(),
            })),
        }
    }

    /// Opens a file, checks that it has the columns, and returns the number of rows that it states.
    pub(crate) fn n_rows_of(&self, path: &Path) -> Result<Option<u64>> {
        Ok(match self.open(path)? {
            TableFile::Parquet(file) => file.n_rows(),
            TableFile::Csv(_) | TableFile::JsonLines(_) => None,
        })
    }

    /// Returns the memory for the longest row of text or the largest pages in bytes.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if it is more than the limit, and the errors of opening the files.
    pub(crate) fn reading_bytes(&self) -> Result<u64> {
        let mut most = 0;
        for path in &self.files {
            most = most.max(match self.open(path)? {
                TableFile::Parquet(file) => file.reading_bytes(),
                TableFile::Csv(_) | TableFile::JsonLines(_) => self.sources.limit().text_bytes(),
            });
        }
        Ok(most)
    }

    fn open(&self, path: &Path) -> Result<TableFile> {
        let Self { columns, missing, sources, .. } = self;
        Ok(match TableFormat::of(path) {
            Some(TableFormat::Parquet) => {
                TableFile::Parquet(ParquetFile::open(path, sources, columns, missing)?)
            }
            Some(TableFormat::JsonLines) => {
                TableFile::JsonLines(JsonLinesFile::open(path, sources, columns, missing)?)
            }
            Some(TableFormat::Csv) | None => TableFile::Csv(CsvFile::open(path, sources, columns, missing)?),
        })
    }
}

impl TableFile {
    fn next_batch(&mut self, first_row: u64) -> Result<Option<TableBatch>> {
        match self {
            Self::Parquet(file) => file.next_batch(first_row),
            Self::Csv(file) => file.next_batch(first_row),
            Self::JsonLines(file) => file.next_batch(first_row),
        }
    }

    /// Checks, after the last batch, that the file had as many rows as it states, if it states a number.
    fn check_end(&self, n_rows: u64) -> Result<()> {
        match self {
            Self::Parquet(file) => file.check_end(n_rows),
            Self::Csv(_) | Self::JsonLines(_) => Ok(()),
        }
    }

    /// Marks the columns that occurred in a row, or that the file has by its header.
    fn mark_columns(&self, seen: &mut [bool]) {
        match self {
            Self::JsonLines(file) => file.mark_columns(seen),
            Self::Parquet(_) | Self::Csv(_) => seen.fill(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The passes of an import read the same rows, whatever has the path of a table by then.
    #[test]
    fn each_reading_of_a_table_has_the_rows_of_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows = |text: &str| format!("id\n{text}\n{text}{text}\n");
        let objects = |text: &str| format!("{{\"id\": \"{text}\"}}\n{{\"id\": \"{text}{text}\"}}\n");
        for (name, first, other) in [("a.csv", rows("a"), rows("b")), ("a.jsonl", objects("a"), objects("b"))]
        {
            let path = folder.path().join(name);
            fs::write(&path, first).expect("a table");
            let sources = SourceFiles::new(folder.path(), ReadLimit::new(1 << 30));
            let table = Table {
                files: sources.paths(&[name.into()]),
                columns: vec!["id".to_owned()],
                missing: MissingTexts::new(&[]),
                sources: sources.clone(),
            };
            let read = || {
                let mut found = Vec::new();
                let outcome = table.for_each_batch(&mut |batch| {
                    found.extend((0..batch.n_rows).map(|row| batch.cell(0, row).shown()));
                    Ok(ControlFlow::Continue(()))
                });
                outcome.map(|()| found)
            };
            let expected = read().expect("the rows");
            assert!(expected.len() == 2 && expected[0].contains('a'), "{expected:?}");
            fs::write(folder.path().join("new"), &other).expect("another table");
            fs::rename(folder.path().join("new"), &path).expect("a renamed table");
            assert_eq!(read().expect("the rows"), expected);
            sources.check().expect("an unchanged file");
        }
    }

    #[test]
    fn format_follows_from_the_file_name() {
        use TableFormat::{Csv, JsonLines, Parquet};
        for (name, format) in [
            ("a.parquet", Some(Parquet)),
            ("a.csv", Some(Csv)),
            ("b/a.b.csv.gz", Some(Csv)),
            ("a.jsonl", Some(JsonLines)),
            ("a.jsonl.gz", Some(JsonLines)),
            ("a.parquet.gz", None),
            ("a.json", None),
            ("csv", None),
            ("", None),
        ] {
            assert_eq!(TableFormat::of(Path::new(name)), format, "{name}");
        }
    }
}

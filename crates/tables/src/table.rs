//! Tables in files: Parquet, Arrow, CSV and JSON lines, read in batches of rows.

mod all_columns;
mod arrow_columns;
mod arrow_file;
mod arrow_messages;
mod batch;
mod canonical;
mod cell;
mod csv_file;
mod files;
mod find;
mod format;
mod json_lines;
mod limit;
mod lines;
mod missing;
mod parquet_file;
mod parquet_footer;
mod parquet_pages;
mod parquet_thrift;
mod parquet_zstd;
mod row_filter;
mod separator;
mod sizes;
mod source;
mod table_source;
mod walk;
mod zstd;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use kiln_store::progress::{Progress, ProgressUnit};

use crate::error::KEYS_OF_OBJECTS;
use crate::{Error, Result, SpecError};

pub(crate) use self::all_columns::AllColumns;
use self::arrow_file::ArrowFile;
pub(crate) use self::batch::TableBatch;
pub(crate) use self::canonical::{TIME_IN_YEARS, has_decimal_comma};
pub(crate) use self::cell::{Cell, Items, text_cell};
use self::csv_file::CsvFile;
pub(crate) use self::csv_file::ROW_NAMES;
pub(crate) use self::files::{TablePath, may_be_several};
pub(crate) use self::format::TableFormat;
use self::json_lines::JsonLinesFile;
pub(crate) use self::limit::ReadLimit;
pub(crate) use self::lines::first_bytes;
use self::parquet_file::ParquetFile;
pub(crate) use self::row_filter::value_text;
pub(crate) use self::separator::builder as csv_builder;
pub(crate) use self::source::SourceFiles;
use self::table_source::ColumnPlace;
pub(crate) use self::table_source::{TableSource, relation_of, table_of, task_of};

/// Columns of a table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) source: Arc<TableSource>,
    /// The names of the first columns of each batch; they differ.
    pub(crate) columns: Vec<String>,
}

/// The reader of a file.
enum TableFile {
    Parquet(ParquetFile),
    Arrow(ArrowFile),
    Csv(CsvFile),
    JsonLines(JsonLinesFile),
}

impl Table {
    /// Calls `visit` with the rows of the table in their order, until it returns `Break`. `stage` is what this does with the
    /// table, for the progress.
    pub(crate) fn for_each_batch(
        &self,
        stage: &str,
        visit: &mut dyn FnMut(&TableBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let (columns, of_filter) = self.columns_with_filter();
        let mut seen = vec![false; columns.len()];
        let mut n_good_rows = 0;
        let files = &self.source.files;
        let progress = TableProgress::start(&self.source, stage);
        for (position, path) in files.iter().enumerate() {
            let mut file = self.open(path, &columns)?;
            let mut first_row = 0;
            while let Some(mut batch) = file.next_batch(first_row)? {
                first_row += batch.n_rows as u64;
                progress.update(position, &file, first_row);
                n_good_rows += batch.n_rows - batch.malformed.len();
                if let Some(filter) = &self.source.filter {
                    filter.retain(&mut batch, &of_filter);
                }
                if batch.n_rows > 0 && visit(&batch)?.is_break() {
                    return Ok(());
                }
            }
            file.check_end(first_row)?;
            progress.end_file(position);
            file.mark_columns(&mut seen);
            if position + 1 == files.len() && n_good_rows > 0 {
                check_columns(&path.path, &columns, &seen)?;
            }
        }
        Ok(())
    }

    /// Returns the columns with those by which rows are taken, and the positions of the latter.
    fn columns_with_filter(&self) -> (Vec<String>, Vec<usize>) {
        let mut columns = self.columns.clone();
        let of_filter = self.source.filter.iter().flat_map(|filter| filter.columns());
        let positions = of_filter.map(|name| match columns.iter().position(|column| column == name) {
            Some(position) => position,
            None => {
                columns.push(name.to_owned());
                columns.len() - 1
            }
        });
        let positions = positions.collect();
        (columns, positions)
    }

    /// Opens a file, checks that it has the columns, and returns the number of rows that it states; `None` if not all are taken.
    pub(crate) fn n_rows_of(&self, file: &TablePath) -> Result<Option<u64>> {
        Ok(match self.open(file, &self.columns_with_filter().0)? {
            TableFile::Parquet(file) if self.source.filter.is_none() => file.n_rows(),
            TableFile::Arrow(file) if self.source.filter.is_none() => Some(file.n_rows()?),
            TableFile::Parquet(_) | TableFile::Arrow(_) | TableFile::Csv(_) | TableFile::JsonLines(_) => None,
        })
    }

    /// Returns the memory for the longest row of text or the largest pages in bytes.
    ///
    /// # Errors
    /// Returns [`Error::Memory`] if it is more than the limit, and the errors of opening the files.
    pub(crate) fn reading_bytes(&self) -> Result<u64> {
        let columns = self.columns_with_filter().0;
        let mut most = 0;
        for file in &self.source.files {
            most = most.max(match self.open(file, &columns)? {
                TableFile::Parquet(file) => file.reading_bytes(),
                TableFile::Arrow(file) => file.reading_bytes(),
                TableFile::Csv(_) | TableFile::JsonLines(_) => {
                    let sources = &self.source.sources;
                    sources.limit().text_bytes().saturating_add(lines::decoder_bytes(&file.path, sources)?)
                }
            });
        }
        Ok(most)
    }

    fn open(&self, file: &TablePath, columns: &[String]) -> Result<TableFile> {
        let source = &self.source;
        Ok(match TableFormat::of(&file.path) {
            Some(TableFormat::Parquet) => TableFile::Parquet(ParquetFile::open(source, file, columns)?),
            Some(TableFormat::Arrow) => TableFile::Arrow(ArrowFile::open(source, file, columns)?),
            Some(TableFormat::JsonLines) => TableFile::JsonLines(JsonLinesFile::open(source, file, columns)?),
            Some(TableFormat::Csv) | None => TableFile::Csv(CsvFile::open(source, file, columns)?),
        })
    }
}

/// The progress of a reading of a table, in bytes of its files.
struct TableProgress {
    progress: Progress,
    /// The number of bytes of the files before each file, and of all files.
    starts: Vec<u64>,
}

impl TableProgress {
    fn start(source: &TableSource, stage: &str) -> Self {
        let mut starts = vec![0];
        for file in &source.files {
            let n_bytes = fs::metadata(&file.path).map_or(0, |metadata| metadata.len());
            starts.push(starts.last().map_or(0, |start| start + n_bytes));
        }
        let name = format_args!("{}: {stage}", source.label);
        let progress = Progress::start(name, ProgressUnit::Bytes, starts.last().copied());
        Self { progress, starts }
    }

    /// Reports that a number of rows of the file at a position were read.
    fn update(&self, position: usize, file: &TableFile, n_rows: u64) {
        let n_bytes = self.starts[position + 1] - self.starts[position];
        let share = |n: u64, n_all: u64| (n_bytes as f64 * (n as f64 / n_all.max(1) as f64).min(1.0)) as u64;
        let n_read = match file {
            TableFile::Parquet(file) => share(n_rows, file.n_rows().unwrap_or(0)),
            TableFile::Arrow(file) => share(file.n_read_messages(), file.n_messages()),
            TableFile::Csv(file) => file.n_file_bytes(),
            TableFile::JsonLines(file) => file.n_file_bytes(),
        };
        self.progress.set_done(self.starts[position] + n_read);
    }

    fn end_file(&self, position: usize) {
        self.progress.set_done(self.starts[position + 1]);
    }
}

/// Checks, after the last file, that each column occurred in some row: an absent key of an object is a missing value, but a column
/// without any value is a typing error.
fn check_columns(last: &Path, columns: &[String], seen: &[bool]) -> Result<()> {
    match columns.iter().zip(seen).find(|(_, is_seen)| !**is_seen) {
        None => Ok(()),
        Some((column, _)) => Err(Error::Spec(SpecError::Column {
            path: last.to_owned(),
            column: column.clone(),
            n_found: 0,
            known: KEYS_OF_OBJECTS.into(),
        })),
    }
}

impl TableFile {
    fn next_batch(&mut self, first_row: u64) -> Result<Option<TableBatch>> {
        match self {
            Self::Parquet(file) => file.next_batch(first_row),
            Self::Arrow(file) => file.next_batch(first_row),
            Self::Csv(file) => file.next_batch(first_row),
            Self::JsonLines(file) => file.next_batch(first_row),
        }
    }

    /// Checks, after the last batch, that the file had as many rows as it states, if it states a number.
    fn check_end(&self, n_rows: u64) -> Result<()> {
        match self {
            Self::Parquet(file) => file.check_end(n_rows),
            Self::Arrow(_) | Self::Csv(_) | Self::JsonLines(_) => Ok(()),
        }
    }

    /// Marks the columns that occurred in a row, or that the file has by its header or its path.
    fn mark_columns(&self, seen: &mut [bool]) {
        let places = match self {
            Self::JsonLines(file) => return file.mark_columns(seen),
            Self::Parquet(file) => file.places(),
            Self::Arrow(file) => file.places(),
            Self::Csv(file) => file.places(),
        };
        let is_there = places.iter().map(ColumnPlace::is_there);
        seen.iter_mut().zip(is_there).for_each(|(seen, is_there)| *seen |= is_there);
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
            let text = format!("{{name: a, files: [{name}], key: id}}");
            let spec: crate::NodeTypeSpec = serde_saphyr::from_str(&text).expect("a spec");
            let source = TableSource::find_nodes(&spec, &sources).expect("a table");
            let table = Table { source, columns: vec!["id".to_owned()] };
            let read = || {
                let mut found = Vec::new();
                let outcome = table.for_each_batch("reading", &mut |batch| {
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
}

use std::io::{self, Chain, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use csv::ByteRecord;
use kiln_store::counted;

use super::batch::{BATCH_BYTES, BATCH_ROWS, Malformed, TableBatch};
use super::cell::{BatchColumn, TextColumn};
use super::limit::ReadLimit;
use super::lines::{self, BUFFER_BYTES, Progress, RecordReader, row_error};
use super::missing::MissingTexts;
use super::source::SourceFiles;
use crate::{Error, Result, SpecError, TableFileError};

/// The bytes that follow the file for the parser: a record of its own, unless the file ends within a quoted field. The
/// parser itself ends such a field at the end of the file and reports no error.
const END: &[u8] = b"\nx";

/// The memory of a field: its end in the parser's list, which grows by doubling.
const FIELD_BYTES: u64 = 16;

/// The record that [`END`] is.
const END_RECORD: &[u8] = b"x";

/// A file of comma-separated values whose first row has the names of the columns.
pub(super) struct CsvFile {
    path: PathBuf,
    reader: csv::Reader<Chain<RecordReader, &'static [u8]>>,
    progress: Rc<Progress>,
    record: ByteRecord,
    /// The position of each wanted column.
    positions: Vec<usize>,
    n_fields: usize,
    missing: Arc<MissingTexts>,
    limit: ReadLimit,
}

impl CsvFile {
    pub(super) fn open(
        path: &Path,
        sources: &SourceFiles,
        columns: &[String],
        missing: &Arc<MissingTexts>,
    ) -> Result<Self> {
        let limit = sources.limit();
        let (bytes, progress) = lines::open(path, sources, FIELD_BYTES)?;
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .buffer_capacity(BUFFER_BYTES)
            .from_reader(bytes.chain(END));
        let header = reader.byte_headers();
        let mut header = header.map_err(|error| bad_file(path, None, limit, error))?.clone();
        if has_end(&reader, &progress) {
            check_end(path, &header, None)?;
            header.clear();
        }
        let names: Vec<String> =
            header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        if names.is_empty() {
            let expected = "a header with the names of the columns";
            return Err(Error::TableFile(TableFileError::Content {
                path: path.to_owned(),
                found: "empty",
                expected,
            }));
        }
        let positions = columns.iter().map(|column| position_of(path, column, &names));
        let positions = positions.collect::<Result<_>>()?;
        progress.end_record();
        Ok(Self {
            path: path.to_owned(),
            reader,
            progress,
            record: ByteRecord::new(),
            positions,
            n_fields: names.len(),
            missing: missing.clone(),
            limit,
        })
    }

    pub(super) fn next_batch(&mut self, first_row: u64) -> Result<Option<TableBatch>> {
        let mut columns: Vec<TextColumn> = self.positions.iter().map(|_| TextColumn::default()).collect();
        let mut n_rows = 0;
        let mut n_bytes = 0;
        let mut malformed = Vec::new();
        while n_rows < BATCH_ROWS && n_bytes < BATCH_BYTES {
            let has_row = self.reader.read_byte_record(&mut self.record);
            let row = first_row + n_rows as u64 + 1;
            if !has_row.map_err(|error| bad_file(&self.path, Some(row), self.limit, error))? {
                break;
            }
            self.progress.end_record();
            if has_end(&self.reader, &self.progress) {
                check_end(&self.path, &self.record, Some(row))?;
                break;
            }
            n_bytes += self.record.as_slice().len() + columns.len() * size_of::<usize>();
            if let Err((expected, found)) = self.push_row(&mut columns) {
                malformed.push(Malformed { row: n_rows, expected, found });
                for column in &mut columns {
                    column.ends.truncate(n_rows);
                    column.text.truncate(column.ends.last().copied().unwrap_or(0));
                    column.ends.push(column.text.len());
                }
            }
            n_rows += 1;
        }
        let columns = columns.into_iter().map(BatchColumn::Text).collect();
        let path = self.path.clone();
        let missing = self.missing.clone();
        let batch = TableBatch { path, first_row, n_rows, columns, missing, malformed };
        Ok((n_rows > 0).then_some(batch))
    }

    /// Appends the wanted fields of the record, or returns the expected and the found text.
    fn push_row(&self, columns: &mut [TextColumn]) -> Result<(), (String, String)> {
        if self.record.len() != self.n_fields {
            let [expected, found] = [self.n_fields, self.record.len()].map(|n| counted(n as u64, "field"));
            return Err((expected, found));
        }
        for (column, &position) in columns.iter_mut().zip(&self.positions) {
            let field = self.record.get(position).unwrap_or_default();
            let text = std::str::from_utf8(field)
                .map_err(|_| ("text in UTF-8".to_owned(), format!("{:?}", String::from_utf8_lossy(field))))?;
            column.text.push_str(text);
            column.ends.push(column.text.len());
        }
        Ok(())
    }
}

/// Returns true if the last record has bytes of [`END`] besides its first one, which ends the last line.
fn has_end<R: Read>(reader: &csv::Reader<R>, progress: &Progress) -> bool {
    progress.n_bytes() + 1 < reader.position().byte()
}

/// Checks that the last record is [`END_RECORD`] alone: else it starts at a row of the file and has an open quote.
fn check_end(path: &Path, record: &ByteRecord, row: Option<u64>) -> Result<()> {
    if record.iter().eq([END_RECORD]) {
        return Ok(());
    }
    Err(Error::TableFile(TableFileError::OpenQuote { path: path.to_owned(), row }))
}

/// Returns the position of a column.
pub(super) fn position_of(path: &Path, column: &str, names: &[String]) -> Result<usize> {
    const MAX_NAMES: usize = 50;
    let mut found = names.iter().enumerate().filter(|(_, name)| *name == column);
    match (found.next(), found.count()) {
        (Some((position, _)), 0) => Ok(position),
        (first, n_others) => Err(Error::Spec(SpecError::Column {
            path: path.to_owned(),
            column: column.to_owned(),
            n_found: first.map_or(0, |_| n_others + 1),
            known: names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", "),
        })),
    }
}

fn bad_file(path: &Path, row: Option<u64>, limit: ReadLimit, error: csv::Error) -> Error {
    let source = match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    };
    row_error(path, row, limit, source)
}

use std::collections::VecDeque;
use std::io::{self, Chain, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use csv::ByteRecord;
use kiln_store::counted;

use super::batch::{BATCH_BYTES, BATCH_ROWS, Malformed, TableBatch};
use super::canonical::{has_decimal_comma, has_decimal_point};
use super::cell::{BatchColumn, TextColumn};
use super::files::TablePath;
use super::limit::ReadLimit;
use super::lines::{self, BUFFER_BYTES, Progress, RecordReader, row_error};
use super::missing::MissingTexts;
use super::separator::{self, FirstLine, SEPARATORS, WantedColumns};
use super::table_source::{ColumnPlace, TableSource};
use crate::{Error, Result, TableFileError};

/// The bytes that follow the file for the parser: a record of its own, unless the file ends within a quoted field. The
/// parser itself ends such a field at the end of the file and reports no error.
const END: &[u8] = b"\nx";

/// The memory of a field: its end in the parser's list, which grows by doubling.
const FIELD_BYTES: u64 = 16;

/// The record that [`END`] is.
const END_RECORD: &[u8] = b"x";

/// The name of the column of row names, which has no name in the header that R and pandas write.
pub(crate) const ROW_NAMES: &str = "row.names";

/// The number of rows by which a header without the column of row names is told.
const FIRST_ROWS: usize = 2;

/// A file of separated values. Its first row has the names of the columns, unless the spec has them.
pub(super) struct CsvFile {
    path: PathBuf,
    reader: Parser,
    progress: Rc<Progress>,
    record: ByteRecord,
    /// The first records, which were read already.
    first: VecDeque<ByteRecord>,
    places: Vec<ColumnPlace>,
    n_fields: usize,
    /// What a comma is in each of the wanted columns.
    commas: Vec<Comma>,
    missing: Arc<MissingTexts>,
    limit: ReadLimit,
}

/// What a comma in the values of a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comma {
    /// A character.
    Text,
    /// The mark before the fraction of a number that is an integer, such as `1000,0`: other texts are keys as they are written.
    OfIntegers,
    /// The mark before the fraction of a number.
    Decimal,
}

impl Comma {
    fn of(table: &TableSource, column: &String) -> Self {
        match table.csv.decimal {
            Some(',') if table.texts.contains(column) => Self::Text,
            Some(',') if table.keys.contains(column) => Self::OfIntegers,
            Some(',') => Self::Decimal,
            _ => Self::Text,
        }
    }

    /// Returns true if the comma of a text is read as a point.
    fn is_point_in(self, text: &str) -> bool {
        match self {
            Self::Text => false,
            Self::OfIntegers => {
                let fraction = text.split_once(',').map_or("", |(_, fraction)| fraction);
                has_decimal_comma(text) && fraction.bytes().all(|digit| digit == b'0')
            }
            Self::Decimal => has_decimal_comma(text),
        }
    }
}

type Parser = csv::Reader<Chain<Chain<Cursor<Vec<u8>>, RecordReader>, &'static [u8]>>;

/// A file after its header.
struct Opened {
    reader: Parser,
    progress: Rc<Progress>,
    names: Vec<String>,
    first: VecDeque<ByteRecord>,
}

impl CsvFile {
    /// Returns the names of the columns of a file.
    pub(super) fn names(table: &TableSource, file: &TablePath) -> Result<Vec<String>> {
        Ok(open(table, file)?.names)
    }

    pub(super) fn open(table: &TableSource, file: &TablePath, columns: &[String]) -> Result<Self> {
        let Opened { reader, progress, names, first } = open(table, file)?;
        Ok(Self {
            path: file.path.clone(),
            reader,
            progress,
            record: ByteRecord::new(),
            first,
            places: table.places(file, columns, &names)?,
            n_fields: names.len(),
            commas: columns.iter().map(|column| Comma::of(table, column)).collect(),
            missing: table.missing.clone(),
            limit: table.sources.limit(),
        })
    }

    /// Returns where the wanted columns are.
    pub(super) fn places(&self) -> &[ColumnPlace] {
        &self.places
    }

    /// Returns the number of bytes of the file that were read, before decompression.
    pub(super) fn n_file_bytes(&self) -> u64 {
        self.progress.n_file_bytes()
    }

    pub(super) fn next_batch(&mut self, first_row: u64) -> Result<Option<TableBatch>> {
        let mut columns: Vec<TextColumn> = self.places.iter().map(|_| TextColumn::default()).collect();
        let mut n_rows = 0;
        let mut n_bytes = 0;
        let mut malformed = Vec::new();
        while n_rows < BATCH_ROWS && n_bytes < BATCH_BYTES {
            if !self.next_record(first_row + n_rows as u64 + 1)? {
                break;
            }
            n_bytes += self.record.as_slice().len() + columns.len() * size_of::<usize>();
            if let Err((expected, found)) = self.push_row(&mut columns) {
                malformed.push(Malformed { row: n_rows, expected, found });
                for column in &mut columns {
                    column.ends.truncate(n_rows);
                    column.points.retain(|row| *row < n_rows);
                    column.text.truncate(column.ends.last().copied().unwrap_or(0));
                    column.ends.push(column.text.len());
                }
            }
            n_rows += 1;
        }
        let columns = columns.into_iter().zip(&self.places);
        let columns = columns.map(|(column, place)| place.same().unwrap_or(BatchColumn::Text(column)));
        let batch = TableBatch::new(&self.path, first_row, n_rows, columns.collect(), &self.missing);
        Ok((n_rows > 0).then(|| batch.with_malformed(malformed)))
    }

    /// Reads the next record, which is at a row, and returns false at the end of the file.
    fn next_record(&mut self, row: u64) -> Result<bool> {
        if let Some(record) = self.first.pop_front() {
            self.record = record;
            return Ok(true);
        }
        let Self { path, reader, progress, record, limit, .. } = self;
        read_record(path, reader, progress, *limit, record, Some(row))
    }

    /// Appends the wanted fields of the record, or returns the expected and the found text.
    fn push_row(&self, columns: &mut [TextColumn]) -> Result<(), (String, String)> {
        if self.record.len() != self.n_fields {
            let [expected, found] = [self.n_fields, self.record.len()].map(|n| counted(n as u64, "field"));
            return Err((expected, found));
        }
        for ((column, place), comma) in columns.iter_mut().zip(&self.places).zip(&self.commas) {
            let Some(position) = place.position() else { continue };
            let field = self.record.get(position).unwrap_or_default();
            let text = std::str::from_utf8(field)
                .map_err(|_| ("text in UTF-8".to_owned(), format!("{:?}", String::from_utf8_lossy(field))))?;
            match comma.is_point_in(text) {
                true => column.text.extend(text.chars().map(|c| if c == ',' { '.' } else { c })),
                false => column.text.push_str(text),
            }
            if *comma == Comma::Decimal && has_decimal_point(text) {
                column.points.push(column.ends.len());
            }
            column.ends.push(column.text.len());
        }
        Ok(())
    }
}

/// Opens a file, and reads its header.
fn open(table: &TableSource, file: &TablePath) -> Result<Opened> {
    let path = &file.path;
    let form = &table.csv;
    let limit = table.sources.limit();
    let (mut bytes, progress) = lines::open(path, &table.sources, FIELD_BYTES)?;
    progress.set_separators(form.separator.map_or(SEPARATORS, |separator| [separator as u8; 3]));
    let line = FirstLine::read(&mut bytes, form).map_err(|error| row_error(path, None, limit, error))?;
    let separator = line.separator(path, form, &wanted_columns(table, file))?;
    progress.set_separators([separator; 3]);
    let n_stated = line.n_stated();
    progress.leave_out(n_stated);
    let mut line = Cursor::new(line.bytes);
    line.set_position(n_stated as u64);
    let mut reader = separator::builder(form, separator)
        .has_headers(false)
        .buffer_capacity(BUFFER_BYTES)
        .from_reader(line.chain(bytes).chain(END));
    let mut first = VecDeque::new();
    let mut names = form.names.clone();
    if names.is_empty() {
        let mut header = ByteRecord::new();
        if !read_record(path, &mut reader, &progress, limit, &mut header, None)? {
            let expected = "a header with the names of the columns, or `names` of `csv` in the spec";
            return Err(content(path, "empty", expected));
        }
        names = header.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    }
    let mut record = ByteRecord::new();
    while first.len() < FIRST_ROWS
        && read_record(path, &mut reader, &progress, limit, &mut record, Some(first.len() as u64 + 1))?
    {
        first.push_back(record.clone());
    }
    if form.names.is_empty() {
        name_rows(path, &mut names, &first, &table.columns)?;
    } else if first.front().is_some_and(|record| record.iter().eq(names.iter().map(String::as_bytes))) {
        let expected = "rows only: remove `names` of `csv` from the spec";
        return Err(content(path, "a table with a header", expected));
    }
    Ok(Opened { reader, progress, names, first })
}

/// Returns the columns that a file must have, and those that it need not have.
fn wanted_columns<'a>(table: &'a TableSource, file: &TablePath) -> WantedColumns<'a> {
    let mut wanted = WantedColumns::default();
    for column in &table.columns {
        let is_optional = file.has_in_path(column) || table.optional.contains(column);
        let columns = if is_optional { &mut wanted.optional } else { &mut wanted.required };
        // The header leaves it empty or out.
        if column != ROW_NAMES {
            columns.push(column);
        }
    }
    wanted
}

/// Names the column of row names, which the header leaves empty (`write.csv` of R) or out (`write.table`).
///
/// # Errors
/// Returns [`TableFileError::Fields`] if the rows have one field more than the header, and no column is that of row names: they may
/// have numbers with a decimal comma between commas, or a separator at their ends.
fn name_rows(
    path: &Path,
    names: &mut Vec<String>,
    first: &VecDeque<ByteRecord>,
    columns: &[String],
) -> Result<()> {
    // A spec may have the empty name itself.
    if names.iter().any(|name| name == ROW_NAMES) || columns.iter().any(String::is_empty) {
        return Ok(());
    }
    if !first.is_empty() && first.iter().all(|record| record.len() == names.len() + 1) {
        if !columns.iter().any(|column| column == ROW_NAMES) {
            let [n_header, n_row] = [names.len(), names.len() + 1];
            return Err(Error::TableFile(TableFileError::Fields { path: path.to_owned(), n_header, n_row }));
        }
        names.insert(0, ROW_NAMES.to_owned());
    } else if names.len() > 1 && names[0].is_empty() {
        names[0] = ROW_NAMES.to_owned();
    }
    Ok(())
}

/// Reads a record, and returns false at the end of the file. `row` is its row; `None` for the header.
fn read_record(
    path: &Path,
    reader: &mut Parser,
    progress: &Progress,
    limit: ReadLimit,
    record: &mut ByteRecord,
    row: Option<u64>,
) -> Result<bool> {
    let has_record = reader.read_byte_record(record).map_err(|error| bad_file(path, row, limit, error))?;
    if !has_record {
        return Ok(false);
    }
    progress.end_record();
    if has_end(reader, progress) {
        check_end(path, record, row)?;
        return Ok(false);
    }
    Ok(true)
}

fn content(path: &Path, found: &'static str, expected: &'static str) -> Error {
    Error::TableFile(TableFileError::Content { path: path.to_owned(), found, expected })
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

fn bad_file(path: &Path, row: Option<u64>, limit: ReadLimit, error: csv::Error) -> Error {
    let source = match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    };
    row_error(path, row, limit, source)
}

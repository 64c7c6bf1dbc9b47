//! Tables of numbers in text files, plain or gzip-compressed. Errors contain the line number.

use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use flate2::read::MultiGzDecoder;
use kiln_graph::open_file;

use crate::progress::{Progress, ProgressUnit};
use crate::{Error, Result, SourceFiles};

/// The maximum length of a line in bytes, with 16 bytes more for each field. The limit protects from gzip bombs, in which a small file expands to one huge
/// line.
pub const MAX_LINE_BYTES: usize = 1 << 24;

/// Returns true if the file's name ends in `.gz`.
pub fn is_gz(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// A reader of the lines of a table. Every line must have as many fields as the first; empty lines are skipped.
pub struct TextTable {
    path: PathBuf,
    reader: csv::Reader<Box<dyn Read>>,
    record: csv::ByteRecord,
    /// The number of fields in the first line; `None` until that line is read.
    n_columns: Option<usize>,
}

impl fmt::Debug for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextTable").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TextTable {
    /// Opens a file of comma-separated fields. A file whose name ends in `.gz` is decompressed.
    ///
    /// # Errors
    /// Returns [`Error::Io`] if the file cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let file = open_file(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let n_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        Ok(Self::decompressed(path, n_bytes, Box::new(file)))
    }

    /// Opens a file as [`TextTable::open`] does, which each reading has as it was opened first.
    ///
    /// # Errors
    /// Returns the errors of [`SourceFiles::open`].
    pub fn open_in(sources: &SourceFiles, path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let file = sources.open(&path)?;
        Ok(Self::decompressed(path, file.n_bytes(), Box::new(file)))
    }

    fn decompressed(path: PathBuf, n_bytes: u64, bytes: Box<dyn Read>) -> Self {
        let name = path.file_name().unwrap_or_default().display();
        let progress = Progress::start(format_args!("reading {name}"), ProgressUnit::Bytes, n_bytes);
        let bytes = Box::new(CountedBytes { bytes, progress });
        match is_gz(&path) {
            true => Self::new(path, Box::new(MultiGzDecoder::new(BufReader::new(bytes)))),
            false => Self::new(path, bytes),
        }
    }

    /// Creates a table from a reader. `path` is used in error messages.
    pub fn new(path: PathBuf, bytes: Box<dyn Read>) -> Self {
        // Each line, including the last one, ends with a line feed, so the parser's line count is exact. A carriage
        // return before it is trimmed as white space of the last field.
        let lines = ShortLines { bytes: Box::new(bytes.chain(&b"\n"[..])), n_since_break: 0 };
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .quoting(false)
            .flexible(true)
            .terminator(csv::Terminator::Any(b'\n'))
            .buffer_capacity(1 << 16)
            .from_reader(Box::new(lines) as Box<dyn Read>);
        Self { path, reader, record: csv::ByteRecord::new(), n_columns: None }
    }

    /// Reads the next line; returns `None` at the end of the file.
    ///
    /// # Errors
    /// Returns [`Error::BadLine`] if the number of fields differs from that of the first line, and [`Error::Io`] if the
    /// file cannot be read or decompressed or a line is longer than [`MAX_LINE_BYTES`].
    pub fn next_row(&mut self) -> Result<Option<TextRow<'_>>> {
        loop {
            match self.reader.read_byte_record(&mut self.record) {
                Ok(false) => return Ok(None),
                Ok(true) if self.record.len() == 1 && &self.record[0] == b"\r" => {}
                Ok(true) => break,
                Err(error) => {
                    let source = match error.into_kind() {
                        csv::ErrorKind::Io(source) => source,
                        other => io::Error::other(format!("{other:?}")),
                    };
                    return Err(Error::Io { path: self.path.clone(), source });
                }
            }
        }
        // The position of the record cannot be used, because the parser sets it to the first empty line before the
        // record.
        let line = self.reader.position().line() - 1;
        let n_columns = *self.n_columns.get_or_insert(self.record.len());
        if self.record.len() != n_columns {
            return Err(Error::BadLine {
                path: self.path.clone(),
                line,
                expected: format!("{n_columns} fields, as in the first line"),
                found: format!("{} fields", self.record.len()),
            });
        }
        Ok(Some(TextRow { path: &self.path, line, record: &self.record }))
    }

    /// Returns the path of the table, which error messages contain.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The bytes of a file, which are counted.
struct CountedBytes {
    bytes: Box<dyn Read>,
    progress: Progress,
}

impl Read for CountedBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.bytes.read(buffer)?;
        self.progress.advance(n_bytes as u64);
        Ok(n_bytes)
    }
}

/// The memory of a field in bytes: its end in the parser's list, which grows by doubling.
const FIELD_BYTES: usize = 16;

/// A reader that fails at the first line of more than [`MAX_LINE_BYTES`] bytes, to which each field adds its memory.
struct ShortLines {
    bytes: Box<dyn Read>,
    n_since_break: usize,
}

impl Read for ShortLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.bytes.read(buffer)?;
        let (before, rest) = match buffer[..n_bytes].iter().rposition(|&byte| byte == b'\n') {
            Some(position) => (0, &buffer[position..n_bytes]),
            None => (self.n_since_break, &buffer[..n_bytes]),
        };
        let n_fields = rest.iter().filter(|byte| **byte == b',').count();
        self.n_since_break = before + rest.len() + FIELD_BYTES * n_fields;
        if self.n_since_break > MAX_LINE_BYTES {
            let said = format!(
                "a line of more than {MAX_LINE_BYTES} bytes, of which a field takes {FIELD_BYTES}: the file is not a text table"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        Ok(n_bytes)
    }
}

/// One line of a table.
#[derive(Debug, Clone, Copy)]
pub struct TextRow<'a> {
    path: &'a Path,
    line: u64,
    record: &'a csv::ByteRecord,
}

impl TextRow<'_> {
    /// Returns the number of fields.
    pub fn n_fields(&self) -> usize {
        self.record.len()
    }

    /// Parses the field at index `field`, from 0. `expected` describes the expected value, for the error.
    ///
    /// # Errors
    /// Returns [`Error::BadLine`] if the line has no such field or it cannot be parsed.
    pub fn parse<T: FromStr>(&self, field: usize, expected: &str) -> Result<T> {
        parsed(self.field(field)).ok_or_else(|| self.bad(field, expected))
    }

    /// Parses a field as [`TextRow::parse`] does, without the double quotes around it if there are some. A comma within
    /// quotes separates fields like any other.
    ///
    /// # Errors
    /// Returns the errors of [`TextRow::parse`].
    pub fn parse_unquoted<T: FromStr>(&self, field: usize, expected: &str) -> Result<T> {
        let unquoted = match self.field(field) {
            Some([b'"', inner @ .., b'"']) => Some(inner.trim_ascii()),
            bare => bare,
        };
        parsed(unquoted).ok_or_else(|| self.bad(field, expected))
    }

    /// Creates an error for the field at index `field`. `expected` describes the expected value.
    pub fn bad(&self, field: usize, expected: &str) -> Error {
        const LONGEST: usize = 60;
        let found = match self.field(field) {
            Some(bytes) => String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned(),
            None => format!("{} fields", self.n_fields()),
        };
        let path = self.path.to_owned();
        let expected = expected.to_owned();
        Error::BadLine { path, line: self.line, expected, found }
    }

    /// Returns a field without surrounding white space. The reader's own trimming would allocate for each line.
    fn field(&self, field: usize) -> Option<&[u8]> {
        self.record.get(field).map(<[u8]>::trim_ascii)
    }
}

fn parsed<T: FromStr>(bytes: Option<&[u8]>) -> Option<T> {
    std::str::from_utf8(bytes?).ok()?.parse().ok()
}

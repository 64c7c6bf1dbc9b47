//! Text files, plain or compressed by gzip or zstd, whose records are limited in length.

use std::cell::Cell as Shared;
use std::ffi::OsStr;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

use super::limit::ReadLimit;
use super::sizes::TableSizes;
use super::source::SourceFiles;
use super::zstd::{self, ZstdReader};
use crate::error::io_error;
use crate::{Error, Result, TableFileError};
use flate2::read::MultiGzDecoder;
use kiln_store::SourceReader;

/// The size of a buffer in bytes.
pub(super) const BUFFER_BYTES: usize = 1 << 16;

/// The numbers of bytes that were read from a file, after decompression unless stated otherwise.
#[derive(Debug)]
pub(super) struct Progress {
    /// The bytes of the file, before decompression.
    n_file_bytes: Rc<Shared<u64>>,
    /// The bytes since the last record, with the memory of its fields.
    n_since_record: Shared<u64>,
    n_bytes: Shared<u64>,
    /// The separators of fields, which differ or are the same.
    separators: Shared<[u8; 3]>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            n_file_bytes: Rc::default(),
            n_since_record: Shared::new(0),
            n_bytes: Shared::new(0),
            separators: Shared::new([b','; 3]),
        }
    }
}

impl Progress {
    /// Marks the end of a record.
    pub(super) fn end_record(&self) {
        self.n_since_record.set(0);
    }

    /// Sets the separators of the fields, which are counted: one three times, or those of which one is still to be found.
    pub(super) fn set_separators(&self, separators: [u8; 3]) {
        self.separators.set(separators);
    }

    /// Leaves out bytes that are no part of the table.
    pub(super) fn leave_out(&self, n_bytes: usize) {
        self.n_bytes.set(self.n_bytes.get() - n_bytes as u64);
    }

    /// Returns the number of bytes of the file that were read, before decompression.
    pub(super) fn n_file_bytes(&self) -> u64 {
        self.n_file_bytes.get()
    }

    /// Returns the number of bytes of the table that were read.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes.get()
    }
}

/// A file whose bytes are counted.
struct CountedFile {
    file: SourceReader,
    n_bytes: Rc<Shared<u64>>,
}

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_bytes = self.file.read(buffer)?;
        self.n_bytes.set(self.n_bytes.get() + n_bytes as u64);
        Ok(n_bytes)
    }
}

/// A reader that fails with [`LongRecord`] after a number of bytes without a record.
pub(super) struct RecordReader {
    bytes: Box<dyn Read>,
    progress: Rc<Progress>,
    most_bytes: u64,
    field_bytes: u64,
}

/// A record is too long.
#[derive(Debug, thiserror::Error)]
#[error("a record is too long")]
struct LongRecord;

/// Converts an error of a [`RecordReader`] in a row of a file, or in the header.
pub(super) fn row_error(path: &Path, row: Option<u64>, limit: ReadLimit, error: io::Error) -> Error {
    match error.get_ref().is_some_and(|error| error.is::<LongRecord>()) {
        true => limit.long_row(path, row),
        false => io_error(path)(error),
    }
}

/// Returns the first bytes of a text file after decompression, and true if these are all.
pub(crate) fn first_bytes(path: &Path, sources: &SourceFiles) -> Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let (reader, _) = open(path, sources, 0)?;
    let read = reader.take(BUFFER_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|error| row_error(path, None, sources.limit(), error))?;
    let is_whole = bytes.len() < BUFFER_BYTES;
    Ok((bytes, is_whole))
}

/// The first bytes of content that is no text in UTF-8: the content, and the expected one.
const OTHER_CONTENT: [(&[u8], &str, &str); 8] = [
    (b"\xff\xfe", "text in UTF-16", UTF_8),
    (b"\xfe\xff", "text in UTF-16", UTF_8),
    (GZIP, "compressed by gzip", "text, or a name that ends in .gz"),
    (b"PAR1", "a Parquet file", "text, or a name that ends in .parquet"),
    (b"PK\x03\x04", "a ZIP archive or a spreadsheet", "text: save it as CSV"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "text, or a name that ends in .zst"),
    (b"BZh", "compressed by bzip2", "text: decompress it, or compress it by gzip or zstd"),
    (b"\xfd7zXZ", "compressed by xz", "text: decompress it, or compress it by gzip or zstd"),
];
const UTF_8: &str = "UTF-8: convert it, for example by `iconv -f UTF-16 -t UTF-8`";
const GZIP: &[u8] = b"\x1f\x8b";

/// Opens a file, which is decompressed if its name ends in `.gz` or `.zst`. The caller marks the end of each record. A separator, which is a comma by default, counts as
/// `field_bytes` more, the memory of a field. A byte order mark of UTF-8 is skipped.
pub(super) fn open(
    path: &Path,
    sources: &SourceFiles,
    field_bytes: u64,
) -> Result<(RecordReader, Rc<Progress>)> {
    let content = |found, expected| {
        Error::TableFile(TableFileError::Content { path: path.to_owned(), found, expected })
    };
    let progress = Rc::<Progress>::default();
    let source = sources.open(path)?;
    let n_window = match path.extension().and_then(OsStr::to_str) {
        Some("zst") => window_bytes(path, sources, &source)?,
        _ => 0,
    };
    let file = CountedFile { file: source, n_bytes: Rc::clone(&progress.n_file_bytes) };
    let bytes: Box<dyn Read> = match path.extension().and_then(OsStr::to_str) {
        Some("gz") => {
            let (start, bytes) = peek(path, file)?;
            if !start.starts_with(GZIP) {
                let expected = "gzip: compress it, or remove .gz from its name";
                return Err(content("not compressed by gzip", expected));
            }
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, bytes)))
        }
        Some("zst") => {
            let (start, bytes) = peek(path, file)?;
            if !zstd::is_start(&start) {
                let expected = "zstd: compress it, or remove .zst from its name";
                return Err(content("not compressed by zstd", expected));
            }
            Box::new(ZstdReader::new(BufReader::with_capacity(BUFFER_BYTES, bytes), n_window))
        }
        _ => Box::new(file),
    };
    let (start, bytes) = peek(path, bytes)?;
    let other = OTHER_CONTENT.iter().find(|(magic, ..)| start.starts_with(magic));
    if let Some((_, found, expected)) = other {
        return Err(content(found, expected));
    }
    let most_bytes = sources.limit().record_bytes();
    Ok((RecordReader { bytes, progress: progress.clone(), most_bytes, field_bytes }, progress))
}

/// Returns the largest window of a file in zstd.
///
/// # Errors
/// Returns [`Error::Memory`] if its decoder takes more than the memory limit.
fn window_bytes(path: &Path, sources: &SourceFiles, file: &SourceReader) -> Result<u64> {
    if sources.limit() == ReadLimit::NONE {
        return Ok(zstd::MAX_WINDOW);
    }
    let known = sources.sizes.get(path, &[]).map(|sizes| sizes.window_bytes);
    let n_window = known.unwrap_or_else(|| zstd::largest_window(file));
    sources.sizes.insert(path, &[], TableSizes { window_bytes: n_window, ..TableSizes::default() });
    match sources.limit().large_window(path, n_window, zstd::decoder_bytes(n_window)) {
        Some(error) => Err(error),
        None => Ok(n_window.min(zstd::MAX_WINDOW)),
    }
}

/// Returns the memory of the decoder of a text file in bytes.
pub(super) fn decoder_bytes(path: &Path, sources: &SourceFiles) -> Result<u64> {
    match path.extension().is_some_and(|extension| extension == "zst") {
        true => Ok(zstd::decoder_bytes(window_bytes(path, sources, &sources.open(path)?)?)),
        false => Ok(0),
    }
}

/// Returns the first bytes of a file, and a reader of it all without a byte order mark of UTF-8.
fn peek(path: &Path, mut bytes: impl Read + 'static) -> Result<(Vec<u8>, Box<dyn Read>)> {
    let mut start = Vec::new();
    bytes.by_ref().take(8).read_to_end(&mut start).map_err(io_error(path))?;
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&start).to_vec();
    Ok((start, Box::new(Cursor::new(text).chain(bytes))))
}

impl Read for RecordReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Progress { n_since_record, n_bytes: n_all, separators, .. } = &*self.progress;
        if self.most_bytes < n_since_record.get() {
            return Err(io::Error::other(LongRecord));
        }
        let n_bytes = self.bytes.read(buffer)?;
        let separators = separators.get();
        let n_fields = buffer[..n_bytes].iter().filter(|byte| separators.contains(byte)).count();
        let n_more = n_bytes as u64 + self.field_bytes * n_fields as u64;
        n_since_record.set(n_since_record.get() + n_more);
        n_all.set(n_all.get() + n_bytes as u64);
        Ok(n_bytes)
    }
}

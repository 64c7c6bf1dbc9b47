//! Text files, plain or gzip-compressed, whose records are limited in length.

use std::cell::Cell as Shared;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use kiln_graph::open_file;

use crate::Result;
use crate::error::io_error;

/// The maximum length of a record in bytes. It protects from gzip bombs and from quotes that are never closed.
pub(super) const MAX_RECORD_BYTES: usize = 1 << 24;

/// The size of a buffer in bytes.
pub(super) const BUFFER_BYTES: usize = 1 << 16;

/// The number of bytes that were read since the last record.
pub(super) type SinceRecord = Rc<Shared<usize>>;

/// A reader that fails after [`MAX_RECORD_BYTES`] without a record.
pub(super) struct RecordReader {
    bytes: Box<dyn Read>,
    n_since: SinceRecord,
}

/// Opens a file, which is decompressed if its name ends in `.gz`. The caller sets the counter to 0 after each record.
pub(super) fn open(path: &Path) -> Result<(RecordReader, SinceRecord)> {
    let file = open_file(path).map_err(io_error(path))?;
    let bytes: Box<dyn Read> = match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, file))),
        false => Box::new(file),
    };
    let n_since = SinceRecord::default();
    Ok((RecordReader { bytes, n_since: n_since.clone() }, n_since))
}

impl Read for RecordReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if MAX_RECORD_BYTES < self.n_since.get() {
            let said = format!(
                "a row of more than {MAX_RECORD_BYTES} bytes: the file is not a table, or a quote is open"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        let n_bytes = self.bytes.read(buffer)?;
        self.n_since.set(self.n_since.get() + n_bytes);
        Ok(n_bytes)
    }
}

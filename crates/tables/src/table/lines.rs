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

/// The numbers of bytes that were read from a file, after decompression.
#[derive(Debug, Default)]
pub(super) struct Progress {
    n_since_record: Shared<usize>,
    n_bytes: Shared<u64>,
}

impl Progress {
    /// Marks the end of a record.
    pub(super) fn end_record(&self) {
        self.n_since_record.set(0);
    }

    /// Returns the number of bytes of the file that were read.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes.get()
    }
}

/// A reader that fails after [`MAX_RECORD_BYTES`] without a record.
pub(super) struct RecordReader {
    bytes: Box<dyn Read>,
    progress: Rc<Progress>,
}

/// Opens a file, which is decompressed if its name ends in `.gz`. The caller marks the end of each record.
pub(super) fn open(path: &Path) -> Result<(RecordReader, Rc<Progress>)> {
    let file = open_file(path).map_err(io_error(path))?;
    let bytes: Box<dyn Read> = match path.extension().is_some_and(|extension| extension == "gz") {
        true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, file))),
        false => Box::new(file),
    };
    let progress = Rc::<Progress>::default();
    Ok((RecordReader { bytes, progress: progress.clone() }, progress))
}

impl Read for RecordReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Progress { n_since_record, n_bytes: n_all } = &*self.progress;
        if MAX_RECORD_BYTES < n_since_record.get() {
            let said = format!(
                "a row of more than {MAX_RECORD_BYTES} bytes: the file is not a table, or a quote is open"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, said));
        }
        let n_bytes = self.bytes.read(buffer)?;
        n_since_record.set(n_since_record.get() + n_bytes);
        n_all.set(n_all.get() + n_bytes as u64);
        Ok(n_bytes)
    }
}

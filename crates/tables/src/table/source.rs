//! The files of the tables of a spec, which each reading of an import has as they were when it began.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use kiln_store::{SourceFiles as OpenFiles, SourceReader};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::limit::ReadLimit;
use super::sizes::KnownSizes;
use super::walk::plain;
use crate::Result;

/// The files of the tables of a spec, which are relative to its folder.
#[derive(Debug, Clone)]
pub(crate) struct SourceFiles {
    folder: PathBuf,
    files: OpenFiles,
    limit: ReadLimit,
    /// The sizes of columns of Parquet files, which are found once.
    pub(super) sizes: KnownSizes,
}

impl SourceFiles {
    /// Creates an empty list for the files of a spec in this folder, to be read within a memory limit.
    pub(crate) fn new(folder: impl Into<PathBuf>, limit: ReadLimit) -> Self {
        let folder = plain(&folder.into());
        Self { folder, files: OpenFiles::default(), limit, sizes: KnownSizes::default() }
    }

    /// Returns the limit of the memory for reading.
    pub(crate) fn limit(&self) -> ReadLimit {
        self.limit
    }

    /// Returns the folder of the spec.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a reader of a file from its start.
    pub(super) fn open(&self, path: &Path) -> Result<SourceReader> {
        Ok(self.files.open(path)?)
    }

    /// Checks that no file has changed since it was opened first.
    pub(crate) fn check(&self) -> Result<()> {
        Ok(self.files.check()?)
    }
}

/// A Parquet file.
#[derive(Debug)]
pub(super) struct ParquetSource(pub(super) SourceReader);

impl Length for ParquetSource {
    fn len(&self) -> u64 {
        self.0.n_bytes()
    }
}

impl ChunkReader for ParquetSource {
    type T = BufReader<SourceReader>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(BufReader::new(self.0.from(start)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // A damaged length must not take memory that the file cannot fill.
        let is_within = start.checked_add(length as u64).is_some_and(|end| end <= self.0.n_bytes());
        if !is_within {
            return Err(ParquetError::EOF(format!("{length} bytes from byte {start} exceed the file")));
        }
        let mut bytes = Vec::with_capacity(length);
        self.0.from(start).take(length as u64).read_to_end(&mut bytes)?;
        match bytes.len() == length {
            true => Ok(bytes.into()),
            false => Err(ParquetError::EOF(format!("the file ends within {length} bytes from byte {start}"))),
        }
    }
}

//! Temporary files beside the output. Dropping one removes it.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::io_error;

/// The size of a buffer in bytes.
pub(crate) const SPILL_BUFFER: usize = 1 << 16;

/// The length that stands for a missing key.
const MISSING: u32 = u32::MAX;
/// The length that stands for a key of the wrong type, or a row that is dropped.
const WRONG: u32 = u32::MAX - 1;

/// A finished temporary file.
#[derive(Debug)]
pub(crate) struct SpillFile {
    path: PathBuf,
}

/// The writer of a temporary file.
#[derive(Debug)]
pub(crate) struct SpillWriter {
    file: BufWriter<File>,
    // After the writer, so that the file is closed before it is removed.
    spill: SpillFile,
}

/// The reader of a temporary file.
#[derive(Debug)]
pub(crate) struct SpillReader {
    path: PathBuf,
    file: BufReader<File>,
    bytes: Vec<u8>,
}

/// A record of a file of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyRecord<'a> {
    Key(&'a [u8]),
    Missing,
    Wrong,
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        // An error cannot be reported from `drop`; a file that remains is removed with the folder.
        let _ = fs::remove_file(&self.path);
    }
}

impl SpillFile {
    pub(crate) fn create(folder: &Path, name: &str, buffer_bytes: usize) -> Result<SpillWriter> {
        let path = folder.join(name);
        let file = File::create_new(&path).map_err(io_error(&path))?;
        Ok(SpillWriter { file: BufWriter::with_capacity(buffer_bytes, file), spill: Self { path } })
    }

    pub(crate) fn read(&self, buffer_bytes: usize) -> Result<SpillReader> {
        let file = File::open(&self.path).map_err(io_error(&self.path))?;
        let file = BufReader::with_capacity(buffer_bytes, file);
        Ok(SpillReader { path: self.path.clone(), file, bytes: Vec::new() })
    }

    /// Returns a reader that begins after a number of bytes.
    pub(crate) fn read_from(&self, offset: u64, buffer_bytes: usize) -> Result<SpillReader> {
        let mut reader = self.read(buffer_bytes)?;
        std::io::Seek::seek(&mut reader.file, std::io::SeekFrom::Start(offset))
            .map_err(io_error(&self.path))?;
        Ok(reader)
    }
}

impl SpillWriter {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(io_error(&self.spill.path))
    }

    pub(crate) fn write_u32(&mut self, value: u32) -> Result<()> {
        self.write(&value.to_le_bytes())
    }

    pub(crate) fn write_f32s(&mut self, values: &[f32]) -> Result<()> {
        values.iter().try_for_each(|value| self.write(&value.to_le_bytes()))
    }

    /// Writes a key. Its length must be below 2^32 - 2, which the limit of a record ensures.
    pub(crate) fn write_key(&mut self, record: KeyRecord<'_>) -> Result<()> {
        match record {
            KeyRecord::Key(key) => {
                self.write_u32(key.len() as u32)?;
                self.write(key)
            }
            KeyRecord::Missing => self.write_u32(MISSING),
            KeyRecord::Wrong => self.write_u32(WRONG),
        }
    }

    pub(crate) fn finish(self) -> Result<SpillFile> {
        let Self { mut file, spill } = self;
        file.flush().map_err(io_error(&spill.path))?;
        Ok(spill)
    }
}

impl SpillReader {
    pub(crate) fn read_u32(&mut self) -> Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact(&mut bytes).map_err(io_error(&self.path))?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn read_u8(&mut self) -> Result<u8> {
        let mut bytes = [0];
        self.file.read_exact(&mut bytes).map_err(io_error(&self.path))?;
        Ok(bytes[0])
    }

    pub(crate) fn read_exact(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact(bytes).map_err(io_error(&self.path))
    }

    pub(crate) fn read_key(&mut self) -> Result<KeyRecord<'_>> {
        let n_bytes = match self.read_u32()? {
            MISSING => return Ok(KeyRecord::Missing),
            WRONG => return Ok(KeyRecord::Wrong),
            n_bytes => n_bytes as usize,
        };
        self.bytes.resize(n_bytes, 0);
        self.file.read_exact(&mut self.bytes).map_err(io_error(&self.path))?;
        Ok(KeyRecord::Key(&self.bytes))
    }
}

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use kiln_feature::{DenseFeatures, FeatureArray};
use kiln_graph::MappedFile;

use crate::error::{Error, ExactError, Result, RunError};

/// The size of the write buffer, in bytes.
const WRITE_BYTES: usize = 1 << 20;

/// The output rows of a layer while they are computed, in memory or in a file.
#[derive(Debug)]
pub(crate) enum Activations {
    Memory(Vec<f32>),
    File(SpillFile),
}

impl Activations {
    /// Creates empty activations in memory, with capacity for all rows.
    pub(crate) fn in_memory(n_rows: usize, dim: usize) -> Result<Self> {
        let too_large = Error::Exact(ExactError::TooLarge { n_rows, dim });
        let mut values = Vec::new();
        match n_rows.checked_mul(dim).map(|n_values| values.try_reserve_exact(n_values)) {
            Some(Ok(())) => Ok(Self::Memory(values)),
            _ => Err(too_large),
        }
    }

    /// Creates empty activations in a file, which is unlinked immediately.
    pub(crate) fn in_file(folder: &Path) -> Result<Self> {
        Ok(Self::File(SpillFile::create(folder)?))
    }

    pub(crate) fn append(&mut self, values: &[f32]) -> Result<()> {
        match self {
            Self::Memory(all) => all.extend_from_slice(values),
            Self::File(file) => file.write(bytemuck::cast_slice(values))?,
        }
        Ok(())
    }

    /// Returns the rows, `dim` values each.
    pub(crate) fn finish(self, dim: usize) -> Result<DenseFeatures> {
        match self {
            Self::Memory(values) => Ok(DenseFeatures::from_f32(values, dim)?),
            Self::File(file) => {
                let mapping = file.into_mapping()?;
                let n_bytes = mapping.bytes().len();
                Ok(DenseFeatures::new(FeatureArray::F32(mapping.slice(0..n_bytes)?), dim)?)
            }
        }
    }
}

/// A file that is being written. It is already unlinked, so its disk space is freed however the process ends.
#[derive(Debug)]
pub(crate) struct SpillFile {
    writer: BufWriter<File>,
    /// The path that the file had before it was unlinked, for error messages.
    path: PathBuf,
}

impl SpillFile {
    /// Creates a file with the first free name, so that processes and threads can share the folder, and unlinks it
    /// immediately.
    fn create(folder: &Path) -> Result<Self> {
        let mut number = 0_u64;
        loop {
            let path = folder.join(format!("kiln-activations-{}-{number}.f32", std::process::id()));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    fs::remove_file(&path)
                        .map_err(|source| Error::Run(RunError::Io { path: path.clone(), source }))?;
                    return Ok(Self::new(file, path));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(Error::Run(RunError::Io { path, source })),
            }
        }
    }

    fn new(file: File, path: PathBuf) -> Self {
        Self { writer: BufWriter::with_capacity(WRITE_BYTES, file), path }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer
            .write_all(bytes)
            .map_err(|source| Error::Run(RunError::Io { path: self.path.clone(), source }))
    }

    /// Maps the file. Its disk space is freed when the mapping is dropped.
    fn into_mapping(self) -> Result<MappedFile> {
        let Self { writer, path } = self;
        let file = writer.into_inner();
        let file = file
            .map_err(|error| Error::Run(RunError::Io { path: path.clone(), source: error.into_error() }))?;
        Ok(MappedFile::of_file(&file, path)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_share_a_folder_and_leave_no_entry_in_it() {
        let folder = tempfile::tempdir().expect("a temporary folder should be created");
        let count = || fs::read_dir(folder.path()).expect("the folder should be readable").count();
        let mut first = SpillFile::create(folder.path()).expect("the file should be created");
        let mut second = Activations::in_file(folder.path()).expect("the file should be created");
        assert_eq!(count(), 0, "both files should be unlinked");
        first.write(&[9; 16]).expect("the bytes should be written");
        second.append(&[1.0, 2.0, 3.0]).expect("the values should be written");
        second.append(&[4.0]).expect("the value should be written");
        let dense = second.finish(2).expect("the values should form two rows");
        let FeatureArray::F32(rows) = dense.rows() else { panic!("{dense:?}") };
        assert_eq!((&rows[..], rows.owned_bytes()), (&[1.0, 2.0, 3.0, 4.0][..], 0));
    }

    /// `/dev/full` behaves like a file on a full disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_that_contains_the_path() {
        let folder = tempfile::tempdir().expect("a temporary folder should be created");
        let path = folder.path().join("rows");
        let full = || File::options().write(true).open("/dev/full").expect("/dev/full should open");
        let error = SpillFile::new(full(), path.clone())
            .write(&vec![0; 2 * WRITE_BYTES])
            .expect_err("writing to a full disk should fail");
        assert!(error.to_string().contains("rows: No space left"), "{error}");
        // Data that fits in the buffer fails only when the buffer is flushed.
        let mut small = SpillFile::new(full(), path);
        small.write(&[0; 4]).expect("four bytes should fit in the buffer");
        let error = small.into_mapping().expect_err("writing to a full disk should fail");
        assert!(error.to_string().contains("rows: No space left"), "{error}");
    }
}

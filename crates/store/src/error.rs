use std::path::{Path, PathBuf};

use kiln_graph::did_you_mean;

use crate::byte_size::similar_size;
use crate::npy;
use crate::similar_path::io_reason;

/// An error from reading, writing or validating a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written or decompressed.
    #[error("{path}: {}", io_reason(path, source))]
    Io {
        /// The path of the file, or the name of a file that is embedded in the program.
        path: PathBuf,
        /// The operating system's or the decompressor's error.
        source: std::io::Error,
    },
    /// A file was written while it was read several times.
    #[error(
        "{path}: the file has changed since it was opened: repeat the command when nothing writes to the file"
    )]
    Changed {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file is not an `.npy` array, is truncated, or has an unsupported element type or order.
    #[error("{path}: {source}")]
    Npy {
        /// The path of the file, or the name of a file that is embedded in the program.
        path: PathBuf,
        /// The error in the file's contents.
        source: npy::Error,
    },
    /// A manifest is not JSON with the expected keys.
    #[error("{path}: {source}")]
    Manifest {
        /// The path of the file, or the name of a file that is embedded in the program.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// A data set was written in another version of its format.
    #[error("{path}: the set has format {got}, expected {expected}: regenerate it with this version of kiln")]
    Format {
        /// The path of the manifest.
        path: PathBuf,
        /// The format version that this program reads.
        expected: u32,
        /// The format version in the manifest.
        got: u32,
    },
    /// An entry of a metadata file is invalid.
    #[error("{path}: {key} is {found}, expected {expected}")]
    Metadata {
        /// The path of the file.
        path: PathBuf,
        /// The entry, as a path of keys such as `tasks[0].name`.
        key: String,
        /// The allowed values.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// A folder or archive lacks a file.
    #[error("{folder} has no {expected}")]
    Missing {
        /// The path of the folder or archive.
        folder: PathBuf,
        /// The possible names of the file, and its purpose.
        expected: String,
    },
    /// A line of a text file is invalid.
    #[error("{path}, line {line}: {found:?}, expected {expected} (correct the line or regenerate the file)")]
    BadLine {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// The expected contents.
        expected: String,
        /// The contents of the line or of the invalid field, shortened.
        found: String,
    },
    /// A value of an array is invalid.
    #[error("{path}: {what} {position} is {found}, expected {expected}")]
    BadValue {
        /// The path of the file.
        path: PathBuf,
        /// The noun for the value, such as `entry` or `the source of edge`.
        what: &'static str,
        /// The position of the value, from 0.
        position: u64,
        /// The allowed values.
        expected: String,
        /// The value in the file.
        found: String,
    },
    /// An array has an unsupported shape.
    #[error("{path}: the shape is {found:?}, expected {expected}")]
    BadShape {
        /// The path of the file.
        path: PathBuf,
        /// The supported shapes.
        expected: &'static str,
        /// The shape of the array.
        found: Vec<usize>,
    },
    /// A count in one file does not match the count that the other files of the set imply.
    #[error(
        "{file}: {what} is {got}, expected {expected}: correct this file or the files it must match",
        file = file.display()
    )]
    Inconsistent {
        /// The path of the file, or the name of a data set in memory.
        file: PathBuf,
        /// The noun phrase for the count, such as `the number of labels`.
        what: &'static str,
        /// The count that the other files imply.
        expected: u64,
        /// The count in the file.
        got: u64,
    },
    /// A file's hash differs from the one in the manifest.
    #[error(
        "{path}: its SHA-256 is {got}, the manifest has {expected}: the file was changed or damaged: restore it or regenerate the folder"
    )]
    HashMismatch {
        /// The path of the file.
        path: PathBuf,
        /// The hash in the manifest.
        expected: String,
        /// The hash of the file.
        got: String,
    },
    /// An output folder is not empty, or the path is a file.
    #[error("{path} exists and is not an empty folder: choose another path, existing files are kept")]
    NotEmpty {
        /// The path of the output folder.
        path: PathBuf,
    },
    /// A text is not a number of bytes.
    #[error(
        "invalid size {got:?}: expected a number of bytes, such as 1000000, 512MiB or 2GiB{}",
        did_you_mean(similar_size(got).as_deref())
    )]
    BadSize {
        /// The text that was parsed.
        got: String,
    },
    /// The machine does not have enough memory.
    #[error("this machine does not have enough memory for {what}")]
    OutOfMemory {
        /// The data that does not fit in memory.
        what: String,
    },
    /// A file could not be mapped.
    #[error(transparent)]
    Mapping(#[from] kiln_graph::Error),
}

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns a function that converts an operating system's error about `path` to [`Error::Io`].
pub fn io_error(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    |source| Error::Io { path: path.to_owned(), source }
}

/// Checks that a count in one file equals the count that other files imply.
///
/// # Errors
/// Returns [`Error::Inconsistent`] if they differ.
pub fn check_count(file: impl AsRef<Path>, what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected != got {
        return Err(Error::Inconsistent {
            file: file.as_ref().to_owned(),
            what,
            expected: expected as u64,
            got: got as u64,
        });
    }
    Ok(())
}

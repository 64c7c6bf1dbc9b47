use std::path::{Path, PathBuf};

use crate::npy;

/// Why a file could not be read or written, or does not contain what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written or decompressed.
    #[error("{path}: {source}")]
    Io {
        /// The file; for one in the program itself, its name.
        path: PathBuf,
        /// What is wrong with it.
        source: std::io::Error,
    },
    /// A file is no array of an element type that can be used there.
    #[error("{path}: {source}")]
    Npy {
        /// The file; for one in the program itself, its name.
        path: PathBuf,
        /// What is wrong with it.
        source: npy::Error,
    },
    /// A manifest is not what a reader of this version expects.
    #[error("{path}: {source}")]
    Manifest {
        /// The file; for one in the program itself, its name.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A set was made in another version of its layout.
    #[error("{path}: the set has format {got}, expected {expected}: make it again with this version")]
    Format {
        /// The manifest.
        path: PathBuf,
        /// The format that this version reads.
        expected: u32,
        /// The format that the manifest states.
        got: u32,
    },
    /// An entry of a metadata file cannot be used.
    #[error("{path}: {key} is {found}, expected {expected}")]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The entry, as a path of keys.
        key: String,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A folder lacks a file.
    #[error("{folder} has no {expected}")]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// The names that the file may have, and what it is for.
        expected: String,
    },
    /// A line of a text file is not what it should be.
    #[error("{path}, line {line}: {found:?}, expected {expected} (correct the line or make the file again)")]
    BadLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What it should hold.
        expected: String,
        /// What it holds, shortened.
        found: String,
    },
    /// A value of an array is not one that can be used.
    #[error("{path}: {what} {position} is {found}, expected {expected}")]
    BadValue {
        /// The file.
        path: PathBuf,
        /// What the values are: `entry`, `edge`, `node`, `row`.
        what: &'static str,
        /// Which of them, from 0.
        position: u64,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// An array or file does not fit the others.
    #[error(
        "{file}: {what} is {got}, expected {expected}: correct the one that is wrong",
        file = file.display()
    )]
    Inconsistent {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        what: &'static str,
        /// What the others ask for.
        expected: u64,
        /// What it is.
        got: u64,
    },
    /// A file's contents are not those that its manifest was written for.
    #[error(
        "{path}: its SHA-256 is {got}, the manifest says {expected}: the file was changed or damaged, make the set again"
    )]
    HashMismatch {
        /// The file.
        path: PathBuf,
        /// The hash in the manifest.
        expected: String,
        /// The hash of the file.
        got: String,
    },
    /// A folder to write to contains something already.
    #[error("{path} exists and is not an empty folder: name a new one, so that nothing is overwritten")]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// A text is no number of bytes.
    #[error("a size is {got:?}, expected a number of bytes, as in 1000000, 512MiB or 2GiB")]
    BadSize {
        /// The text.
        got: String,
    },
    /// The machine has not enough memory.
    #[error("{what} do not fit the memory of this machine")]
    OutOfMemory {
        /// What needs it.
        what: String,
    },
    /// A file could not be mapped.
    #[error("graph: {0}")]
    Mapping(#[from] kiln_graph::Error),
}

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Returns what makes an error of one that the system reports for a file.
pub fn io_error(path: &Path) -> impl Fn(std::io::Error) -> Error + '_ {
    |source| Error::Io { path: path.to_owned(), source }
}

/// Checks a number that one file states against another's.
///
/// # Errors
/// [`Error::Inconsistent`].
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

use std::path::{Path, PathBuf};

use kiln_feature::RowType;

use crate::npy;

/// Why a data set could not be made, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of its range.
    #[error("{what} is {got}, expected {expected}")]
    BadParameter {
        /// Which parameter.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A file could not be read, written or decompressed.
    #[error("{path}: {source}")]
    Io {
        /// The file; for the built-in set, its name.
        path: PathBuf,
        /// What is wrong with it.
        source: std::io::Error,
    },
    /// A file is no array of an element type that can be used there.
    #[error("{path}: {source}")]
    Npy {
        /// The file; for the built-in set, its name.
        path: PathBuf,
        /// What is wrong with it.
        source: npy::Error,
    },
    /// A manifest is not what a reader of this version expects.
    #[error("{path}: {source}")]
    Manifest {
        /// The file; for the built-in set, its name.
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
    /// What a metadata file states cannot be used.
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
    /// A path is of no kind that is known.
    #[error("{path} is no data set that is known: {looked_for}")]
    Unrecognised {
        /// The path.
        path: PathBuf,
        /// What was looked for.
        looked_for: String,
    },
    /// A path is a data set, but for another task.
    #[error("{path} is {kind}, expected {expected}")]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: String,
        /// What was needed.
        expected: &'static str,
    },
    /// A data set or file is of a form that is not read.
    #[error("{path}: {what} is not supported: {instead}")]
    Unsupported {
        /// The file or folder.
        path: PathBuf,
        /// The form.
        what: String,
        /// What to do.
        instead: String,
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
    /// A folder to write to holds something already.
    #[error("{path} exists and is not an empty folder: name a new one, so that nothing is overwritten")]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The memory that was allowed is not enough.
    #[error("{what} needs {needed_bytes} bytes of memory, {budget_bytes} are allowed: raise the limit")]
    Memory {
        /// What needs it.
        what: String,
        /// The least that is needed.
        needed_bytes: u64,
        /// What was allowed.
        budget_bytes: u64,
    },
    /// A compressed edge list has more edges than may be read into memory.
    #[error(
        "{path}: more than {n_edges} edges, which take more than {budget_bytes} bytes, the limit of a compressed edge list that is opened: convert it once (cargo xtask data convert), which sorts on the disk, or raise the limit (open_within)"
    )]
    EdgeListTooLarge {
        /// The file.
        path: PathBuf,
        /// The edges that the limit has room for.
        n_edges: u64,
        /// What was allowed.
        budget_bytes: u64,
    },
    /// The machine has not enough memory.
    #[error("{what} do not fit the memory of this machine")]
    OutOfMemory {
        /// What needs it.
        what: String,
    },
    /// The edges are no graph.
    #[error("graph: {0}")]
    Graph(#[from] kiln_graph::Error),
    /// The features or labels are not valid.
    #[error("features: {0}")]
    Feature(#[from] kiln_feature::Error),
}

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// That of features whose elements are stored in no way that is known, or not in the same in all rows.
    pub(crate) fn unknown_row_type(row_type: RowType) -> Self {
        Self::BadParameter {
            what: "the element type of the features",
            expected: "f32, f16 or bf16, and the same in all rows",
            got: row_type.to_string(),
        }
    }
}

/// Checks a parameter.
pub(crate) fn require(
    holds: bool,
    what: &'static str,
    expected: &'static str,
    got: impl ToString,
) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(Error::BadParameter { what, expected, got: got.to_string() }),
    }
}

/// Checks a number that one file states against another's.
pub(crate) fn check_count(
    file: impl AsRef<Path>,
    what: &'static str,
    expected: usize,
    got: usize,
) -> Result<()> {
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

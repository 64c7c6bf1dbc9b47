mod earlier_import_error;
mod spec_error;
mod table_file_error;

use std::io;
use std::path::{Path, PathBuf};

use crate::bad_rows::{BadRows, format_bad_rows};

pub use self::earlier_import_error::EarlierImportError;
pub(crate) use self::spec_error::KEYS_OF_OBJECTS;
pub use self::spec_error::SpecError;
pub use self::table_file_error::TableFileError;

/// An error from an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The spec is invalid, or does not fit the tables.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A file of a table cannot be read or written.
    #[error(transparent)]
    TableFile(#[from] TableFileError),
    /// Tables have bad rows that the spec does not drop.
    #[error("{}", format_bad_rows(.0))]
    BadRows(Vec<BadRows>),
    /// A column has more different values than a vocabulary may have.
    #[error("{column}: more than {max} different values, expected at most {max}: use the transform `hash`")]
    TooManyValues {
        /// The table and the column.
        column: String,
        /// The maximum number of different values.
        max: usize,
    },
    /// No row has a target.
    #[error(
        "{table}: no row has a target, expected at least one: correct the column, or remove the target from the spec"
    )]
    NoTargets {
        /// The table.
        table: String,
    },
    /// A table has too many rows, or its keys are too long.
    #[error("{table}: {what}, expected at most {max}")]
    TooLarge {
        /// The table.
        table: String,
        /// What is too large.
        what: String,
        /// The limit.
        max: u64,
    },
    /// The memory limit is too small.
    #[error(
        "{what}: needs {needed_bytes} bytes of memory, the limit is {budget_bytes}: raise the memory limit"
    )]
    Memory {
        /// What the memory is for.
        what: String,
        /// The smallest sufficient limit.
        needed_bytes: u64,
        /// The given limit.
        budget_bytes: u64,
    },
    /// The disk of the output is full.
    #[error(
        "{path}: no space left on the disk: free some, or choose an output folder on another disk (temporary files \
         are beside the output, and are removed)"
    )]
    DiskFull {
        /// The path of the file that could not be written.
        path: PathBuf,
    },
    /// An earlier import cannot be used.
    #[error(transparent)]
    EarlierImport(#[from] EarlierImportError),
    /// A thread pool of the given size could not be started.
    #[error("cannot start {n_threads} threads: {message}")]
    Threads {
        /// The number of threads.
        n_threads: usize,
        /// The reason.
        message: String,
    },
    /// A program's own function ended a transformation.
    #[error(transparent)]
    Visitor(Box<dyn std::error::Error + Send + Sync>),
    /// Node types or relations do not form a graph.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
    /// A file could not be read or written.
    #[error(transparent)]
    Store(kiln_store::Error),
    /// The set could not be written.
    #[error(transparent)]
    Data(kiln_data::Error),
}

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<kiln_store::Error> for Error {
    fn from(error: kiln_store::Error) -> Self {
        match error {
            kiln_store::Error::Io { path, source } => io_error(&path)(source),
            other => Self::Store(other),
        }
    }
}

impl From<kiln_data::Error> for Error {
    fn from(error: kiln_data::Error) -> Self {
        match error {
            kiln_data::Error::Store(error) => error.into(),
            kiln_data::Error::Memory { what, needed_bytes, budget_bytes } => {
                Self::Memory { what, needed_bytes, budget_bytes }
            }
            other => Self::Data(other),
        }
    }
}

/// Returns a function that converts an operating system's error about `path`.
pub(crate) fn io_error(path: &Path) -> impl Fn(io::Error) -> Error + '_ {
    |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::DiskFull { path: path.to_owned() }
        }
        _ => Error::Store(kiln_store::Error::Io { path: path.to_owned(), source }),
    }
}

impl Error {
    /// Returns true if the error is one of the command line or the call: the file that was passed as a spec is a table.
    ///
    /// ```
    /// let error = kiln_tables::Error::TooManyValues { column: "kind".to_owned(), max: 5 };
    /// assert!(!error.is_usage());
    /// ```
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Spec(SpecError::IsTable { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_an_error_with_advice() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let path = || PathBuf::from("set/rows");
        let of_store = kiln_store::Error::Io { path: path(), source: full() };
        let of_data = kiln_data::Error::Store(kiln_store::Error::Io { path: path(), source: full() });
        for error in [io_error(&path())(full()), of_store.into(), of_data.into()] {
            assert!(matches!(&error, Error::DiskFull { .. }), "{error}");
            assert!(error.to_string().starts_with("set/rows: no space left on the disk: free some"));
        }
        let denied = io_error(&path())(io::ErrorKind::PermissionDenied.into());
        assert!(matches!(denied, Error::Store(_)), "{denied}");
    }
}

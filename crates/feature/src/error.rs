mod edge_column_error;
mod scaling_error;
mod sparse_error;
mod targets_error;

use std::path::{Path, PathBuf};

use kiln_graph::{EdgeId, NodeId};

pub use self::edge_column_error::EdgeColumnError;
pub use self::scaling_error::ScalingError;
pub use self::sparse_error::SparseError;
pub use self::targets_error::TargetsError;

/// An error in features or labels, or in a request for them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A requested node has no row.
    #[error("node {} has no feature row: expected an id below {n_rows}", node.0)]
    NodeOutOfRange {
        /// The id that is out of range.
        node: NodeId,
        /// The number of rows.
        n_rows: usize,
    },
    /// A requested edge has no row.
    #[error("edge {} has no feature row: expected an id below {n_rows}", edge.0)]
    EdgeOutOfRange {
        /// The id that is out of range.
        edge: EdgeId,
        /// The number of rows.
        n_rows: u64,
    },
    /// The number of feature columns is 0.
    #[error("the feature dimension is 0, expected at least 1")]
    ZeroDim,
    /// The number of feature columns is above [`MAX_DIM`](crate::MAX_DIM); the file is probably damaged.
    #[error("the feature dimension is {dim}, expected at most {max}")]
    TooManyColumns {
        /// The number of columns.
        dim: usize,
        /// The largest supported number of columns.
        max: usize,
    },
    /// The values are not a whole number of rows.
    #[error("the number of feature values is {n_values}, expected a multiple of the dimension {dim}")]
    PartialRow {
        /// The number of values.
        n_values: usize,
        /// The number of columns.
        dim: usize,
    },
    /// A file ends before its last row.
    #[error(
        "{path}: the file has {got} bytes, expected at least {expected} for {n_rows} rows of {dim} x {row_type}"
    )]
    FileTooShort {
        /// The path of the file.
        path: PathBuf,
        /// The requested number of rows.
        n_rows: usize,
        /// The number of columns.
        dim: usize,
        /// The element type's name.
        row_type: &'static str,
        /// The file offset at which the last row should end.
        expected: u64,
        /// The file's size in bytes.
        got: u64,
    },
    /// The file offset of the rows is not a multiple of the element size.
    #[error("{path}: rows start at byte {offset_bytes}, expected a multiple of {align_bytes}")]
    Misaligned {
        /// The path of the file.
        path: PathBuf,
        /// The file offset of the first row.
        offset_bytes: u64,
        /// The required alignment: the element size.
        align_bytes: usize,
    },
    /// The size of the rows in bytes overflows `usize`.
    #[error("{n_rows} rows of {dim} x {row_type} at byte {offset_bytes} exceed the address space")]
    TooLarge {
        /// The requested number of rows.
        n_rows: usize,
        /// The number of columns.
        dim: usize,
        /// The element type's name.
        row_type: &'static str,
        /// The file offset of the first row.
        offset_bytes: u64,
    },
    /// The arrays of sparse features are invalid.
    #[error(transparent)]
    Sparse(#[from] SparseError),
    /// A scaling of the features is invalid.
    #[error(transparent)]
    Scaling(#[from] ScalingError),
    /// A column of edges does not exist, or has no rows of floats.
    #[error(transparent)]
    EdgeColumn(#[from] EdgeColumnError),
    /// Labels or target values are invalid, or an item has none.
    #[error(transparent)]
    Targets(#[from] TargetsError),
    /// An array that is mapped from a file is invalid.
    #[error("{path}: {source}")]
    InFile {
        /// The path of the file.
        path: PathBuf,
        /// The error in the file's values.
        source: Box<Error>,
    },
    /// A store could not fetch remote rows.
    #[error(transparent)]
    Elsewhere(Box<dyn std::error::Error + Send + Sync>),
    /// A file could not be opened or mapped.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
}

impl Error {
    /// Adds the path of the file from which the array is mapped; `None` leaves the error unchanged.
    pub(crate) fn in_file(self, path: Option<&Path>) -> Self {
        match path {
            Some(path) => Self::InFile { path: path.to_owned(), source: Box::new(self) },
            None => self,
        }
    }
}

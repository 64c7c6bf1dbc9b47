use std::path::{Path, PathBuf};

use kiln_graph::NodeId;

/// What can be wrong with features, labels or a request for them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node was asked for that has no row.
    #[error("node {} has no {what}: there are {n_rows} (ids 0 to n_rows - 1)", node.0)]
    NodeOutOfRange {
        /// What was asked for: feature rows or labels.
        what: &'static str,
        /// The id that is too large.
        node: NodeId,
        /// How many rows there are.
        n_rows: usize,
    },
    /// Rows without columns.
    #[error("the feature dimension is 0, expected at least 1")]
    ZeroDim,
    /// Rows that are too wide to be gathered: a damaged file, most likely.
    #[error("the feature dimension is {dim}, expected at most {max}")]
    TooManyColumns {
        /// The number of columns.
        dim: usize,
        /// The largest that is read.
        max: usize,
    },
    /// The values are not a whole number of rows.
    #[error("{n_values} values are not a whole number of rows of {dim}")]
    PartialRow {
        /// How many values there are.
        n_values: usize,
        /// The number of columns.
        dim: usize,
    },
    /// A file ends before the last row that it should hold.
    #[error(
        "{path}: {expected} bytes are needed for {n_rows} rows of {dim} x {row_type}, the file has {got}"
    )]
    FileTooShort {
        /// The file.
        path: PathBuf,
        /// How many rows were asked for.
        n_rows: usize,
        /// The number of columns.
        dim: usize,
        /// The element type's name.
        row_type: &'static str,
        /// Where the last row should end.
        expected: u64,
        /// The file's size in bytes.
        got: u64,
    },
    /// Rows start at a byte where their element type cannot be read in place.
    #[error("{path}: rows start at byte {offset_bytes}, expected a multiple of {align_bytes}")]
    Misaligned {
        /// The file.
        path: PathBuf,
        /// Where the rows start.
        offset_bytes: u64,
        /// What the start must be a multiple of.
        align_bytes: usize,
    },
    /// More bytes than a machine word counts.
    #[error("{n_rows} rows of {dim} x {row_type} at byte {offset_bytes} do not fit the address space")]
    TooLarge {
        /// How many rows were asked for.
        n_rows: usize,
        /// The number of columns.
        dim: usize,
        /// The element type's name.
        row_type: &'static str,
        /// Where the rows start.
        offset_bytes: u64,
    },
    /// The arrays of sparse features contradict each other.
    #[error(
        "sparse features: {what} is {got}, expected {expected}: save indptr, indices and data of one CSR matrix"
    )]
    BadSparse {
        /// What does not fit.
        what: &'static str,
        /// What it should be.
        expected: u64,
        /// What it is.
        got: u64,
    },
    /// The values of a sparse row lie where there are none: its file is damaged.
    #[error("the feature values of node {} would be {start} to {end} of {n_values}: the file is damaged, make it again", node.0)]
    BadSparseRow {
        /// The node.
        node: NodeId,
        /// Where its values would start.
        start: u64,
        /// Where they would end.
        end: u64,
        /// How many values there are.
        n_values: u64,
    },
    /// A value of a sparse row lies in a column that does not exist.
    #[error("node {} has a feature in column {column}, but there are {dim} (0 to dim - 1): the file is damaged, make it again", node.0)]
    ColumnOutOfRange {
        /// The node.
        node: NodeId,
        /// The column.
        column: u32,
        /// How many columns there are.
        dim: usize,
    },
    /// A label names a class that does not exist.
    #[error("{item} {id} has label {label}, but there are {n_classes} classes (0 to n_classes - 1)")]
    LabelOutOfRange {
        /// What is labelled: a node or a graph.
        item: &'static str,
        /// Its number.
        id: u32,
        /// Its label.
        label: i32,
        /// How many classes there are.
        n_classes: usize,
    },
    /// A batch or a split contains an item without a label.
    #[error("{item} {id} has no label: leave it out of the split")]
    Unlabelled {
        /// What is labelled: a node or a graph.
        item: &'static str,
        /// Its number.
        id: u32,
    },
    /// A label was asked for of an item that is none of these labels'.
    #[error("{item} {id} has no label: there are {n_labels} (ids 0 to n_labels - 1)")]
    NoSuchItem {
        /// What is labelled: a node or a graph.
        item: &'static str,
        /// The number that is too large.
        id: u32,
        /// The number of labels.
        n_labels: usize,
    },
    /// A mapped array is damaged.
    #[error("{path}: {source}")]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A source whose rows lie elsewhere did not get them.
    #[error(transparent)]
    Elsewhere(Box<dyn std::error::Error + Send + Sync>),
    /// A file could not be opened or mapped.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
}

impl Error {
    /// The same error, with the file that the array is mapped from, where it is.
    pub(crate) fn in_file(self, path: Option<&Path>) -> Self {
        match path {
            Some(path) => Self::InFile { path: path.to_owned(), source: Box::new(self) },
            None => self,
        }
    }
}

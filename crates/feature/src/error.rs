use std::path::{Path, PathBuf};

use kiln_graph::{EdgeId, NodeId};

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
    /// The arrays of sparse features are inconsistent.
    #[error(
        "sparse features: {what} is {got}, expected {expected}: save indptr, indices and data of one CSR matrix"
    )]
    BadSparse {
        /// The property that is wrong, for the message.
        what: &'static str,
        /// The expected value of the property.
        expected: u64,
        /// The actual value of the property.
        got: u64,
    },
    /// The value range of a sparse row is invalid.
    #[error("the feature values of node {} are {start}..{end}, expected a range within 0..{n_values}: the file is damaged: restore or regenerate it", node.0)]
    BadSparseRow {
        /// The node whose row is invalid.
        node: NodeId,
        /// The start of the row's values.
        start: u64,
        /// The end of the row's values.
        end: u64,
        /// The number of stored values.
        n_values: u64,
    },
    /// A column of a sparse row is not below the dimension.
    #[error("node {} has a feature in column {column}, expected a column below {dim}: the file is damaged: restore or regenerate it", node.0)]
    ColumnOutOfRange {
        /// The node whose row is invalid.
        node: NodeId,
        /// The invalid column.
        column: u32,
        /// The number of columns.
        dim: usize,
    },
    /// The number of a scaling's means or factors differs from the number of feature columns.
    #[error(
        "the scaling has {got} {what}, expected {expected}, one per feature column: use the data's own columns"
    )]
    ScalingWidth {
        /// The array that differs: `means` or `factors`.
        what: &'static str,
        /// The number of feature columns.
        expected: usize,
        /// The number of values of the scaling.
        got: usize,
    },
    /// A value of a scaling is infinite or NaN.
    #[error("the scaling's {what} contain {value} at column {column}, expected finite numbers")]
    ScalingNotFinite {
        /// The array: `means` or `factors`.
        what: &'static str,
        /// The column of the value.
        column: usize,
        /// The value.
        value: f64,
    },
    /// A feature that is divided by the sum of its row is negative.
    #[error("node {} has the feature {value}, expected no negative values: the model divides each row by its sum", node.0)]
    NegativeFeature {
        /// The node.
        node: NodeId,
        /// The value of the feature.
        value: f32,
    },
    /// A label is not below the number of classes.
    #[error("{item} {id} has label {label}, expected a class below {n_classes}")]
    LabelOutOfRange {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id of the item.
        id: u32,
        /// The label of the item.
        label: i32,
        /// The number of classes.
        n_classes: usize,
    },
    /// A batch or a split contains an unlabelled item.
    #[error("{item} {id} has no label: remove it from the split")]
    Unlabelled {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id of the item.
        id: u32,
    },
    /// A batch or a split contains an item whose target values are all missing.
    #[error("{item} {id} has no target value: remove it from the split")]
    Untargeted {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id of the item.
        id: u32,
    },
    /// A target value is not a label or not a finite number.
    #[error("{item} {id} has the target {value} in column {column}, expected {expected}")]
    BadTarget {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id of the item.
        id: u32,
        /// The column of the value, from 0.
        column: usize,
        /// The value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// The id of a requested item is not below the number of labels.
    #[error("{item} {id} has no label: expected an id below {n_labels}")]
    NoSuchItem {
        /// The kind of item: `node` or `graph`.
        item: &'static str,
        /// The id that is out of range.
        id: u32,
        /// The number of labels.
        n_labels: usize,
    },
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

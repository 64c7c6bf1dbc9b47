mod column_error;
mod relation_edges_error;
mod schema_error;

use std::path::{Path, PathBuf};

use crate::FileVersion;

pub use self::column_error::ColumnError;
pub use self::relation_edges_error::RelationEdgesError;
pub use self::schema_error::SchemaError;

/// An error in a graph, in the arrays it is made from, or in a mapped file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An edge refers to a node that the graph does not have.
    #[error("edge {edge} refers to node {node}, but the graph has {n_nodes} nodes, numbered from 0")]
    NodeOutOfRange {
        /// The position of the edge in the edge list or in `indices`.
        edge: u64,
        /// The node id that is out of range.
        node: u32,
        /// The number of nodes in the graph.
        n_nodes: usize,
    },
    /// An array has a length that does not match the others.
    #[error("{what} has {got} entries, expected {expected}")]
    LengthMismatch {
        /// The name of the array.
        what: &'static str,
        /// The expected length.
        expected: u64,
        /// The actual length.
        got: u64,
    },
    /// `indptr` does not start at 0, or decreases.
    #[error(
        "invalid indptr at node {node}: {before} is followed by {after}; it must start at 0 and never decrease"
    )]
    IndptrNotMonotone {
        /// The node whose edge range is invalid; 0 if `indptr` does not start at 0.
        node: u64,
        /// The start of the node's edge range, or the expected 0.
        before: u64,
        /// The end of the node's edge range, or the first entry of `indptr`, which should be 0.
        after: u64,
    },
    /// The node ids of rows do not ascend, or one is out of range.
    #[error("row {row} belongs to node {node}, expected strictly ascending node ids below {n_nodes}")]
    BadRow {
        /// The position of the row, from 0.
        row: usize,
        /// The node id of the row.
        node: u32,
        /// The number of nodes in the graph.
        n_nodes: usize,
    },
    /// The links of fixed negatives do not ascend.
    #[error("row {row} of the negatives belongs to link {link}, expected strictly ascending link ids")]
    LinksNotAscending {
        /// The position of the row, from 0.
        row: usize,
        /// The id of the row's link.
        link: u32,
    },
    /// The node types or relations of a graph are invalid, or one does not exist.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The edges of relations are not between their node types, or not grouped by relation.
    #[error(transparent)]
    RelationEdges(#[from] RelationEdgesError),
    /// A column of edges is invalid.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// A relation of a graph is invalid.
    #[error("relation `{name}`: {source}")]
    InRelation {
        /// The name of the relation.
        name: String,
        /// The error in the relation.
        source: Box<Error>,
    },
    /// The graph has no unused edge type for self loops.
    #[error(
        "an edge has type 255, the largest, so no type is left for the self loops: renumber the edge types, or add the \
         self loops before setting types"
    )]
    NoFreeEdgeType,
    /// A count exceeds what the id types can represent.
    #[error("{n} {what} do not fit: at most {max} are supported")]
    TooMany {
        /// The plural name of the counted elements, for the message.
        what: &'static str,
        /// The requested count.
        n: u64,
        /// The largest supported count.
        max: u64,
    },
    /// An array that is mapped from a file is invalid.
    #[error("{path}: {source}: the file is damaged: restore or regenerate it")]
    InFile {
        /// The path of the file.
        path: PathBuf,
        /// The error in the file's values.
        source: Box<Error>,
    },
    /// A file could not be opened or mapped.
    #[error("{path}: {source}")]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file was modified in place while it was mapped.
    #[error(
        "{path}: the file was changed while it was mapped: expected {expected}, found {found}; results computed since then may be wrong: restore the file and restart from the last checkpoint; to update a file in use, rename a new one over it"
    )]
    FileChanged {
        /// The path of the file.
        path: PathBuf,
        /// The length and modification time of the file when it was mapped.
        expected: FileVersion,
        /// The current length and modification time of the file.
        found: FileVersion,
    },
    /// A range of a mapped file cannot be read as an array.
    #[error("{path}: bytes {start} to {end} of {file_bytes} cannot be read as {ty} elements: {reason}")]
    BadRange {
        /// The path of the file.
        path: PathBuf,
        /// The offset of the first byte of the range.
        start: u64,
        /// The offset after the last byte of the range.
        end: u64,
        /// The file's size in bytes.
        file_bytes: u64,
        /// The element type.
        ty: &'static str,
        /// The reason why the range cannot be read, for the message.
        reason: &'static str,
    },
}

impl Error {
    /// Adds the path of the file from which the array is mapped; `None` leaves the error unchanged.
    pub(crate) fn in_file(self, path: Option<&Path>) -> Self {
        match path {
            Some(path) => Self::InFile { path: path.to_owned(), source: Box::new(self) },
            None => self,
        }
    }

    /// Adds the name of the relation with the error.
    pub(crate) fn in_relation(self, name: &str) -> Self {
        Self::InRelation { name: name.to_owned(), source: Box::new(self) }
    }
}

use std::path::{Path, PathBuf};

use crate::FileVersion;

/// What can be wrong with a graph or the arrays it is made from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An edge names a node that the graph does not have.
    #[error("edge {edge} names node {node}, but the graph has {n_nodes} nodes (ids 0 to n_nodes - 1)")]
    NodeOutOfRange {
        /// Position of the edge in the input.
        edge: u64,
        /// The id that is too large.
        node: u32,
        /// How many nodes there are.
        n_nodes: usize,
    },
    /// Two arrays that describe the same things differ in length.
    #[error("{what} has {got} entries, expected {expected}")]
    LengthMismatch {
        /// Which array.
        what: &'static str,
        /// The length it should have.
        expected: u64,
        /// The length it has.
        got: u64,
    },
    /// `indptr` does not start at zero or falls somewhere.
    #[error(
        "indptr falls at node {node}: {before} is followed by {after}; it must start at 0 and never fall"
    )]
    IndptrNotMonotone {
        /// The node whose range would be negative.
        node: u64,
        /// The start of its range.
        before: u64,
        /// The end of its range.
        after: u64,
    },
    /// Rows do not go to nodes in ascending order.
    #[error(
        "row {row} would be that of node {node}, expected a node above that of the row before, and below {n_nodes}"
    )]
    BadRow {
        /// Position of the row.
        row: usize,
        /// The node that it would be of.
        node: u32,
        /// How many nodes there are.
        n_nodes: usize,
    },
    /// An edge's weight cannot be normalised.
    #[error("edge {edge} has the weight {weight}, expected a finite one: clean the weights first")]
    WeightNotFinite {
        /// Position of the edge in the graph's `indices`.
        edge: u64,
        /// Its weight.
        weight: f32,
    },
    /// More nodes or edges than the id types hold.
    #[error("{n} {what} do not fit: at most {max} are supported")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many were asked for.
        n: u64,
        /// The largest supported count.
        max: u64,
    },
    /// A mapped array is damaged.
    #[error("{path}: {source}: the file is damaged, make it again")]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A file could not be opened or mapped.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file was changed in place while it was mapped.
    #[error(
        "{path}: the file was changed while it was mapped: expected {expected}, found {found}; what was computed since then may be wrong: restore the file, never change one that is in use (rename a new one over it), and start again from the last checkpoint"
    )]
    FileChanged {
        /// The file.
        path: PathBuf,
        /// What it was when it was mapped.
        expected: FileVersion,
        /// What it is now.
        found: FileVersion,
    },
    /// A range of a mapped file cannot be read as an array.
    #[error("{path}: bytes {start} to {end} of {file_bytes} cannot be read as {ty} elements: {reason}")]
    BadRange {
        /// The file.
        path: PathBuf,
        /// First byte of the range.
        start: u64,
        /// One past the last byte of the range.
        end: u64,
        /// The file's size in bytes.
        file_bytes: u64,
        /// The element type.
        ty: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
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

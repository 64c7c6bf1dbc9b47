use std::path::PathBuf;

use kiln_feature::FeatureDType;

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
    /// A file could not be read or written, or does not contain what it should.
    #[error(transparent)]
    Store(#[from] kiln_store::Error),
    /// Pieces of a dataset that a program builds are missing or do not fit each other.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The edges are no graph.
    #[error("graph: {0}")]
    Graph(#[from] kiln_graph::Error),
    /// The features or labels are not valid.
    #[error("features: {0}")]
    Feature(#[from] kiln_feature::Error),
}

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a [`DatasetBuilder`](crate::DatasetBuilder) could not build a dataset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The program did not give something that every dataset has.
    #[error("the dataset has no {what}: call {call}")]
    Missing {
        /// The missing piece.
        what: &'static str,
        /// The call that gives it.
        call: &'static str,
    },
    /// An array has too few or too many entries.
    #[error("{what}: got {got}, expected {expected}, one per {per}")]
    Length {
        /// The array.
        what: &'static str,
        /// What an entry belongs to.
        per: &'static str,
        /// The expected number of entries.
        expected: usize,
        /// The given number of entries.
        got: usize,
    },
    /// The classifier would have no output.
    #[error("the number of classes is 0, expected at least 1: pass it to .labels(y, n_classes)")]
    NoClasses,
    /// Weights and types were given for a graph that is already built.
    #[error("{what} belong to an edge list, but .graph() was called: add them to the graph instead")]
    EdgeDataOfGraph {
        /// The edge data.
        what: &'static str,
    },
    /// A split contains a node that does not exist.
    #[error("the {part} split contains node {node} at position {position}, expected 0 to {n_nodes} - 1")]
    SplitOutOfRange {
        /// The part of the split.
        part: &'static str,
        /// The position in that part.
        position: usize,
        /// The node.
        node: u32,
        /// The number of nodes.
        n_nodes: usize,
    },
    /// A split contains a node without a label.
    #[error("the {part} split contains node {node} at position {position}, which has no label: remove it")]
    Unlabelled {
        /// The part of the split.
        part: &'static str,
        /// The position in that part.
        position: usize,
        /// The node.
        node: u32,
    },
    /// Two parts of the split contain the same node.
    #[error("node {node} is in both the {first} and the {second} split: remove it from one of them")]
    SplitsOverlap {
        /// The node.
        node: u32,
        /// The part that comes first.
        first: &'static str,
        /// The other part.
        second: &'static str,
    },
}

impl Error {
    /// That of features whose elements are stored in no way that is known, or not in the same in all rows.
    pub(crate) fn unknown_row_type(row_type: FeatureDType) -> Self {
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

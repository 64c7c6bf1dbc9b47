use std::path::PathBuf;

use kiln_feature::FeatureDType;

use crate::{TaskTableError, TimeError};

/// An error from creating, reading, converting or writing a data set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of its range.
    #[error("{what} is {got}, expected {expected}")]
    BadParameter {
        /// The name of the parameter.
        what: &'static str,
        /// The allowed values.
        expected: &'static str,
        /// The given value.
        got: String,
    },
    /// The format of a path was not recognised.
    #[error("{path} is not a data set of a known format: {looked_for}")]
    Unrecognised {
        /// The path of the file or folder.
        path: PathBuf,
        /// The files that identify the known formats, and a hint if a data set is nearby.
        looked_for: String,
    },
    /// A path is a data set of a kind that cannot be used here, for example for another task.
    #[error("{path} is {kind}, expected {expected}")]
    WrongKind {
        /// The path of the file or folder.
        path: PathBuf,
        /// The kind of data set at the path.
        kind: String,
        /// The required kind.
        expected: &'static str,
    },
    /// A data set or file has a form that is not supported.
    #[error("{path}: {what} is not supported: {instead}")]
    Unsupported {
        /// The file or folder.
        path: PathBuf,
        /// The unsupported form.
        what: String,
        /// The advice on what to do instead.
        instead: String,
    },
    /// The memory limit is too small.
    #[error(
        "{what} needs {needed_bytes} bytes of memory, but only {budget_bytes} are allowed: raise the limit"
    )]
    Memory {
        /// The step or the data that needs the memory.
        what: String,
        /// The smallest sufficient limit, in bytes.
        needed_bytes: u64,
        /// The limit, in bytes.
        budget_bytes: u64,
    },
    /// A compressed edge list has more edges than may be read into memory.
    #[error(
        "{path}: the compressed edge list has more than {n_edges} edges, the most that fit the limit of {budget_bytes} \
         bytes: convert it once (kiln data convert), which sorts on disk, or raise the limit of memory"
    )]
    EdgeListTooLarge {
        /// The path of the edge list.
        path: PathBuf,
        /// The number of edges that fit the limit.
        n_edges: u64,
        /// The limit, in bytes.
        budget_bytes: u64,
    },
    /// A file could not be read or written, or its content is invalid.
    #[error(transparent)]
    Store(#[from] kiln_store::Error),
    /// Parts of a dataset that a program builds are missing or inconsistent.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Times, or a split by them, are invalid.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// The links of a split do not fit the graph or each other.
    #[error(transparent)]
    LinkSplit(#[from] LinkSplitError),
    /// The operation needs a homogeneous set.
    #[error(transparent)]
    NotHomogeneous(#[from] NotHomogeneousError),
    /// A node type or a relation of a heterogeneous set is invalid.
    #[error("{part}: {source}")]
    InPart {
        /// The part, such as ``node type `user` ``.
        part: String,
        /// The error in the part.
        source: Box<Error>,
    },
    /// The edges do not form a valid graph.
    #[error("cannot use the graph: {0}")]
    Graph(#[from] kiln_graph::Error),
    /// The features or labels are not valid.
    #[error("cannot use the features or labels: {0}")]
    Feature(#[from] kiln_feature::Error),
    /// The hash of a set was ended before all values were read, because no one waits for it any more.
    #[error("the hash of the data was cancelled, because the run has ended")]
    HashCancelled,
}

impl From<TaskTableError> for Error {
    fn from(error: TaskTableError) -> Self {
        Self::Build(error.into())
    }
}

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// An error from [`DatasetBuilder::build`](crate::DatasetBuilder::build), or from a step that changes a set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A task table is invalid or does not exist.
    #[error(transparent)]
    TaskTable(#[from] TaskTableError),
    /// A required part of the dataset was not set.
    #[error("the dataset has no {what}: call {call}")]
    Missing {
        /// The name of the missing part, such as `labels`.
        what: &'static str,
        /// The builder call that sets the missing part.
        call: &'static str,
    },
    /// An array of the dataset has too few or too many entries.
    #[error("the number of {what} is {got}, expected {expected}, one per {per}")]
    Length {
        /// The noun for the entries of the array, such as `feature rows`.
        what: &'static str,
        /// The item that each entry belongs to, such as `node`.
        per: &'static str,
        /// The expected number of entries.
        expected: usize,
        /// The given number of entries.
        got: usize,
    },
    /// Self loops would be added to a set whose edges have a column in which a loop has no row.
    #[error(
        "{name}: the added self loops would have no row in the edge column `{column}`: add the loops and their rows to the \
         edge list before the set is built, or remove such columns"
    )]
    NoEdgeFeatures {
        /// The name of the set.
        name: String,
        /// The name of the column.
        column: String,
    },
    /// A part of the builder describes a node type, but no type was selected.
    #[error("{call} describes the nodes of one type: call .nodes(type_name) before it")]
    NoNodeType {
        /// The call, such as `.features(x, dim)`.
        call: &'static str,
    },
    /// A call of the builder does not apply to the set.
    #[error("{call} does not apply to this set: {instead}")]
    NotApplicable {
        /// The call, such as `.symmetrize()`.
        call: &'static str,
        /// The reason, and what to do instead.
        instead: &'static str,
    },
    /// The number of classes is 0, so that a classifier would have no output.
    #[error("the number of classes is 0, expected at least 1: pass it to .labels(y, n_classes)")]
    NoClasses,
    /// Edge weights or edge types were given for a graph that is already built.
    #[error("{what} belong to an edge list, but .graph() was called: add them to the graph instead")]
    EdgeDataOfGraph {
        /// The kind of edge data: `edge weights` or `edge types`.
        what: &'static str,
    },
    /// A split contains a node that does not exist.
    #[error(
        "the {part} split contains node {node} at position {position}, expected a node id below {n_nodes}"
    )]
    SplitOutOfRange {
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The position of the node in the part, from 0.
        position: usize,
        /// The id of the node.
        node: u32,
        /// The number of nodes of the dataset.
        n_nodes: usize,
    },
    /// A split contains a node without a label.
    #[error("the {part} split contains node {node} at position {position}, which has no label: remove it")]
    Unlabelled {
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The position of the node in the part, from 0.
        position: usize,
        /// The id of the node.
        node: u32,
    },
    /// Two parts of the split contain the same node.
    #[error("node {node} is in both the {first} and the {second} split: remove it from one of them")]
    SplitsOverlap {
        /// The id of the node.
        node: u32,
        /// The name of the first of the two parts.
        first: &'static str,
        /// The name of the second of the two parts.
        second: &'static str,
    },
}

/// A heterogeneous set was given to an operation that needs a homogeneous one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotHomogeneousError {
    /// A graph with several node types or relations where one of each is needed.
    #[error(
        "{what} needs a graph with one node type and one relation, but `{name}` has the node types {types} and the \
         relations {relations}"
    )]
    SeveralTypes {
        /// The name of the set.
        name: String,
        /// What needs one node type and one relation.
        what: &'static str,
        /// The names of the node types.
        types: String,
        /// The names of the relations.
        relations: String,
    },
    /// A set with several node types where one is needed.
    #[error(
        "`{name}` has the node types {types}, but a graph with one type of nodes is needed: use a model of heterogeneous \
         graphs, or a set with one of the types"
    )]
    SeveralNodeTypes {
        /// The name of the set.
        name: String,
        /// The names of the node types.
        types: String,
    },
    /// A set with one node type that has no features.
    #[error(
        "the nodes of type `{node_type}` of `{name}` have no features, expected a row per node: add columns to the nodes, \
         for tables under `columns` of the spec, or use a model of heterogeneous graphs, which trains a row for each node"
    )]
    NoFeatures {
        /// The name of the set.
        name: String,
        /// The name of the node type.
        node_type: String,
    },
    /// A step of the preparation of a set whose format cannot record it.
    #[error(
        "{step}() prepares homogeneous sets only, and `{name}` has names of its node types and relations: prepare its \
         arrays before the set is built"
    )]
    NamedTypes {
        /// The name of the set.
        name: String,
        /// The step, such as `standardize`.
        step: &'static str,
    },
}

/// Returns the error for a part that was not set.
pub(crate) fn missing(what: &'static str, call: &'static str) -> BuildError {
    BuildError::Missing { what, call }
}

/// An error from a [`LinkSplit`](crate::LinkSplit) or [`LinkTargets`](crate::LinkTargets).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkSplitError {
    /// An edge of a graph that should be undirected has no reverse edge.
    #[error(
        "the edge {src} -> {dst} has no reverse edge, but the links are undirected: split directed links, or add the \
         reverse edges first (`kiln data convert --symmetrize`)"
    )]
    NotUndirected {
        /// The source of the edge.
        src: u32,
        /// The destination of the edge.
        dst: u32,
    },
    /// A graph has no edge that is a link.
    #[error(
        "the graph has no edge{} between two different nodes, expected at least one link to split",
        edge_type.map_or(String::new(), |edge_type| format!(" of type {edge_type}"))
    )]
    NoLinks {
        /// The edge type of the links, if only one type was requested.
        edge_type: Option<u8>,
    },
    /// A split contains a link that does not exist.
    #[error(
        "the {part} split contains link {link} at position {position}, expected a link id below {n_links}"
    )]
    LinkOutOfRange {
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The position of the link in the part, from 0.
        position: usize,
        /// The id of the link.
        link: u32,
        /// The number of links.
        n_links: usize,
    },
    /// A split contains a link twice.
    #[error(
        "link {link} is in both the {first} and the {second} split (position {position}): remove it from one of them"
    )]
    RepeatedLink {
        /// The second position of the link, from 0, in the second of the two parts.
        position: usize,
        /// The id of the link.
        link: u32,
        /// The name of the first of the two parts.
        first: &'static str,
        /// The name of the second of the two parts, which may be the first.
        second: &'static str,
    },
    /// A link or a negative of a relation has a node of another type.
    #[error(
        "{what} {position} is node {node}, expected a node of type `{name}`, which are {start}..{end}: use node ids of the \
         graph, which begin at {start} for this type"
    )]
    OtherType {
        /// The noun for the node, such as `the source of link`.
        what: &'static str,
        /// The position of the link or the negative, from 0.
        position: usize,
        /// The node.
        node: u32,
        /// The name of the relation's type.
        name: String,
        /// The first node of the type.
        start: u32,
        /// One more than the last node of the type.
        end: u32,
    },
    /// A relation is not between the types of the relation whose reverse it should be.
    #[error(
        "the relation `{reverse}` cannot be the reverse of `{relation}`: expected one from `{src_type}` to `{dst_type}`"
    )]
    NotReverse {
        /// The relation of the links.
        relation: String,
        /// The relation that should be its reverse.
        reverse: String,
        /// The type of the sources of a reverse relation.
        src_type: String,
        /// The type of the destinations of a reverse relation.
        dst_type: String,
    },
    /// Links have another number of target values or feature rows.
    #[error("got {got} {what} of {expected} links, expected one for each link, in the order of the links")]
    RowCount {
        /// The plural noun for the values: `target values` or `feature rows`.
        what: &'static str,
        /// The number of links.
        expected: usize,
        /// The number of values.
        got: usize,
    },
    /// A link of the split has no target value.
    #[error(
        "link {link} of the {part} split, at position {position}, has no target value: remove it from the split"
    )]
    NoTarget {
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The position of the link in the part, from 0.
        position: usize,
        /// The id of the link.
        link: u32,
    },
    /// A feature of a link is not finite.
    #[error("a feature of link {link} is {value}, expected a finite number")]
    RowNotFinite {
        /// The id of the link.
        link: u32,
        /// The value.
        value: String,
    },
    /// A row of labels of edges has a pair of nodes with too few edges.
    #[error(
        "row {position} of the {part} split is the pair {src} -> {dst}, expected an edge of its own, and the graph has {n_edges} \
         edges of the pair, which are those of earlier rows: remove the row, or add the edge to the graph"
    )]
    NotAnEdge {
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The position of the row in the part, from 0.
        position: usize,
        /// The source, by its id within its type.
        src: u32,
        /// The destination, by its id within its type.
        dst: u32,
        /// The number of edges from the source to the destination.
        n_edges: usize,
    },
    /// The fixed negatives of a part lack a link.
    #[error("the fixed negatives of the {part} split have no row for link {link}: add its negatives")]
    NoNegatives {
        /// The name of the part: `val` or `test`.
        part: &'static str,
        /// The id of the link.
        link: u32,
    },
}

impl Error {
    /// Adds the name of the node type with the error.
    pub(crate) fn in_type(self, name: &str) -> Self {
        Self::InPart { part: format!("node type `{name}`"), source: Box::new(self) }
    }

    /// Returns the error for features whose element type is unknown or differs between rows.
    pub(crate) fn unknown_row_type(row_type: FeatureDType) -> Self {
        Self::BadParameter {
            what: "the element type of the features",
            expected: "f32, f16 or bf16, and the same in all rows",
            got: row_type.to_string(),
        }
    }
}

/// Returns [`Error::BadParameter`] unless `holds` is true.
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

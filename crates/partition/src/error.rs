use std::path::PathBuf;

use kiln_graph::{EdgeId, file_prefix};

use crate::PartitionRow;

/// An error of partitioning a graph, or of writing or reading partitions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of its range.
    #[error("{what} is {got}, expected {expected}")]
    BadParameter {
        /// The name of the parameter.
        what: &'static str,
        /// The valid values.
        expected: String,
        /// The value given.
        got: String,
    },
    /// A folder is no partition, but a dataset or a folder of partitions, or does not exist.
    #[error("{}: expected the folder of a partition, got {got}", folder.display())]
    NotAPartition {
        /// The folder.
        folder: PathBuf,
        /// What the folder is, and what to do.
        got: String,
    },
    /// A partition book is inconsistent.
    #[error(
        "{}partition book: {what} is {got}, expected {expected}: partition the data set again",
        file_prefix(file.as_deref())
    )]
    BadBook {
        /// The memory-mapped file of the book's new ids or of a partition's nodes, whichever was read; `None` if the
        /// array is in memory.
        file: Option<PathBuf>,
        /// The name and the position of the invalid value, for the message.
        what: String,
        /// The valid values.
        expected: String,
        /// The value found.
        got: u32,
    },
    /// A data set has links, and the neighbours of a node of its graph do not ascend. A batch of links could not leave
    /// out its own edges.
    #[error(
        "the data set has links, but the neighbours in its graph do not ascend, expected a sorted graph: convert the \
         data set from an edge list (kiln data convert), which sorts them, or split the graph without its \
         links (kiln data split-links)"
    )]
    UnsortedNeighbors,
    /// The node of a row does not have an edge whose features were requested.
    #[error(
        "{}row {} of partition {part} has no edge {}: the edge is of another graph, or first_edges.npy or indptr.npy is \
         damaged: verify the partition (kiln serve --verify)",
        file_prefix(file.as_deref()),
        row.0,
        edge.0
    )]
    UnknownEdge {
        /// The file of the ids of each row's first edge; `None` if they are in memory.
        file: Option<PathBuf>,
        /// The id of the edge in the whole graph.
        edge: EdgeId,
        /// The row of its destination.
        row: PartitionRow,
        /// The index of the partition.
        part: usize,
    },
    /// METIS was requested, but this program was built without it.
    #[error(
        "this program was built without METIS: build it with the feature `metis`, or use the method fennel"
    )]
    NoMetis,
    /// The graph is too large for METIS, which counts with `i32`.
    #[error("METIS supports at most {max} {what}, but the graph has {n}: use the method fennel")]
    TooLargeForMetis {
        /// The elements counted: nodes or adjacency entries.
        what: &'static str,
        /// The number of elements in the graph.
        n: u64,
        /// The largest number that METIS supports.
        max: u64,
    },
    /// METIS, which holds the graph in memory several times, needs more memory than is available.
    #[error(
        "METIS needs about {needed_bytes} bytes of memory, but {available_bytes} are available: use the method fennel"
    )]
    MemoryForMetis {
        /// The estimated memory that METIS needs, in bytes; see [`Method::Metis`](crate::Method::Metis).
        needed_bytes: u64,
        /// The available memory that the system reports, in bytes.
        available_bytes: u64,
    },
    /// METIS failed.
    #[error("METIS failed: {said}: use the method fennel")]
    Metis {
        /// The error message of METIS.
        said: String,
    },
    /// Files could not be read or written, or have invalid contents.
    #[error(transparent)]
    Store(#[from] kiln_store::Error),
    /// The data of a partition are not a valid data set.
    #[error(transparent)]
    Data(kiln_data::Error),
    /// The graph is damaged.
    #[error("cannot use the graph: {0}")]
    Graph(#[from] kiln_graph::Error),
    /// Feature rows could not be read.
    #[error("feature rows could not be read: {0}")]
    Feature(#[from] kiln_feature::Error),
    /// An epoch could not be presampled.
    #[error("an epoch could not be presampled: {0}")]
    Sample(#[from] kiln_sample::Error),
}

impl From<kiln_data::Error> for Error {
    /// Converts file errors to [`Error::Store`], so that their variant does not depend on the crate that read the file.
    fn from(error: kiln_data::Error) -> Self {
        match error {
            kiln_data::Error::Store(error) => Self::Store(error),
            error => Self::Data(error),
        }
    }
}

use std::path::PathBuf;

use kiln_graph::file_prefix;

/// Why a graph could not be parted, or a part not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of its range.
    #[error("{what} is {got}, expected {expected}")]
    BadParameter {
        /// Which parameter.
        what: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// A partition book contradicts itself.
    #[error("{}the partition book: {what} is {got}, expected {expected}: make the parts again", file_prefix(file.as_deref()))]
    BadBook {
        /// The file that the new ids are mapped from, if they are.
        file: Option<PathBuf>,
        /// What does not fit.
        what: String,
        /// What it may be.
        expected: String,
        /// What it is.
        got: u32,
    },
    /// METIS was asked for and is not there.
    #[error(
        "this program was built without METIS: build it with the feature `metis`, or take the method fennel"
    )]
    NoMetis,
    /// METIS counts with 32 bits.
    #[error("METIS takes at most {max} {what}, the graph has {n}: take the method fennel")]
    TooLargeForMetis {
        /// What there are too many of.
        what: &'static str,
        /// How many there are.
        n: u64,
        /// The most that it takes.
        max: u64,
    },
    /// METIS keeps the graph in memory several times.
    #[error(
        "METIS needs about {needed_bytes} bytes of memory, {available_bytes} are available: take the method fennel"
    )]
    MemoryForMetis {
        /// By the rule on [`Method::Metis`](crate::Method::Metis).
        needed_bytes: u64,
        /// What the system says.
        available_bytes: u64,
    },
    /// METIS gave up.
    #[error("METIS: {said}: take the method fennel")]
    Metis {
        /// What it said.
        said: String,
    },
    /// Files could not be read or written, or do not contain what they should.
    #[error(transparent)]
    Store(#[from] kiln_store::Error),
    /// The data of a part are no data set.
    #[error(transparent)]
    Data(kiln_data::Error),
    /// The graph is damaged.
    #[error("graph: {0}")]
    Graph(#[from] kiln_graph::Error),
    /// Feature rows could not be read.
    #[error("features: {0}")]
    Feature(#[from] kiln_feature::Error),
    /// Batches could not be sampled ahead.
    #[error("sampling ahead: {0}")]
    Sample(#[from] kiln_sample::Error),
}

impl From<kiln_data::Error> for Error {
    /// An error of a file is [`Error::Store`], whichever crate read the file.
    fn from(error: kiln_data::Error) -> Self {
        match error {
            kiln_data::Error::Store(error) => Self::Store(error),
            error => Self::Data(error),
        }
    }
}

use kiln_comm::TransientError;

use crate::ItemSelectionError;

/// An error while files of predictions are written, or in the edges that are requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested edges are not those of the data.
    #[error(transparent)]
    Edges(#[from] EdgeRequestError),
    /// The items or links that are requested are not those of the data.
    #[error(transparent)]
    Selection(#[from] ItemSelectionError),
    /// The model cannot score the links.
    #[error(transparent)]
    Train(#[from] kiln_train::Error),
    /// The edges or the links of the data are damaged, or a file of ids is invalid.
    #[error(transparent)]
    Data(#[from] kiln_data::Error),
    /// A file could not be written.
    #[error(transparent)]
    Store(#[from] kiln_store::Error),
    /// A Parquet file could not be written.
    #[cfg(feature = "tables")]
    #[error(transparent)]
    Tables(#[from] kiln_tables::Error),
    /// A collective of the ranks failed.
    #[error(transparent)]
    Comm(#[from] kiln_comm::Error),
    /// The rank that owns the folder of several ranks was lost, and removed it: another attempt may succeed.
    #[error(transparent)]
    OwnerLost(TransientError),
}

/// An error in the pairs of nodes whose edges are to be predicted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EdgeRequestError {
    /// A pair of nodes has no edge, whose features the model reads.
    #[error(
        "pair {position} (from 0) has no edge in the data, whose features the model reads: add the edge to the data, or remove \
         the pair"
    )]
    NoEdge {
        /// The position of the pair in the request, from 0.
        position: usize,
    },
    /// A pair of nodes has several edges.
    #[error(
        "pair {position} (from 0) has {n_edges} edges in the data, {first} and {second} among them: select edges by their ids \
         (--nodes FILE)"
    )]
    Ambiguous {
        /// The position of the pair in the request, from 0.
        position: usize,
        /// The number of edges.
        n_edges: usize,
        /// The first of them.
        first: u32,
        /// The second of them.
        second: u32,
    },
}

impl Error {
    /// Returns true if another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::OwnerLost(_) => true,
            Self::Train(error) => error.is_transient(),
            _ => false,
        }
    }

    /// Returns true if the request of the user is wrong, and not a file.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Selection(error) if error.is_usage())
    }
}

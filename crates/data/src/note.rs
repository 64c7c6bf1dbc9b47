use std::fmt;
use std::path::PathBuf;

/// What a reader did or noticed that the user should know. Nothing is wrong enough to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// An array could not be used as it is stored, and was copied to memory.
    Converted {
        /// The file.
        path: PathBuf,
        /// What it holds.
        from: String,
        /// What was made of it, and what would spare the copy.
        to: String,
    },
    /// Nodes stand in two parts of the split: what is measured on one part was learnt on the other.
    SplitsOverlap {
        /// The names of the parts.
        parts: [&'static str; 2],
        /// How many nodes stand in both.
        n_nodes: usize,
    },
    /// The reverse of each edge was added.
    ReverseEdgesAdded {
        /// Why.
        reason: String,
    },
    /// The reverse edges that OGB's library adds to some sets were not added: which set it is cannot be told.
    ReverseEdgesNotAdded {
        /// The folder's name, by which OGB's sets are told.
        name: String,
    },
    /// Something that only one kind of data has.
    Other(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Converted { path, from, to } => write!(f, "{}: {from} were copied: {to}", path.display()),
            Self::SplitsOverlap { parts: [a, b], n_nodes } => write!(
                f,
                "{n_nodes} nodes stand in both {a} and {b}: a score on {b} is not one on unseen nodes"
            ),
            Self::ReverseEdgesAdded { reason } => write!(f, "the reverse of each edge was added: {reason}"),
            Self::ReverseEdgesNotAdded { name } => write!(
                f,
                "no reverse edges were added: {name} is the name of no OGB set that is known; if it is ogbn-products, \
                add them with Dataset::symmetrize or convert --symmetrize"
            ),
            Self::Other(text) => f.write_str(text),
        }
    }
}

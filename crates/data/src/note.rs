use std::fmt;
use std::path::PathBuf;

/// Information from a reader that the user should know. A note is not an error: reading has succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// An array could not be mapped with its stored element type or layout and was copied to memory.
    Converted {
        /// The path of the file.
        path: PathBuf,
        /// The stored elements, such as `4 elements of <i8`.
        from: String,
        /// The elements of the copy, and how to avoid the copy.
        to: String,
    },
    /// Two parts of the split share nodes, so that a score on one part includes nodes of the other.
    SplitsOverlap {
        /// The names of the two parts, such as `train` and `test`.
        parts: [&'static str; 2],
        /// The number of nodes that are in both parts.
        n_nodes: usize,
    },
    /// Links of an evaluation are edges of the graph that passes messages, or their reverses are.
    LinksInGraph {
        /// The name of the part: `val` or `test`.
        part: &'static str,
        /// The number of links that are edges.
        n_links: usize,
        /// The number of links whose reverse is an edge.
        n_reversed: usize,
    },
    /// Links have reverses in a relation that passes messages and was not named as the reverse relation.
    LinksInRelation {
        /// The name of the part: `train`, `val` or `test`.
        part: &'static str,
        /// The name of the relation.
        relation: String,
        /// The number of links whose reverse is an edge of the relation.
        n_reversed: usize,
    },
    /// The reverse of each edge was added.
    ReverseEdgesAdded {
        /// The reason for adding the reverse edges.
        reason: String,
    },
    /// The reverse edges that OGB's library adds to some sets were not added, because the set could not be identified.
    ReverseEdgesNotAdded {
        /// The folder's name, which does not identify an OGB set.
        name: String,
    },
    /// A file or folder was opened whose path is also the name of a built-in or synthetic set.
    HasNameOfDataset {
        /// The path of the file or folder.
        path: PathBuf,
        /// The name, which is also that of the set.
        name: String,
    },
    /// A note that is specific to one format.
    Other(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Converted { path, from, to } => write!(f, "{}: {from} were copied to {to}", path.display()),
            Self::SplitsOverlap { parts: [a, b], n_nodes } => write!(
                f,
                "{n_nodes} nodes are in both the {a} and the {b} split: scores on {b} do not measure unseen nodes"
            ),
            Self::LinksInGraph { part, n_links, n_reversed } => write!(
                f,
                "{n_links} links of the {part} split are edges of the graph that passes messages, and {n_reversed} \
                have a reverse edge there: scores on {part} do not measure unseen links"
            ),
            Self::LinksInRelation { part, relation, n_reversed } => write!(
                f,
                "{n_reversed} links of the {part} split have a reverse edge in the relation `{relation}`, which passes \
                messages and tells the links to the model: name it as the reverse relation, or remove it"
            ),
            Self::ReverseEdgesAdded { reason } => write!(f, "the reverse of each edge was added: {reason}"),
            Self::ReverseEdgesNotAdded { name } => write!(
                f,
                "no reverse edges were added: {name} is not the name of a known OGB set; if it is ogbn-products, \
                add them (--symmetrize of `kiln train` and `kiln data convert`)"
            ),
            Self::HasNameOfDataset { path, name } => {
                let kind = if path.is_dir() { "folder" } else { "file" };
                write!(
                    f,
                    "the {kind} `{}` is used; the built-in set has the same name: rename the {kind}, or work in another \
                    folder, to use {name}",
                    path.display()
                )
            }
            Self::Other(text) => f.write_str(text),
        }
    }
}

use std::borrow::Cow;

use crate::graph_folder::{RowFiles, numbered};

/// The names of the files of a data set in the kiln format, and the order of its arrays in the hash.
///
/// A set keeps the layout in which it was made, because the names of its types do not determine it: a heterogeneous set may
/// have one node type that is called `node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The layout of a graph with the node type `node` and the relation `edge`: `features.npy`, `indptr.npy`.
    Plain,
    /// The layout of a heterogeneous graph, whose files have the position of their node type or relation: `features.0.npy`,
    /// `indptr.0.npy`. The hash depends on the names and the order of node types and relations.
    Numbered,
}

impl Layout {
    /// Returns the name of a file of the node type or relation at a position.
    ///
    /// ```
    /// use kiln_data::Layout;
    /// assert_eq!(Layout::Plain.file("indptr.npy", 0), "indptr.npy");
    /// assert_eq!(Layout::Numbered.file("indptr.npy", 2), "indptr.2.npy");
    /// ```
    pub fn file(self, name: impl Into<Cow<'static, str>>, position: usize) -> Cow<'static, str> {
        let name = name.into();
        match self {
            Self::Plain => name,
            Self::Numbered => Cow::Owned(numbered(&name, position)),
        }
    }

    /// Returns the files of rows of the node type at a position.
    pub fn rows(self, files: &RowFiles, position: usize) -> RowFiles {
        match self {
            Self::Plain => files.clone(),
            Self::Numbered => files.of_type(position),
        }
    }
}

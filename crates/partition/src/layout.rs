use std::borrow::Cow;

use kiln_data::graph_folder::{
    RowFiles, numbered, read_graph, read_relation, verify_edge_data, verify_relation_weights,
};
use kiln_graph::Csc;
use kiln_store::array_folder::ArrayFolder;

use crate::Result;

/// The encoding of a partition on disk: the names of its files and the keys of its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartLayout {
    /// One node type and one relation, without names: `indptr.npy`.
    Plain,
    /// Lists of node types and relations, whose files have the position in their names: `indptr.0.npy`.
    Numbered,
}

impl PartLayout {
    /// Returns the name of the file of the node type or relation at a position.
    pub(crate) fn file(self, name: &'static str, position: usize) -> Cow<'static, str> {
        match self {
            Self::Plain => Cow::Borrowed(name),
            Self::Numbered => Cow::Owned(numbered(name, position)),
        }
    }

    /// Returns the files of feature rows of the node type at a position.
    pub(crate) fn rows(self, files: &RowFiles, position: usize) -> RowFiles {
        match self {
            Self::Plain => files.clone(),
            Self::Numbered => files.of_type(position),
        }
    }

    /// Returns a key of the manifest for messages, such as `dim` or `node_types[2].dim`.
    pub(crate) fn key(self, list: &str, position: usize, name: &str) -> String {
        match self {
            Self::Plain => name.to_owned(),
            Self::Numbered => format!("{list}[{position}].{name}"),
        }
    }

    /// Returns true if edges may have types and features.
    pub(crate) fn has_edge_data(self) -> bool {
        self == Self::Plain
    }

    /// Returns the edges of the relation at a position.
    pub(crate) fn read_edges(self, arrays: &ArrayFolder, position: usize) -> Result<Csc> {
        Ok(match self {
            Self::Plain => read_graph(arrays)?,
            Self::Numbered => read_relation(arrays, position)?,
        })
    }

    /// Reads and checks the weights and types of the edges of the relation at a position.
    pub(crate) fn verify_edge_data(
        self,
        arrays: &ArrayFolder,
        position: usize,
        edge_type_names: &[String],
    ) -> Result<()> {
        match self {
            Self::Plain => verify_edge_data(arrays, edge_type_names)?,
            Self::Numbered => verify_relation_weights(arrays, position)?,
        }
        Ok(())
    }
}

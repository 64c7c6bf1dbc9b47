use kiln_data::Layout;
use kiln_data::graph_folder::{read_graph, read_relation, verify_edge_data, verify_relation_weights};
use kiln_graph::Csc;
use kiln_store::array_folder::ArrayFolder;

use crate::Result;

/// What the layout of a data set determines about its partitions: the names of files and the keys of the manifest.
pub(crate) trait PartLayout: Copy {
    /// Returns a key of the manifest for messages, such as `dim` or `node_types[2].dim`.
    fn key(self, list: &str, position: usize, name: &str) -> String;

    /// Returns true if edges may have types and features.
    fn has_edge_data(self) -> bool;

    /// Returns the edges of the relation at a position.
    fn read_edges(self, arrays: &ArrayFolder, position: usize) -> Result<Csc>;

    /// Reads and checks the weights and types of the edges of the relation at a position.
    fn verify_edge_data(
        self,
        arrays: &ArrayFolder,
        position: usize,
        edge_type_names: &[String],
    ) -> Result<()>;
}

impl PartLayout for Layout {
    fn key(self, list: &str, position: usize, name: &str) -> String {
        match self {
            Self::Plain => name.to_owned(),
            Self::Numbered => format!("{list}[{position}].{name}"),
        }
    }

    fn has_edge_data(self) -> bool {
        self == Self::Plain
    }

    fn read_edges(self, arrays: &ArrayFolder, position: usize) -> Result<Csc> {
        Ok(match self {
            Self::Plain => read_graph(arrays)?,
            Self::Numbered => read_relation(arrays, position)?,
        })
    }

    fn verify_edge_data(
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

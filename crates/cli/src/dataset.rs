//! The datasets of graphs of nodes and edges that a run opens.

use kiln::data::Dataset;
use kiln::{DataDims, GraphSource};

use crate::flags::model::ModelGraph;

/// A dataset that a run has opened and prepared.
pub(crate) struct OpenedDataset {
    pub(crate) data: Dataset,
    /// The hash of the data, if a manifest records it.
    pub(crate) recorded_hash: Option<String>,
}

impl OpenedDataset {
    /// Returns the graph that loaders read.
    pub(crate) fn source(&self) -> GraphSource {
        let source = GraphSource::from(&self.data);
        match &self.recorded_hash {
            Some(hash) => source.with_hash(hash),
            None => source,
        }
    }

    /// Returns the hash of the data.
    pub(crate) fn hash(&self) -> kiln::data::Result<String> {
        self.recorded_hash.clone().map_or_else(|| self.data.hash(), Ok)
    }

    /// Returns what the configuration of a model takes from the graph.
    pub(crate) fn model_graph(&self) -> ModelGraph<'_> {
        match self.data.is_heterogeneous() {
            false => ModelGraph::OneType(&self.data),
            true => ModelGraph::SeveralTypes {
                metagraph: self.data.graph.metagraph(),
                dims: self.data.dims(),
                edge_widths: self.data.edge_widths(),
            },
        }
    }
}

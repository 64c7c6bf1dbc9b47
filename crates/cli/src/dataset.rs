//! The datasets of graphs that `kiln train` opens, with one type of nodes or several.

use std::sync::Arc;

use kiln::GraphSource;
use kiln::data::{Dataset, TypedDataset, TypedTargets};
use kiln::graph::Csc;

use crate::flags::model::ModelGraph;

/// A dataset of a graph. Clones share the arrays.
#[derive(Clone)]
pub(crate) enum GraphData {
    /// The nodes have one type.
    OneType(Dataset),
    /// There are several types of nodes, or relations with names.
    SeveralTypes(TypedDataset),
}

/// A dataset that a run has opened and prepared.
pub(crate) struct OpenedDataset {
    pub(crate) data: GraphData,
    /// The hash of the data, if a manifest records it.
    pub(crate) recorded_hash: Option<String>,
}

impl OpenedDataset {
    /// Returns the graph that loaders read.
    pub(crate) fn source(&self) -> GraphSource {
        let source: GraphSource = match &self.data {
            GraphData::OneType(data) => data.into(),
            GraphData::SeveralTypes(data) => data.into(),
        };
        match &self.recorded_hash {
            Some(hash) => source.with_hash(hash),
            None => source,
        }
    }

    /// Returns the hash of the data.
    pub(crate) fn hash(&self) -> kiln::data::Result<String> {
        match (&self.recorded_hash, &self.data) {
            (Some(hash), _) => Ok(hash.clone()),
            (None, GraphData::OneType(data)) => data.hash(),
            (None, GraphData::SeveralTypes(data)) => data.hash(),
        }
    }
}

impl GraphData {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::OneType(data) => &data.name,
            Self::SeveralTypes(data) => &data.name,
        }
    }

    /// Returns the targets of the nodes and their split; `None` for data without targets.
    pub(crate) fn targets(&self) -> Option<TypedTargets> {
        match self {
            Self::OneType(data) => Some(TypedTargets {
                node_type: 0,
                values: data.targets(),
                split: data.split.clone(),
                class_names: data.class_names.clone(),
            }),
            Self::SeveralTypes(data) => data.targets.clone(),
        }
    }

    /// Returns true if the data has a split of links.
    pub(crate) fn has_links(&self) -> bool {
        match self {
            Self::OneType(data) => data.links.is_some(),
            Self::SeveralTypes(data) => data.links.is_some(),
        }
    }

    /// Returns what the configuration of a model takes from the graph.
    pub(crate) fn model_graph(&self) -> ModelGraph<'_> {
        match self {
            Self::OneType(data) => ModelGraph::OneType(data),
            Self::SeveralTypes(data) => {
                ModelGraph::SeveralTypes { metagraph: data.graph.metagraph(), dims: data.dims() }
            }
        }
    }

    /// Returns all edges of a relation, by the ids of all nodes.
    pub(crate) fn whole_graph(&self, relation: usize) -> kiln::Result<Arc<Csc>> {
        Ok(match self {
            Self::OneType(data) => Arc::clone(&data.graph),
            Self::SeveralTypes(data) => Arc::new(data.graph.whole_graph(relation)?),
        })
    }
}

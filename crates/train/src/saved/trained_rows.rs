use std::sync::Arc;

use kiln_graph::NodeId;

use crate::error::Result;
use crate::saved::error::{ModelError, ModelNodesError};
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::embedding_error::EmbeddingError;
use crate::step::embedding::node_keys::NodeKeys;

/// The trained rows of the nodes of a type without features.
#[derive(Debug, Clone)]
pub(crate) enum TrainedRowIds {
    /// Node `v` has row `v`, because the nodes have no names.
    ById,
    /// The row of each node; [`NodeKeys::NO_NODE`] for a node without one.
    ByName(Arc<[NodeId]>),
}

impl TrainedRowIds {
    /// Finds the rows of the `n_nodes` nodes of a type in the table of a model. `keys` are those of the names of the nodes.
    pub(crate) fn find(
        table: &NodeEmbedding,
        keys: Option<&NodeKeys>,
        n_nodes: usize,
        node_type: &str,
    ) -> Result<Self> {
        let node_type = || node_type.to_owned();
        match (table.keys(), keys) {
            (_, Some(keys)) if keys.len() != n_nodes => {
                Err(EmbeddingError::Keys { expected: n_nodes, got: keys.len() }.into())
            }
            (None, None) if table.n_nodes() == n_nodes => Ok(Self::ById),
            (None, _) => {
                Err(ModelError::Nodes(ModelNodesError::RowsWithoutNames { node_type: node_type() }).into())
            }
            (Some(of_model), Some(of_data)) => Ok(Self::ByName(of_model.nodes_of(of_data))),
            (Some(_), None) => {
                Err(ModelError::Nodes(ModelNodesError::NoNames { node_type: node_type() }).into())
            }
        }
    }

    /// Replaces nodes by their rows.
    pub(crate) fn replace(&self, nodes: &mut [NodeId]) {
        if let Self::ByName(rows) = self {
            nodes.iter_mut().for_each(|node| *node = rows[node.index()]);
        }
    }
}

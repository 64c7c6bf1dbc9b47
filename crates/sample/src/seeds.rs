use std::sync::Arc;

use kiln_graph::{LocalId, NodeId};

use crate::ExcludedEdges;

/// The seeds of a batch: the nodes for which outputs are computed.
///
/// The list may contain duplicates. A duplicate node is one destination of the last block, at the position of its
/// first appearance. `SampledBlocks::seed_index` maps each entry of the list to its row of the model's output. Labels
/// align with the list, so a duplicate seed counts twice in the loss.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seeds {
    nodes: Vec<NodeId>,
    excluded: Option<Arc<ExcludedEdges>>,
}

impl Seeds {
    /// Creates seeds from node ids.
    pub fn nodes(nodes: Vec<NodeId>) -> Self {
        Self { nodes, excluded: None }
    }

    /// Sets the edges that samples leave out, in every layer.
    #[must_use]
    pub fn excluding(self, excluded: impl Into<Option<Arc<ExcludedEdges>>>) -> Self {
        Self { excluded: excluded.into(), ..self }
    }

    /// Returns the edges that samples leave out; `None` if there are none.
    pub fn excluded(&self) -> Option<&Arc<ExcludedEdges>> {
        self.excluded.as_ref()
    }

    /// Returns the node ids in the given order, including duplicates.
    pub fn as_nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the distinct nodes in the order of their first appearance. `rows` is the row of each entry
    /// ([`SampledBlocks::seed_index`](crate::SampledBlocks::seed_index)).
    pub fn distinct(&self, rows: &[LocalId]) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for (&node, row) in self.nodes.iter().zip(rows) {
            if row.index() == nodes.len() {
                nodes.push(node);
            }
        }
        nodes
    }

    /// Returns the number of seeds, including duplicates.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there are no seeds.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

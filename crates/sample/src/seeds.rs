use kiln_graph::{LocalId, NodeId};

/// What a batch is computed for: today a list of nodes of one type.
///
/// A node may stand in the list more than once. It then becomes one destination of the last block, in
/// the place of its first appearance, and `SampledBlocks::seed_index` says for each entry of the list which
/// row of the model's output belongs to it; labels align with the list as given, so that a seed that
/// stands twice counts twice in the loss.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seeds {
    nodes: Vec<NodeId>,
}

impl Seeds {
    /// Seeds that are nodes.
    pub fn nodes(nodes: Vec<NodeId>) -> Self {
        Self { nodes }
    }

    /// The nodes, as given.
    pub fn as_nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The nodes without repetitions, in the order of their first appearance, from the row of each entry
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

    /// How many entries there are, duplicates counted.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

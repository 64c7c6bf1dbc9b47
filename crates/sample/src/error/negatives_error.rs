use kiln_graph::{LinkId, NodeId};

/// An error in negatives, or in their sampler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NegativesError {
    /// Negatives are drawn by degree from a graph without edges.
    #[error("negatives cannot be drawn by degree: the graph has no edges: draw them uniformly")]
    NoEdges,
    /// A custom sampler of negatives returned a node that does not exist.
    #[error("the sampler of negatives returned node {}, but the graph has {n_nodes} nodes, numbered from 0", node.0)]
    NegativeOutOfRange {
        /// The node id that is out of range.
        node: NodeId,
        /// The number of nodes in the graph.
        n_nodes: usize,
    },
    /// Fixed negatives lack a link.
    #[error("the fixed negatives have no row for link {}: add its negatives, or draw negatives", link.0)]
    NoFixedNegatives {
        /// The id of the link.
        link: LinkId,
    },
}

use kiln_graph::{LinkId, NodeId};

/// An error in negatives, or in their sampler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NegativesError {
    /// Negatives are drawn by degree from a graph without edges.
    #[error("negatives cannot be drawn by degree: the graph has no edges: draw them uniformly")]
    NoEdges,
    /// Negatives of the past are drawn from a graph whose edges have no times.
    #[error(
        "negatives cannot be drawn from the past: the edges of the graph have no times: draw them uniformly"
    )]
    NoEdgeTimes,
    /// A sampler of negatives reads the times of links, which have none.
    #[error(
        "the negatives `{sampler}` read the times of links, and these links have none: let messages pass at the times of \
         items, or draw negatives uniformly"
    )]
    NoLinkTimes {
        /// The name of the sampler.
        sampler: String,
    },
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

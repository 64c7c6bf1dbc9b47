/// An error in the edges of relations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelationEdgesError {
    /// A block whose edges are grouped by relation has no edge types.
    #[error("the block has no edge types, which are the relations of its edges: sample with edge types")]
    NoEdgeTypes,
    /// The edges of a destination are not in the order of the relations into its type.
    #[error(
        "edge {edge} of the block, into node {node}, is of relation {relation}: expected the relations into the node's type, in ascending order"
    )]
    RelationOrder {
        /// The position of the edge in the block.
        edge: usize,
        /// The relation of the edge.
        relation: usize,
        /// The node id of the destination.
        node: u32,
    },
    /// An edge list of a relation refers to a node that its type does not have.
    #[error("edge {edge} refers to node {node} of type `{name}`, which has {n_nodes} nodes, numbered from 0")]
    NotInType {
        /// The position of the edge in the edge list.
        edge: u64,
        /// The node id within the type.
        node: u32,
        /// The name of the type.
        name: String,
        /// The number of nodes of the type.
        n_nodes: usize,
    },
    /// An edge does not come from a node of the sources' type.
    #[error("edge {edge} comes from node {node}, expected a node of type `{name}`, which are {start}..{end}")]
    NotOfType {
        /// The position of the edge in the relation's `indices`.
        edge: u64,
        /// The source of the edge.
        node: u32,
        /// The name of the sources' type.
        name: String,
        /// The first node of the type.
        start: u32,
        /// The end of the nodes of the type.
        end: u32,
    },
}

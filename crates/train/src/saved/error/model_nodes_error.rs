use kiln_feature::ColumnDifference;
use kiln_graph::NodeId;

/// An error in the nodes of the data, their features or their names for a saved model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelNodesError {
    /// The features have another number of columns than the training data.
    #[error(
        "the model reads {expected} feature columns, but the data has {got}: use data with the same columns"
    )]
    FeatureWidth {
        /// The number of columns of the training data.
        expected: usize,
        /// The number of columns of the data.
        got: usize,
    },
    /// The feature columns of a type of nodes have another meaning than those of the training data.
    #[error(
        "nodes of type {node_type:?}: {difference}: use data with the columns of the training data; `kiln data import \
         --transforms-of` imports new tables with the statistics and categories of the training data"
    )]
    OtherColumns {
        /// The name of the type.
        node_type: String,
        /// The first difference.
        difference: ColumnDifference,
    },
    /// There are fewer feature rows than nodes.
    #[error("the data has {n_rows} feature rows for {n_nodes} nodes: expected one per node")]
    TooFewRows {
        /// The number of feature rows.
        n_rows: usize,
        /// The number of nodes.
        n_nodes: usize,
    },
    /// The model was trained with a kind of node features that this version of kiln does not know.
    #[error(
        "the model was trained with node features of the unknown kind {kind:?}: pass the features yourself"
    )]
    UnknownNodeFeatures {
        /// The kind in the description of the model.
        kind: String,
    },
    /// The model has no names of the nodes of a type, because it was trained on nodes without names, or on partitions of an
    /// older version of kiln, so it finds their trained rows by id, but the data has names or another number of nodes.
    #[error(
        "the model was trained without names of the nodes of type {node_type:?}, and finds their trained rows by id, so it can \
         predict on the data of its training only: train on data whose nodes have names, and partition it again if an older \
         version of kiln wrote its partitions"
    )]
    RowsWithoutNames {
        /// The name of the type.
        node_type: String,
    },
    /// A list has not one entry per type of nodes.
    #[error("got {got} {what}, expected {expected}: one per type of nodes")]
    NumberOfTypes {
        /// What the list has.
        what: &'static str,
        /// The number of types.
        expected: usize,
        /// The number of entries.
        got: usize,
    },
    /// The nodes of a type have no names, by which the model finds their trained rows.
    #[error(
        "the nodes of type {node_type:?} have no names, but the model finds their trained rows by name: use data whose nodes have \
         names, such as an import of tables, or partition it again if an older version of kiln wrote its partitions"
    )]
    NoNames {
        /// The name of the type.
        node_type: String,
    },
    /// A requested node is not in the graph.
    #[error("node {} is not in the graph: expected an id below {n_nodes}", node.0)]
    NoSuchNode {
        /// The requested node.
        node: NodeId,
        /// The number of nodes of the graph.
        n_nodes: usize,
    },
    /// The row of a node was not computed for the scores of links.
    #[error("node {} has no row: create the scorer with all nodes of the links", node.0)]
    NoRow {
        /// The node.
        node: NodeId,
    },
}

use kiln_graph::NodeId;

/// Rows, gradients or types of nodes do not fit a [`NodeEmbedding`](crate::NodeEmbedding).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddingError {
    /// Gradients do not have one row per node, or another width than the table.
    #[error(
        "{n_values} values are no gradients of {n_nodes} rows of the embedding: pass one row of its width per node"
    )]
    Gradients {
        /// The number of nodes.
        n_nodes: usize,
        /// The number of values.
        n_values: usize,
    },
    /// A table has no columns, or is too large.
    #[error(
        "an embedding of {n_nodes} rows of {dim} columns is impossible or does not fit in memory: use fewer columns, at least 1"
    )]
    TooLarge {
        /// The number of rows.
        n_nodes: usize,
        /// The number of columns.
        dim: usize,
    },
    /// A node has no row.
    #[error("node {} has no row in the embedding, which has {n_nodes} rows, numbered from 0", node.0)]
    NoRow {
        /// The node.
        node: NodeId,
        /// The number of rows.
        n_nodes: usize,
    },
    /// A table has another number of keys than rows.
    #[error("got {got} keys for an embedding of {expected} rows: pass one per node")]
    Keys {
        /// The number of rows.
        expected: usize,
        /// The number of keys.
        got: usize,
    },
    /// The optimizer is not Adam, but the task has embeddings.
    #[error(
        "nodes without features have trainable rows, which a sparse Adam trains with the learning rate of the optimizer: use \
         Adam or AdamW"
    )]
    NeedsAdam,
    /// A batch has another number of lists of embedded nodes than the task has embeddings.
    #[error("the batch has nodes of {got} embeddings, but the task has {expected}: see Task::embedded_nodes")]
    Lists {
        /// The number of embeddings.
        expected: usize,
        /// The number of lists.
        got: usize,
    },
    /// The model has no input encoder, but the data has several types of nodes, or nodes without features.
    #[error(
        "the model reads the features of one type of nodes, but the types of the data have {got:?} feature columns: create it \
         for the widths of the data"
    )]
    NoEncoder {
        /// The widths of the data.
        got: Vec<Option<usize>>,
    },
    /// The model reads other types of nodes than the data has.
    #[error(
        "the model reads types of nodes with {expected:?} feature columns, but those of the data have {got:?}: create it \
         for the widths of the data"
    )]
    OtherTypes {
        /// The widths of the model; `None` for trainable rows.
        expected: Vec<Option<usize>>,
        /// The widths of the data.
        got: Vec<Option<usize>>,
    },
}

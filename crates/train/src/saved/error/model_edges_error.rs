/// An error in the edge types or edge features of the data for a saved model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelEdgesError {
    /// The model reads edge types, and the graph has none, or they are not recorded.
    #[error(
        "the model has {n_relations} relations, but the edge types of the graph are missing or unknown: use data with \
         edge types; partition the data again if an older version of kiln wrote the partitions"
    )]
    NoEdgeTypes {
        /// The number of relations of the model.
        n_relations: usize,
    },
    /// The graph has edge types that the model does not know.
    #[error(
        "the graph has {n_edge_types} edge types, but the model was trained with {n_relations} relations: use data with \
         the edge types of the training data"
    )]
    UnknownEdgeTypes {
        /// The number of edge types: one more than the largest.
        n_edge_types: usize,
        /// The number of relations of the model.
        n_relations: usize,
    },
    /// An edge type has another name than in the training data.
    #[error(
        "edge type {number} is `{got}`, and was `{expected}` in training: use data whose edge types have the numbers of the \
         training data"
    )]
    EdgeTypeName {
        /// The number of the type.
        number: usize,
        /// The name in training.
        expected: String,
        /// The name in the data.
        got: String,
    },
    /// The model reads a column of edges, such as their features, that was not given.
    #[error("the model reads {what} with {width} columns, which are missing: use data with {what}")]
    NoEdgeFeatures {
        /// What is missing.
        what: String,
        /// The number of columns that the model reads.
        width: usize,
    },
    /// The edges of a relation have weights and had none in training, or the other way round.
    #[error(
        "the edges of the relation `{relation}` {}: use data with the weights of the training data",
        if *is_weighted { "have weights, but had none in training" } else { "have no weights, but had some in training" }
    )]
    RelationWeights {
        /// The name of the relation.
        relation: String,
        /// True if the edges of the data have weights.
        is_weighted: bool,
    },
    /// The edges whose targets are predicted have another number of features than those of the training data.
    #[error(
        "the model reads {expected} feature columns of the edges that it predicts, but they have {got}: use edges with the \
         columns of the training data"
    )]
    ItemFeatureWidth {
        /// The number of columns of the training data; 0 if its edges had none.
        expected: usize,
        /// The number of columns of the edges; 0 if they have none.
        got: usize,
    },
    /// There is not one feature row for each edge whose targets are predicted.
    #[error("got {n_rows} feature rows of {n_edges} edges, expected one for each edge")]
    ItemFeatureRows {
        /// The number of feature rows.
        n_rows: u64,
        /// The number of edges.
        n_edges: usize,
    },
    /// A step of the model's preparation changes the edges of the data, so their features belong to other edges.
    #[error(
        "a step of the model's preparation changes the edges of this data, so their features would be those of others: build \
         the data with its reverse edges and their features"
    )]
    EdgeFeaturesOfUnprepared,
    /// The edge features of the relations have other widths than those of the training data.
    #[error(
        "the edge features of the relations have {got:?} columns, but the model was trained with {expected:?}: use data with the \
         same columns"
    )]
    RelationEdgeWidths {
        /// The number of columns of each relation that the model reads; `None` for a relation without features.
        expected: Vec<Option<usize>>,
        /// Those of the data.
        got: Vec<Option<usize>>,
    },
    /// A column of edges, such as their features, has another width than that of the training data.
    #[error("the {what} have {got} columns, but the model was trained with {expected}: use the same columns")]
    EdgeFeatureWidth {
        /// What has another width.
        what: String,
        /// The number of columns that the model reads.
        expected: usize,
        /// The number of columns of the features.
        got: usize,
    },
}

use std::io;
use std::path::PathBuf;

use kiln_graph::NodeId;

use crate::saved::model_file::{MODEL_FILE, MODEL_FORMAT, ModelTask};

/// The errors of opening a saved model, and of requests that do not fit it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file of the run folder cannot be read.
    #[error("{path}: {source}: expected a run folder with {MODEL_FILE} and best.safetensors")]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The model's description is damaged: it is no JSON, or a field is missing or has an invalid value.
    #[error("{path}: {reason}: restore the file, or train again")]
    BadInfo {
        /// The path of the file.
        path: PathBuf,
        /// The field or position, and what was expected.
        reason: String,
    },
    /// The model's description has a format that this version of kiln does not know.
    #[error(
        "{path}: the format is {found}, expected at most {MODEL_FORMAT}: use a newer version of kiln ({version})"
    )]
    UnknownFormat {
        /// The path of the file.
        path: PathBuf,
        /// The format of the file.
        found: u64,
        /// The version of kiln that wrote the file, as text for the message.
        version: String,
    },
    /// No constructor is registered for the kind of the model.
    #[error(
        "{path}: the model is a {kind:?}, expected one of {known}: open it with a ModelRegistry that has its config"
    )]
    UnknownKind {
        /// The path of the file.
        path: PathBuf,
        /// The kind in the file.
        kind: String,
        /// The registered kinds, separated by commas.
        known: String,
    },
    /// The weights are no safetensors file, do not fit the model's description, or have another hash.
    #[error("{path}: {reason}: expected the weights of {MODEL_FILE} in the same folder")]
    BadWeights {
        /// The path of the file.
        path: PathBuf,
        /// The first difference.
        reason: String,
    },
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
    /// There are fewer feature rows than nodes.
    #[error("the data has {n_rows} feature rows for {n_nodes} nodes: expected one per node")]
    TooFewRows {
        /// The number of feature rows.
        n_rows: usize,
        /// The number of nodes.
        n_nodes: usize,
    },
    /// The data was prepared with another step than the training data, which cannot be undone.
    #[error(
        "the data was {step}, but the model's training data was not, or in another order: pass the data as it was loaded"
    )]
    OtherPreparation {
        /// The first step that differs, as text for the message.
        step: &'static str,
    },
    /// The preparation of the training data is unknown, because the model was trained on partitions of an older version
    /// of kiln.
    #[error(
        "the model was trained on partitions that do not record how their data was prepared: prepare the data in the \
         same way, and name its steps with PredictionData::prepared"
    )]
    UnknownPreparation,
    /// The preparation of the data is unknown, because an older version of kiln wrote its partitions.
    #[error(
        "the partitions do not record how their data was prepared: partition the data set again with this version of kiln"
    )]
    UnrecordedPreparation,
    /// The model reads edge types, and the graph has none, or they are not recorded.
    #[error(
        "the model has {n_relations} relations, but the edge types of the graph are missing or unknown: set them with \
         CscBuilder::edge_types; partition the data again if an older version of kiln wrote the partitions"
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
    /// The model reads features of edges that were not given.
    #[error(
        "the model reads edge features with {width} columns, which are missing: use data with edge features, or call \
         PredictionData::edge_features"
    )]
    NoEdgeFeatures {
        /// The number of columns that the model reads.
        width: usize,
    },
    /// A step of the model's preparation changes the edges of the data, so their features belong to other edges.
    #[error(
        "a step of the model's preparation changes the edges of this data, so their features would be those of others: build \
         the data with its reverse edges and their features (Dataset::builder(..).symmetrize())"
    )]
    EdgeFeaturesOfUnprepared,
    /// The features of edges have another number of columns than those of the training data.
    #[error(
        "the edge features have {got} columns, but the model was trained with {expected}: use the same columns"
    )]
    EdgeFeatureWidth {
        /// The number of columns that the model reads.
        expected: usize,
        /// The number of columns of the features.
        got: usize,
    },
    /// The model was trained with a kind of node features that this version of kiln does not know.
    #[error(
        "the model was trained with node features of the unknown kind {kind:?}: pass the features yourself"
    )]
    UnknownNodeFeatures {
        /// The kind in the description of the model.
        kind: String,
    },
    /// The graph is partitioned, and the model or the mode needs all of it.
    #[error(
        "{what} needs the whole graph: predict on the dataset instead of its partitions, or use another mode"
    )]
    NeedsWholeGraph {
        /// The step that is not possible, as text for the message.
        what: &'static str,
    },
    /// Each rank was to get its own outputs in exact mode, which rank 0 computes alone.
    #[error("rank 0 computes exact predictions alone: request one output for all ranks, or use another mode")]
    ExactOnRankZero,
    /// The model is for a heterogeneous graph.
    #[error("the model reads a heterogeneous graph: predict on a heterogeneous dataset")]
    Heterogeneous,
    /// The model is not for a heterogeneous graph.
    #[error(
        "the model reads no heterogeneous graph: predict on a dataset with one type of nodes and without relation names"
    )]
    NotHeterogeneous,
    /// The graph has other types of nodes, feature columns or relations than the training data, or in another order.
    #[error(
        "the data has the node types [feature columns] and relations {got:?}, but the model was trained with {expected:?}: use \
         data with the same ones, in the same order"
    )]
    OtherSchema {
        /// The types and relations of the training data.
        expected: String,
        /// Those of the data.
        got: String,
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
    /// A predictor was to use another model than its own.
    #[error("the model differs from the predictor's: open it from the same run folder")]
    OtherModel,
    /// The request is for another task than the model's.
    #[error("the model was trained for {got}, but the request needs a model of {expected}")]
    OtherTask {
        /// The task of the request.
        expected: ModelTask,
        /// The task of the model.
        got: ModelTask,
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
    /// The number of fanouts differs from the number of layers.
    #[error("got {n_fanouts} fanouts for a model of {n_layers} layers: give one fanout per layer")]
    FanoutsMismatch {
        /// The number of fanouts.
        n_fanouts: usize,
        /// The number of layers of the model.
        n_layers: usize,
    },
    /// Fanouts name a relation, but the model is not for a heterogeneous graph.
    #[error(
        "the fanouts name the relation `{name}`, but the data of the model has no named relations: give one list of fanouts"
    )]
    NoNamedRelations {
        /// The name of the first relation with fanouts.
        name: String,
    },
    /// The model was trained with a sampling rule of a program's own, which a file cannot contain.
    #[error(
        "the model was trained with the custom sampling rule {rule:?}: set it with NodePredictor::rule, or use PredictMode::Exact"
    )]
    CustomRule {
        /// The name of the rule; empty for a rule without a name.
        rule: String,
    },
    /// The model returned another number of outputs than its description states.
    #[error("the model returned {got} outputs, expected {expected} as in {MODEL_FILE}")]
    OutputWidth {
        /// The number of outputs in the description.
        expected: usize,
        /// The number of outputs.
        got: usize,
    },
}

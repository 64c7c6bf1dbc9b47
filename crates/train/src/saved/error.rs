mod initial_weights_error;
mod model_edges_error;
mod model_file_error;
mod model_nodes_error;
mod predict_mode_error;
mod preparation_error;

use crate::saved::model_file::{MODEL_FILE, ModelTask};

pub use self::initial_weights_error::InitialWeightsError;
pub use self::model_edges_error::ModelEdgesError;
pub use self::model_file_error::ModelFileError;
pub use self::model_nodes_error::ModelNodesError;
pub use self::predict_mode_error::PredictModeError;
pub use self::preparation_error::PreparationError;

/// The errors of opening a saved model, and of requests that do not fit it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file of the saved model cannot be read or used.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// A training cannot start from the saved weights.
    #[error(transparent)]
    Initial(#[from] InitialWeightsError),
    /// The nodes or their features do not fit the model.
    #[error(transparent)]
    Nodes(#[from] ModelNodesError),
    /// The data was prepared in another way than the training data.
    #[error(transparent)]
    Preparation(#[from] PreparationError),
    /// The edge types or the edge features do not fit the model.
    #[error(transparent)]
    Edges(#[from] ModelEdgesError),
    /// The model cannot predict in the mode, or with the fanouts or the rule.
    #[error(transparent)]
    Mode(#[from] PredictModeError),
    /// The model is for a heterogeneous graph.
    #[error("the model reads a heterogeneous graph: predict on a heterogeneous dataset")]
    Heterogeneous,
    /// The model is not for a heterogeneous graph.
    #[error(
        "the model reads a graph with one type of nodes and without relation names: predict on a dataset with one type of \
         nodes, or on partitions of one that `kiln data convert --homogeneous` wrote"
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
    /// The model returned another number of outputs than its description states.
    #[error("the model returned {got} outputs, expected {expected} as in {MODEL_FILE}")]
    OutputWidth {
        /// The number of outputs in the description.
        expected: usize,
        /// The number of outputs.
        got: usize,
    },
}

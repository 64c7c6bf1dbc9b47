use std::path::PathBuf;

/// An error of weights from which a training was to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InitialWeightsError {
    /// The file is no safetensors file.
    #[error(
        "{path}: {reason}: expected the folder of a run, or a safetensors file with the weights of a model"
    )]
    NoWeights {
        /// The path of the file.
        path: PathBuf,
        /// The error of the file format.
        reason: String,
    },
    /// The weights lack a tensor of the model.
    #[error(
        "{path}: the weights have no tensor `{tensor}`, which the model has: use the weights of the same model{}",
        model_kind(kind)
    )]
    Missing {
        /// The path of the weights.
        path: PathBuf,
        /// The name of the tensor.
        tensor: String,
        /// The kind of the model that was saved; `None` if it is not recorded.
        kind: Option<String>,
    },
    /// The weights have a tensor that the model lacks.
    #[error(
        "{path}: the weights have the tensor `{tensor}`, which the model lacks: use the weights of the same model{}",
        model_kind(kind)
    )]
    Unknown {
        /// The path of the weights.
        path: PathBuf,
        /// The name of the tensor.
        tensor: String,
        /// The kind of the model that was saved; `None` if it is not recorded.
        kind: Option<String>,
    },
    /// A tensor has another type or shape, and not because the model has another number of outputs.
    #[error(
        "{path}: the tensor `{tensor}` is {got}, expected {expected} as in the model: set the sizes of the model to those of the \
         weights"
    )]
    Shape {
        /// The path of the weights.
        path: PathBuf,
        /// The name of the tensor.
        tensor: String,
        /// The type and the shape in the model.
        expected: String,
        /// The type and the shape of the weights.
        got: String,
    },
    /// The trainable rows are those of other nodes, and the nodes have no names by which they could be found.
    #[error(
        "{path}: `{tensor}` has rows of {got} nodes, expected {expected}: nodes without names are found by their number only"
    )]
    Rows {
        /// The path of the weights.
        path: PathBuf,
        /// The name of the tensor.
        tensor: String,
        /// The number of nodes of the data.
        expected: usize,
        /// The number of rows.
        got: usize,
    },
}

/// Returns the kind of the saved model for a message.
fn model_kind(kind: &Option<String>) -> String {
    kind.as_ref().map_or_else(String::new, |kind| format!(" (these are of a {kind})"))
}

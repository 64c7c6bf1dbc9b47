use crate::error::tensor_names::TensorNames;

/// An error in a file of weights, or in the exchange of weights with other libraries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The weights of a model cannot be exchanged with other libraries.
    #[error("weights of {what} cannot be exchanged with PyG and DGL: create a model without it")]
    NotPortable {
        /// The part of the model that has no counterpart in the files.
        what: &'static str,
    },
    /// A file of weights has another epsilon than the model, whose epsilon is fixed.
    #[error(
        "layer {layer} of the file has an epsilon of {got}, but that of the model is fixed at {expected}: create the model \
         with Epsilon::Learnable, or with this epsilon"
    )]
    OtherEpsilon {
        /// The layer, from 0.
        layer: usize,
        /// The model's epsilon.
        expected: f32,
        /// The epsilon in the file.
        got: f32,
    },
    /// The bytes are not a complete safetensors file.
    #[error("the weights are not a complete safetensors file: {reason}")]
    NotSafetensors {
        /// The error of the safetensors reader.
        reason: String,
    },
    /// No tensor in the file has the name of a weight of the model's layers.
    #[error(
        "no tensor name ends in {expected}; the file has {got}: save the layers of a PyG or DGL model of the same type"
    )]
    UnknownNames {
        /// The suffixes of the weight names of the model's layers in PyG and DGL.
        expected: TensorNames,
        /// The names of the file's tensors.
        got: TensorNames,
    },
    /// Some tensors have PyG names and some have DGL names.
    #[error("{pyg} is a PyG name and {dgl} a DGL name: save the layers of one model only")]
    MixedNames {
        /// The name in the format of PyG.
        pyg: String,
        /// The name in the format of DGL.
        dgl: String,
    },
    /// The file has tensors that belong to no layer.
    #[error("the model has no parameter for {names}: save only its layers, and check their type")]
    SurplusTensors {
        /// The names of the tensors.
        names: TensorNames,
    },
    /// The file lacks a weight of a layer.
    #[error("the file has no tensor {name}: save a model whose layers have it ({complete})")]
    MissingTensor {
        /// The name of the tensor.
        name: String,
        /// The layers or options of the libraries that have it.
        complete: &'static str,
    },
    /// The names of two tensors stand for the same parameter.
    #[error("{one} and {other} are the same parameter of one layer: keep one of them")]
    AmbiguousTensors {
        /// The name of one tensor.
        one: String,
        /// The name of the other tensor.
        other: String,
    },
    /// The file has more or fewer layers than the model.
    #[error("the file has {got} layers ({layers}), expected {expected}: create a model of {got} layers")]
    LayerCount {
        /// The number of layers of the model.
        expected: usize,
        /// The number of layers in the file.
        got: usize,
        /// The prefixes of the layers' tensor names.
        layers: TensorNames,
    },
    /// The names of two layers do not determine their order.
    #[error("the order of the layers {one} and {other} is ambiguous: number them after a common prefix")]
    LayerOrder {
        /// The prefix of one layer's tensor names.
        one: String,
        /// The prefix of the other layer's tensor names.
        other: String,
    },
    /// A tensor has the wrong shape.
    #[error("{name} has shape {got:?}, expected {expected:?}: create a model with the widths of the file")]
    TensorShape {
        /// The name of the tensor.
        name: String,
        /// The shape that follows from the model's widths.
        expected: Vec<usize>,
        /// The shape in the file.
        got: Vec<usize>,
    },
    /// A tensor has an unsupported element type.
    #[error("{name} has element type {dtype}, expected F32, F64, F16 or BF16: convert the weights first")]
    TensorType {
        /// The name of the tensor.
        name: String,
        /// The element type, as spelled by safetensors.
        dtype: String,
    },
}

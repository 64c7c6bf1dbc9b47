use std::fmt;

/// An error in a model's configuration, or in a file of weights for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A width or number of layers is 0 or too large.
    #[error("{name} is {got}, expected 1 to {max}")]
    OutOfRange {
        /// The configuration's field.
        name: &'static str,
        /// The value of the field.
        got: usize,
        /// The largest supported value.
        max: usize,
    },
    /// The node types and relations of a model are invalid.
    #[error("the relations of the model are invalid: {0}")]
    Metagraph(#[from] kiln_graph::Error),
    /// A weight matrix has too many values.
    #[error(
        "a weight of {d_in} x {d_out} values is too large, expected at most {max} values: use smaller widths"
    )]
    WeightTooLarge {
        /// The number of rows.
        d_in: usize,
        /// The number of columns.
        d_out: usize,
        /// The largest supported number of values.
        max: usize,
    },
    /// A dropout probability is not in `[0, 1)`.
    #[error("{name} is {dropout}, expected a probability of at least 0 and below 1")]
    Dropout {
        /// The configuration's field.
        name: &'static str,
        /// The value of the field.
        dropout: f64,
    },
    /// A setting has a value that is for another kind of model.
    #[error("{name} is {got}, expected {expected} for this kind of model")]
    OtherModel {
        /// The configuration's field.
        name: &'static str,
        /// The value of the field.
        got: &'static str,
        /// The values for this kind of model.
        expected: &'static str,
    },
    /// No layer could have a residual connection.
    #[error(
        "residual is true, but none of the {n_layers} layers has equal input and output widths before the outputs \
         (d_in {d_in}, hidden {hidden}): use at least 3 layers, jumping knowledge, or a hidden width of d_in"
    )]
    NoResidual {
        /// The number of layers.
        n_layers: usize,
        /// The width of the input features.
        d_in: usize,
        /// The width of the rows between layers.
        hidden: usize,
    },
    /// The hidden width cannot be divided into heads.
    #[error("the hidden width is {hidden}, expected a multiple of the {n_heads} attention heads")]
    HeadWidth {
        /// The width of the rows between layers.
        hidden: usize,
        /// The number of heads.
        n_heads: usize,
    },
    /// A setting is infinite or NaN.
    #[error("{name} is {got}, expected a finite number")]
    NotFinite {
        /// The configuration's field.
        name: &'static str,
        /// The value of the field.
        got: f32,
    },
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
    /// The class weights of a loss do not fit the classes.
    #[error(
        "the class weights are {got:?}, expected {n_classes} finite numbers, one per class, of at least 0 and not all 0"
    )]
    ClassWeights {
        /// The number of classes.
        n_classes: usize,
        /// The weights.
        got: Vec<f32>,
    },
    /// The label smoothing of a loss is not in `[0, 1)`.
    #[error("the label smoothing is {got}, expected at least 0 and below 1")]
    LabelSmoothing {
        /// The value of the setting.
        got: f32,
    },
    /// The threshold of the Huber loss is not a finite number above 0.
    #[error("the delta of the Huber loss is {got}, expected a finite number above 0")]
    HuberDelta {
        /// The value of the setting.
        got: f32,
    },
    /// A loss of link prediction has no negatives.
    #[error(
        "the links have no negatives, expected at least 1 per link: a loss of links alone has no minimum"
    )]
    NoNegatives,
    /// The configuration of an encoder does not state the width of its output rows.
    #[error(
        "the configuration `{kind}` does not state the width of its output rows, which this decoder needs: implement \
         `ModelConfig::d_out`, or use the dot product"
    )]
    UnknownWidth {
        /// The kind of the encoder.
        kind: &'static str,
    },
    /// The configuration of a model of nodes does not state the width of its input rows.
    #[error(
        "the configuration `{kind}` does not state the width of its input rows, which the input encoder needs: implement \
         `ModelConfig::d_in`"
    )]
    UnknownInputWidth {
        /// The kind of the model.
        kind: &'static str,
    },
    /// The only type of nodes has another number of feature columns than the model reads.
    #[error(
        "the model reads {expected} feature columns, but the only type of nodes has {got}: create it for {got}"
    )]
    InputWidth {
        /// The number that the model reads.
        expected: usize,
        /// The number of feature columns.
        got: usize,
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

/// A list of tensor names; a message shows the first six.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorNames(pub Vec<String>);

impl TensorNames {
    pub(crate) fn of(names: &[&str]) -> Self {
        Self(names.iter().map(|name| name.to_string()).collect())
    }
}

impl fmt::Display for TensorNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 6;
        let shown: Vec<String> = self.0.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        match (shown.len(), self.0.len()) {
            (0, _) => write!(f, "no tensors"),
            (shown_len, all) if shown_len < all => {
                write!(f, "{} and {} more", shown.join(", "), all - shown_len)
            }
            _ => write!(f, "{}", shown.join(", ")),
        }
    }
}

/// The upper bound on widths and numbers of layers, which catches typing errors.
const MAX: usize = 1 << 20;

/// The largest number of values in one weight: 4 GiB.
const MAX_WEIGHT: usize = 1 << 30;

/// Returns an error if a width is out of range or the weight matrix of these widths is too large.
pub(crate) fn check_weight(d_in: usize, d_out: usize) -> Result<(), Error> {
    check_size("d_in", d_in)?;
    check_size("d_out", d_out)?;
    let max = MAX_WEIGHT;
    if d_in * d_out <= max { Ok(()) } else { Err(Error::WeightTooLarge { d_in, d_out, max }) }
}

/// Returns an error if the dropout probability is not in `[0, 1)`.
pub(crate) fn check_dropout(name: &'static str, dropout: f64) -> Result<(), Error> {
    if (0.0..1.0).contains(&dropout) { Ok(()) } else { Err(Error::Dropout { name, dropout }) }
}

/// Returns an error if the value of a field is not in `1..=MAX`.
pub(crate) fn check_size(name: &'static str, got: usize) -> Result<(), Error> {
    if (1..=MAX).contains(&got) { Ok(()) } else { Err(Error::OutOfRange { name, got, max: MAX }) }
}

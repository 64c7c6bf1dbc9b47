mod loss_error;
mod tensor_names;
mod weights_error;

pub use self::loss_error::LossError;
pub use self::tensor_names::TensorNames;
pub use self::weights_error::WeightsError;

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
    /// Normalised edge weights are for means.
    #[error(
        "edge_weighting is normalize, which is a weighted mean, but aggregate is {aggregate:?}: use the mean, or scale"
    )]
    NormalizedWithoutMean {
        /// The aggregation.
        aggregate: crate::Aggregate,
    },
    /// The widths of edge features do not fit the relations.
    #[error(
        "edge_features is {got:?}, expected a number of columns or `None` for each of {n_relations} relations, and a number \
         for at least one"
    )]
    EdgeWidths {
        /// The number of relations, or of edge types.
        n_relations: usize,
        /// The widths of the configuration.
        got: Vec<Option<usize>>,
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
    /// The weights of a file do not fit the model, or the model those of files.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The configuration of a loss is invalid, or does not fit the data.
    #[error(transparent)]
    Loss(#[from] LossError),
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

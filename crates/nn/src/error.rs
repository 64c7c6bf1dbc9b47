use std::fmt;

/// What can be wrong with a model's configuration, or with weights for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A width or number of layers is 0, or larger than any model's.
    #[error("{name} is {got}, expected 1 to {max}")]
    OutOfRange {
        /// The configuration's field.
        name: &'static str,
        /// Its value.
        got: usize,
        /// The largest value taken.
        max: usize,
    },
    /// A weight matrix that fits no memory.
    #[error("a weight of {d_in} x {d_out} values, at most {max} in all are taken")]
    WeightTooLarge {
        /// Its rows.
        d_in: usize,
        /// Its columns.
        d_out: usize,
        /// The largest number of values taken.
        max: usize,
    },
    /// The dropout probability is not one that leaves anything.
    #[error("{name} probability {dropout}, expected 0 <= {name} < 1")]
    Dropout {
        /// The configuration's field.
        name: &'static str,
        /// The probability given.
        dropout: f64,
    },
    /// A number that would make every output not a number.
    #[error("{name} is {got}, expected a finite number")]
    NotFinite {
        /// The configuration's field.
        name: &'static str,
        /// Its value.
        got: f32,
    },
    /// The bytes are not those of a safetensors file, or not all of them.
    #[error("the weights are not a whole safetensors file: {reason}")]
    NotSafetensors {
        /// What is wrong with it.
        reason: String,
    },
    /// No tensor has the name of a weight.
    #[error("no tensor's name ends in {expected}; the file has {got}: save the layers of such a model")]
    UnknownNames {
        /// What the names of weights end in.
        expected: TensorNames,
        /// The file's tensors.
        got: TensorNames,
    },
    /// Some tensors have the names of one library, some those of the other.
    #[error("{pyg} is named as in PyG, {dgl} as in DGL: save the layers of one model only")]
    MixedNames {
        /// A tensor of the one kind.
        pyg: String,
        /// A tensor of the other kind.
        dgl: String,
    },
    /// Tensors that no layer has.
    #[error("the model has no place for {names}: save its layers only, and check their kind")]
    SurplusTensors {
        /// The tensors.
        names: TensorNames,
    },
    /// A weight that a layer needs.
    #[error(
        "the file has no {name}: save a model whose layers have it (root_weight=True in PyG; weight=True and another aggregator than \"gcn\" in DGL)"
    )]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// Two tensors are one parameter.
    #[error("{one} and {other} are the same parameter of one layer: keep one of them")]
    AmbiguousTensors {
        /// A tensor.
        one: String,
        /// The other.
        other: String,
    },
    /// The file has more layers than the model, or fewer.
    #[error("the file has {got} layers ({layers}), the model {expected}: make a model of {got} layers")]
    LayerCount {
        /// The model's layers.
        expected: usize,
        /// The file's layers.
        got: usize,
        /// What their names start with.
        layers: TensorNames,
    },
    /// The names of layers do not say which comes first.
    #[error("which of the layers {one} and {other} comes first is not clear: number them under one name")]
    LayerOrder {
        /// What a layer's names start with.
        one: String,
        /// The same of another.
        other: String,
    },
    /// A tensor of the wrong shape.
    #[error("{name} has the shape {got:?}, expected {expected:?}: make a model of the file's widths")]
    TensorShape {
        /// The tensor.
        name: String,
        /// The shape that the model's widths ask for.
        expected: Vec<usize>,
        /// Its shape.
        got: Vec<usize>,
    },
    /// A tensor of elements that are not read.
    #[error("{name} has {dtype} elements, expected F32, F64, F16 or BF16: cast the weights before saving")]
    TensorType {
        /// The tensor.
        name: String,
        /// Its element type, as safetensors spells it.
        dtype: String,
    },
}

/// Names of tensors in a message, of which it shows a few.
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

/// The largest width or number of layers: more is a slip of the keyboard, and its weights fit no memory.
const MAX: usize = 1 << 20;

/// The largest number of values in one weight: 4 GiB.
const MAX_WEIGHT: usize = 1 << 30;

/// `Ok` if a layer of these widths has a weight that a machine may hold.
pub(crate) fn check_weight(d_in: usize, d_out: usize) -> Result<(), Error> {
    check_size("d_in", d_in)?;
    check_size("d_out", d_out)?;
    let max = MAX_WEIGHT;
    if d_in * d_out <= max { Ok(()) } else { Err(Error::WeightTooLarge { d_in, d_out, max }) }
}

/// `Ok` if dropout with this probability leaves anything.
pub(crate) fn check_dropout(name: &'static str, dropout: f64) -> Result<(), Error> {
    if (0.0..1.0).contains(&dropout) { Ok(()) } else { Err(Error::Dropout { name, dropout }) }
}

/// `Ok` if the field is at least 1, and not absurd.
pub(crate) fn check_size(name: &'static str, got: usize) -> Result<(), Error> {
    if (1..=MAX).contains(&got) { Ok(()) } else { Err(Error::OutOfRange { name, got, max: MAX }) }
}

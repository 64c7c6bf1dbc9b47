//! The parts around the convolutions of a model: activation, dropout, normalisation, residual connections and jumping
//! knowledge.

use std::fmt;

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, ops};
use kiln_sample::{KeyDomain, RngKey};

use crate::error::{Error, check_size};
use crate::normalization::{LAYER_EPSILON, normalize_rows};
use crate::stack::{Activation, Dropout, Widths, n_weights};
use crate::{BiasedRows, ForwardContext, JumpingKnowledge, Linear, Normalization, Result};

/// The options of a frame. With the defaults, the model is its convolutions with the activation and dropout between them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameConfig {
    pub(crate) widths: Widths,
    pub(crate) input_dropout: f64,
    pub(crate) dropout: f64,
    pub(crate) norm: Normalization,
    pub(crate) residual: bool,
    pub(crate) jumping: JumpingKnowledge,
    pub(crate) activation: Activation,
}

impl FrameConfig {
    /// Returns the widths of the convolutions. With jumping knowledge, all of them have rows of the hidden width.
    pub(crate) fn of_convs(&self) -> Result<Vec<[usize; 2]>> {
        let widths = self.widths;
        check_size("n_classes", widths.n_classes)?;
        match self.jumping {
            JumpingKnowledge::Direct => widths.of_layers(),
            _ => Widths { n_classes: widths.hidden, ..widths }.of_layers(),
        }
    }

    /// Returns the number of weights of a model's matrices if each convolution has `n_matrices` of them. Vectors are not
    /// counted.
    pub(crate) fn n_weights(&self, n_matrices: u64) -> u64 {
        let Widths { d_in, hidden, n_classes, n_layers } = self.widths;
        let head = (hidden as u64).saturating_mul(n_classes as u64);
        let (d_out, head) = match self.jumping {
            JumpingKnowledge::Direct => (n_classes, 0),
            JumpingKnowledge::Cat => (hidden, head.saturating_mul(n_layers as u64)),
            _ => (hidden, head),
        };
        n_weights(n_layers, d_in, hidden, d_out).saturating_mul(n_matrices).saturating_add(head)
    }

    /// Creates the parameters. The linear layer of jumping knowledge uses `key.fold_in(KeyDomain::Layer, n_layers)`.
    ///
    /// # Errors
    /// Returns an error if a width, the number of layers or a dropout is out of range, if the normalisation or the
    /// jumping knowledge is that of another model, or if no layer could have a residual connection.
    pub(crate) fn init(&self, key: RngKey, device: &Device) -> Result<Frame> {
        let convs = self.of_convs()?;
        let dropout = Dropout::new(self.input_dropout, self.dropout)?;
        let Widths { d_in, hidden, n_classes, n_layers } = self.widths;
        let n_hidden = n_layers - usize::from(self.jumping == JumpingKnowledge::Direct);
        let norms = match self.norm {
            Normalization::None => Vec::new(),
            Normalization::Layer => (0..n_hidden)
                .map(|_| LayerNormConfig::new(hidden).with_epsilon(LAYER_EPSILON).init(device))
                .collect(),
            Normalization::Batch => {
                return Err(Error::OtherModel { name: "norm", got: "batch", expected: "none or layer" });
            }
        };
        if self.residual && !convs[..n_hidden].iter().any(|[d_in, d_out]| d_in == d_out) {
            return Err(Error::NoResidual { n_layers, d_in, hidden });
        }
        let head_width = match self.jumping {
            JumpingKnowledge::Direct => None,
            JumpingKnowledge::Last | JumpingKnowledge::Max => Some(hidden),
            JumpingKnowledge::Cat => Some(n_layers * hidden),
            JumpingKnowledge::Sum => {
                let expected = "direct, last, cat or max";
                return Err(Error::OtherModel { name: "jumping", got: "sum", expected });
            }
        };
        let head_key = key.fold_in(KeyDomain::Layer, n_layers as u64);
        let head =
            head_width.map(|width| Linear::init(head_key, 0, [width, n_classes], device)).transpose()?;
        let &Self { residual, jumping, activation, .. } = self;
        let form = Form { dropout, residual, jumping, activation, hidden, n_layers };
        Ok(Frame { norms, head, form })
    }
}

/// Implements the setters of the options that a configuration shares with those of the other models of nodes, and
/// `frame`, which returns them.
macro_rules! frame_options {
    ($config:ty, $activation:expr) => {
        impl $config {
            /// Sets the width of the rows between layers.
            ///
            /// ```
            #[doc = concat!("# use kiln_nn::{ModelConfig, ", stringify!($config), "};")]
            /// // Two layers: from 100 columns to 64, and from these to the scores of 47 classes.
            #[doc = concat!("let config = ", stringify!($config), "::for_dims(100, 47).layers(2).hidden(64);")]
            /// ```
            #[must_use]
            pub fn hidden(self, hidden: usize) -> Self {
                Self { hidden, ..self }
            }

            /// Sets the number of layers.
            ///
            /// ```
            #[doc = concat!("# use kiln_nn::{ModelConfig, ", stringify!($config), "};")]
            /// // A loader for this model has two fanouts.
            #[doc = concat!("let config = ", stringify!($config), "::for_dims(100, 47).layers(2);")]
            /// ```
            #[must_use]
            pub fn layers(self, n_layers: usize) -> Self {
                Self { n_layers, ..self }
            }

            /// Sets the dropout of the input features.
            ///
            /// ```
            #[doc = concat!("# use kiln_nn::{ModelConfig, ", stringify!($config), "};")]
            /// // In a training step, each feature is 0 with a probability of 0.1.
            #[doc = concat!("let config = ", stringify!($config), "::for_dims(100, 47).input_dropout(0.1);")]
            /// ```
            #[must_use]
            pub fn input_dropout(self, input_dropout: f64) -> Self {
                Self { input_dropout, ..self }
            }

            /// Sets the dropout between layers.
            ///
            /// ```
            #[doc = concat!("# use kiln_nn::{ModelConfig, ", stringify!($config), "};")]
            /// // No dropout, for a graph that is too large to overfit.
            #[doc = concat!("let config = ", stringify!($config), "::for_dims(100, 47).dropout(0.0);")]
            /// ```
            #[must_use]
            pub fn dropout(self, dropout: f64) -> Self {
                Self { dropout, ..self }
            }

            /// Sets the normalisation of hidden rows.
            ///
            /// ```
            #[doc = concat!("# use kiln_nn::{ModelConfig, Normalization, ", stringify!($config), "};")]
            /// // Of three layers, the first two have normalised rows, the last one returns scores.
            #[doc = concat!("let config = ", stringify!($config), "::for_dims(100, 47).layers(3).norm(Normalization::Layer);")]
            /// ```
            #[must_use]
            pub fn norm(self, norm: crate::Normalization) -> Self {
                Self { norm, ..self }
            }

            /// Sets whether layers have residual connections.
            ///
            /// ```
            #[doc = concat!("# use kiln_nn::{ModelConfig, ", stringify!($config), "};")]
            /// // Of three layers, the middle one has the hidden width on both sides.
            #[doc = concat!("let config = ", stringify!($config), "::for_dims(100, 47).layers(3).residual(true);")]
            /// ```
            #[must_use]
            pub fn residual(self, residual: bool) -> Self {
                Self { residual, ..self }
            }

            /// Sets the layers from which the outputs are computed.
            ///
            /// ```
            #[doc = concat!("# use kiln_nn::{JumpingKnowledge, ModelConfig, ", stringify!($config), "};")]
            /// // A linear layer computes the scores from the rows of all three layers, 3 · 64 columns.
            #[doc = concat!("let config = ", stringify!($config), "::for_dims(100, 47).layers(3).hidden(64).jumping(JumpingKnowledge::Cat);")]
            /// ```
            #[must_use]
            pub fn jumping(self, jumping: crate::JumpingKnowledge) -> Self {
                Self { jumping, ..self }
            }

            fn frame(&self) -> crate::frame::FrameConfig {
                let &Self {
                    d_in,
                    hidden,
                    n_classes,
                    n_layers,
                    input_dropout,
                    dropout,
                    norm,
                    residual,
                    jumping,
                    ..
                } = self;
                let widths = crate::stack::Widths { d_in, hidden, n_classes, n_layers };
                let activation = $activation;
                crate::frame::FrameConfig {
                    widths,
                    input_dropout,
                    dropout,
                    norm,
                    residual,
                    jumping,
                    activation,
                }
            }
        }
    };
}
pub(crate) use frame_options;

/// Begins the `Debug` text of a configuration: the fields of its frame, with those of its layers before the dropouts.
///
/// Normalisation, residual connections and jumping knowledge are left out if they are not used. The identity of a run
/// contains the text, so that of a model without these options must stay the same.
pub(crate) fn debug_config<'a, 'b>(
    f: &'a mut fmt::Formatter<'b>,
    name: &str,
    frame: &FrameConfig,
    layers: &[(&str, &dyn fmt::Debug)],
) -> fmt::DebugStruct<'a, 'b> {
    let FrameConfig { widths, input_dropout, dropout, norm, residual, jumping, .. } = frame;
    let mut text = f.debug_struct(name);
    text.field("d_in", &widths.d_in);
    text.field("hidden", &widths.hidden);
    text.field("n_classes", &widths.n_classes);
    text.field("n_layers", &widths.n_layers);
    for (name, value) in layers {
        text.field(name, value);
    }
    text.field("input_dropout", input_dropout);
    text.field("dropout", dropout);
    if *norm != Normalization::None {
        text.field("norm", norm);
    }
    if *residual {
        text.field("residual", residual);
    }
    if *jumping != JumpingKnowledge::Direct {
        text.field("jumping", jumping);
    }
    text
}

/// The parts around the convolutions of a model, with their parameters.
///
/// Jumping knowledge needs the rows of all layers for the same nodes. A layer therefore returns, in front of its own
/// rows, what the last layer needs of the earlier ones: their rows ([`JumpingKnowledge::Cat`]), or the maximum of all
/// rows so far ([`JumpingKnowledge::Max`]). So the model is still a sequence of layers and can be evaluated layer by
/// layer.
#[derive(Module, Debug)]
pub struct Frame {
    /// The normalisations of the hidden rows, input layer first; empty without normalisation.
    pub norms: Vec<LayerNorm>,
    /// The linear layer from the rows of all layers to the outputs; `None` without jumping knowledge.
    pub head: Option<Linear>,
    #[module(skip)]
    form: Form,
}

#[derive(Debug, Clone, Copy)]
struct Form {
    dropout: Dropout,
    residual: bool,
    jumping: JumpingKnowledge,
    activation: Activation,
    hidden: usize,
    n_layers: usize,
}

impl Frame {
    /// Runs layer `i` with the convolution `conv`: normalisation, the activation, dropout and the residual connection follow it,
    /// unless its rows are the outputs.
    pub(crate) fn layer(
        &self,
        i: usize,
        block: &DeviceBlock,
        x: Tensor<2>,
        ctx: &ForwardContext,
        conv: impl FnOnce(Tensor<2>) -> BiasedRows,
    ) -> Tensor<2> {
        let Form { dropout, residual, activation, hidden, n_layers, .. } = self.form;
        let [_, width] = x.dims();
        let earlier = self.keeps_earlier(i).then(|| ops::take_dst(block, x.clone()));
        let x = match earlier {
            Some(_) if hidden < width => x.narrow(1, width - hidden, hidden),
            _ => x,
        };
        let x = dropout.before(i, block, x, ctx);
        if i + 1 == n_layers && self.head.is_none() {
            return conv(x).sum();
        }
        let own = (residual && x.dims()[1] == hidden).then(|| ops::widen(ops::take_dst(block, x.clone())));
        let mut rows = conv(x);
        if let Some(norm) = self.norms.get(i) {
            rows = normalize_rows(norm, rows.sum()).into();
        }
        let mut rows = dropout.after(i, block, rows, activation, ctx);
        if let Some(own) = own {
            rows = rows + own;
        }
        self.jump(i, earlier, rows)
    }

    /// Returns true if only the convolution of layer 0 reads the input rows, in training and in evaluation.
    pub(crate) fn reads_input_once(&self) -> bool {
        !self.form.residual && !self.form.dropout.drops_input()
    }

    /// Returns the widths of the input and output rows of layer `i`, whose convolution has the widths `conv`.
    pub(crate) fn widths(&self, i: usize, conv: [usize; 2]) -> [usize; 2] {
        let Form { jumping, hidden, n_layers, .. } = self.form;
        let entering = |i: usize| match jumping {
            JumpingKnowledge::Cat => i * hidden,
            JumpingKnowledge::Max => i.min(2) * hidden,
            _ => hidden,
        };
        let d_in = if i == 0 { conv[0] } else { entering(i) };
        match &self.head {
            Some(head) if i + 1 == n_layers => [d_in, head.weight.dims()[1]],
            Some(_) => [d_in, entering(i + 1)],
            None => conv,
        }
    }

    /// Returns true if the input rows of layer `i` begin with what the last layer needs of earlier layers.
    fn keeps_earlier(&self, i: usize) -> bool {
        0 < i && matches!(self.form.jumping, JumpingKnowledge::Cat | JumpingKnowledge::Max)
    }

    /// Joins a layer's rows to those of earlier layers, and computes the outputs if it is the last layer.
    fn jump(&self, i: usize, earlier: Option<Tensor<2>>, rows: Tensor<2>) -> Tensor<2> {
        let Form { jumping, hidden, n_layers, .. } = self.form;
        let last = self.head.as_ref().filter(|_| i + 1 == n_layers);
        let joined = match (jumping, earlier) {
            (JumpingKnowledge::Max, Some(earlier)) => {
                let largest = earlier.narrow(1, 0, hidden).max_pair(rows.clone());
                match last {
                    Some(_) => largest,
                    None => Tensor::cat(vec![largest, rows], 1),
                }
            }
            (_, Some(earlier)) => Tensor::cat(vec![earlier, rows], 1),
            (_, None) => rows,
        };
        match last {
            Some(head) => head.forward(joined),
            None => joined,
        }
    }
}

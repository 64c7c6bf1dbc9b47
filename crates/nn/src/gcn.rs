use std::fmt;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_sample::{KeyDomain, RngKey};
use serde::{Deserialize, Serialize};

use crate::frame::{fmt_options, frame_options};
use crate::model::dims_and_init;
use crate::model::{aggregated_block, forward_layers};
use crate::stack::Activation;
use crate::{
    BlockModel, ForwardContext, Frame, GcnConv, GcnConvConfig, InputAggregation, JumpingKnowledge,
    LayerWiseModel, ModelConfig, Normalization, Result,
};

/// The configuration of a [`Gcn`] model.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GcnConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width of the rows between layers.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// Probability that dropout zeroes a value of the input features, in `[0, 1)`.
    pub input_dropout: f64,
    /// Probability that dropout zeroes a value between layers, in `[0, 1)`.
    pub dropout: f64,
    /// Normalisation of each layer's rows before ReLU, except of the outputs: [`Normalization::None`] or
    /// [`Normalization::Layer`].
    #[serde(default)]
    pub norm: Normalization,
    /// True to add a node's own row to the result of each layer whose input and output have the hidden width (He,
    /// Zhang, Ren and Sun 2016), after ReLU and dropout. The outputs have no residual connection.
    #[serde(default)]
    pub residual: bool,
    /// The layers from which the outputs are computed: any but [`JumpingKnowledge::Sum`]. Except for
    /// [`JumpingKnowledge::Direct`], all layers have the hidden width, and a linear layer follows them.
    #[serde(default)]
    pub jumping: JumpingKnowledge,
}

impl GcnConfig {
    /// Creates a configuration of three layers with a hidden width of 256 and a dropout of 0.5 between layers.
    pub fn new(d_in: usize, n_classes: usize) -> Self {
        Self {
            d_in,
            hidden: 256,
            n_classes,
            n_layers: 3,
            input_dropout: 0.0,
            dropout: 0.5,
            norm: Normalization::None,
            residual: false,
            jumping: JumpingKnowledge::Direct,
        }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// # Errors
    /// Returns an error if a width or the number of layers is 0 or too large, if a dropout is not in `[0, 1)`, if
    /// `norm` or `jumping` has a value for another kind of model, or if no layer could have a residual connection.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Gcn> {
        let frame = self.frame();
        let layer = |(i, [d_in, d_out]): (usize, [usize; 2])| {
            GcnConvConfig { d_in, d_out }.init(key.fold_in(KeyDomain::Layer, i as u64), device)
        };
        let layers = frame.of_convs()?.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
        Ok(Gcn { layers, frame: frame.init(key, device)? })
    }
}

impl fmt::Debug for GcnConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { d_in, hidden, n_classes, n_layers, input_dropout, dropout, norm, residual, jumping } =
            self;
        let mut text = f.debug_struct("GcnConfig");
        text.field("d_in", d_in);
        text.field("hidden", hidden);
        text.field("n_classes", n_classes);
        text.field("n_layers", n_layers);
        text.field("input_dropout", input_dropout);
        text.field("dropout", dropout);
        fmt_options(&mut text, *norm, *residual, *jumping);
        text.finish()
    }
}

frame_options!(GcnConfig, Activation::Relu);

impl ModelConfig for GcnConfig {
    const KIND: &'static str = "gcn";
    type Model = Gcn;
    dims_and_init!();

    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes)
    }

    fn min_parameters(&self) -> u64 {
        self.frame().n_weights(1)
    }

    fn needs_edge_weights(&self) -> bool {
        true
    }
}

/// A graph convolutional network (Kipf and Welling 2017): [`GcnConv`] layers, with ReLU and then dropout
/// after each but the last, and dropout of the input features, as in the authors' code.
///
/// Blocks must have the edge weights of `kiln_graph::gcn_norm`. With sampled neighbours and
/// [`EdgeWeights::Unbiased`](kiln_sample::EdgeWeights::Unbiased), each layer is an unbiased estimate, given its input,
/// of the layer over whole neighbourhoods.
///
/// The dropout mask of a row is a function of its node's global id, the layer and the key of the step. It does not
/// depend on the distribution of a step's seeds over ranks.
#[derive(Module, Debug)]
pub struct Gcn {
    /// The layers, input layer first.
    pub layers: Vec<GcnConv>,
    /// Normalisations and the linear layer of jumping knowledge; without parameters if the options are not used.
    pub frame: Frame,
}

impl BlockModel for Gcn {
    fn uses_burn_rng(&self) -> bool {
        false
    }

    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn reads_half_rows(&self) -> bool {
        true
    }

    /// Runs layer `i`, followed by ReLU and dropout unless it is the last; see [`BlockModel::layer`].
    ///
    /// # Panics
    /// Panics if the block has no edge weights, and when [`BlockModel::layer`] panics.
    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.frame.layer(i, block, x, ctx, |x| self.layers[i].forward(block, x))
    }

    fn input_aggregation(&self) -> Option<InputAggregation> {
        self.layers.first().map(GcnConv::input_aggregation).filter(|_| self.frame.reads_input_once())
    }

    fn forward_aggregated(&self, blocks: &[DeviceBlock], rows: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let conv = |rows| self.layers[0].forward_aggregated(rows);
        let block = aggregated_block(self, blocks, &rows);
        forward_layers(self, 1, blocks, self.frame.layer(0, block, rows, ctx, conv), ctx)
    }
}

impl LayerWiseModel for Gcn {
    fn widths(&self, i: usize) -> [usize; 2] {
        self.frame.widths(i, self.layers[i].weight.dims())
    }
}

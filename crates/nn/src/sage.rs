use std::fmt;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_sample::{KeyDomain, RngKey};
use serde::{Deserialize, Serialize};

use crate::frame::{fmt_options, frame_options};
use crate::model::{aggregated_block, dims_and_init, forward_layers};
use crate::stack::Activation;
use crate::{
    Aggregate, BlockModel, ForwardContext, Frame, InputAggregation, JumpingKnowledge, LayerWiseModel,
    ModelConfig, Normalization, Result, SageConv, SageConvConfig, WeightInit,
};

/// The configuration of a [`Sage`] model.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SageConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width of the rows between layers.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// The aggregation of neighbours.
    pub aggregate: Aggregate,
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
    /// The distribution of the layers' initial weights.
    #[serde(default)]
    pub weight_init: WeightInit,
}

impl SageConfig {
    /// Creates a configuration of three layers with mean aggregation, a hidden width of 256 and a dropout of 0.5
    /// between layers.
    pub fn new(d_in: usize, n_classes: usize) -> Self {
        Self {
            d_in,
            hidden: 256,
            n_classes,
            n_layers: 3,
            aggregate: Aggregate::Mean,
            input_dropout: 0.0,
            dropout: 0.5,
            norm: Normalization::None,
            residual: false,
            jumping: JumpingKnowledge::Direct,
            weight_init: WeightInit::Dgl,
        }
    }

    /// Sets the aggregation over neighbours.
    #[must_use]
    pub fn aggregate(self, aggregate: Aggregate) -> Self {
        Self { aggregate, ..self }
    }

    /// Sets the distribution of the layers' initial weights.
    #[must_use]
    pub fn weight_init(self, weight_init: WeightInit) -> Self {
        Self { weight_init, ..self }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// # Errors
    /// Returns an error if a width or the number of layers is 0 or too large, if a dropout is not in `[0, 1)`, if
    /// `norm` or `jumping` has a value for another kind of model, or if no layer could have a residual connection.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Sage> {
        let (frame, aggregate) = (self.frame(), self.aggregate);
        let layer = |(i, [d_in, d_out]): (usize, [usize; 2])| {
            let key = key.fold_in(KeyDomain::Layer, i as u64);
            SageConvConfig { d_in, d_out, aggregate }.init_with(self.weight_init, key, device)
        };
        let layers = frame.of_convs()?.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
        Ok(Sage { layers, frame: frame.init(key, device)? })
    }
}

impl fmt::Debug for SageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            d_in,
            hidden,
            n_classes,
            n_layers,
            aggregate,
            input_dropout,
            dropout,
            norm,
            residual,
            jumping,
            weight_init,
        } = self;
        let mut text = f.debug_struct("SageConfig");
        text.field("d_in", d_in);
        text.field("hidden", hidden);
        text.field("n_classes", n_classes);
        text.field("n_layers", n_layers);
        text.field("aggregate", aggregate);
        text.field("input_dropout", input_dropout);
        text.field("dropout", dropout);
        fmt_options(&mut text, *norm, *residual, *jumping);
        if *weight_init != WeightInit::Dgl {
            text.field("weight_init", weight_init);
        }
        text.finish()
    }
}

frame_options!(SageConfig, Activation::Relu);

impl ModelConfig for SageConfig {
    const KIND: &'static str = "sage";
    type Model = Sage;
    dims_and_init!();

    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes)
    }

    fn min_parameters(&self) -> u64 {
        self.frame().n_weights(2)
    }
}

/// GraphSAGE (Hamilton, Ying and Leskovec 2017): [`SageConv`] layers, with ReLU and then dropout after each but the
/// last, and optional dropout of the input features.
///
/// The dropout mask of a row is a function of its node's global id, the layer and the key of the step. It does not
/// depend on the distribution of a step's seeds over ranks.
#[derive(Module, Debug)]
pub struct Sage {
    /// The layers, input layer first.
    pub layers: Vec<SageConv>,
    /// Normalisations and the linear layer of jumping knowledge; without parameters if the options are not used.
    pub frame: Frame,
}

impl BlockModel for Sage {
    fn uses_burn_rng(&self) -> bool {
        false
    }

    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn reads_half_rows(&self) -> bool {
        true
    }

    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.frame.layer(i, block, x, ctx, |x| self.layers[i].forward(block, x))
    }

    fn input_aggregation(&self) -> Option<InputAggregation> {
        self.layers.first().and_then(SageConv::input_aggregation).filter(|_| self.frame.reads_input_once())
    }

    fn forward_aggregated(&self, blocks: &[DeviceBlock], rows: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let conv = |rows| self.layers[0].forward_aggregated(rows);
        let block = aggregated_block(self, blocks, &rows);
        forward_layers(self, 1, blocks, self.frame.layer(0, block, rows, ctx, conv), ctx)
    }
}

impl LayerWiseModel for Sage {
    fn widths(&self, i: usize) -> [usize; 2] {
        self.frame.widths(i, self.layers[i].weight_self.dims())
    }
}

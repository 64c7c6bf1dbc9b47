use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_sample::{KeyDomain, RngKey};
use serde::{Deserialize, Serialize};

use crate::stack::{Dropout, Widths};
use crate::{
    Aggregate, BlockModel, ForwardContext, LayerWiseModel, ModelConfig, Result, SageConv, SageConvConfig,
};

/// The configuration of a [`Sage`] model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
}

impl SageConfig {
    /// Creates a configuration of three layers with mean aggregation, a hidden width of 256 and a dropout of 0.5
    /// between layers.
    pub fn new(d_in: usize, n_classes: usize) -> Self {
        let (hidden, n_layers, aggregate) = (256, 3, Aggregate::Mean);
        Self { d_in, hidden, n_classes, n_layers, aggregate, input_dropout: 0.0, dropout: 0.5 }
    }

    /// Sets the width of the rows between layers.
    #[must_use]
    pub fn hidden(self, hidden: usize) -> Self {
        Self { hidden, ..self }
    }

    /// Sets the number of layers.
    #[must_use]
    pub fn layers(self, n_layers: usize) -> Self {
        Self { n_layers, ..self }
    }

    /// Sets the aggregation over neighbours.
    #[must_use]
    pub fn aggregate(self, aggregate: Aggregate) -> Self {
        Self { aggregate, ..self }
    }

    /// Sets the dropout of the input features.
    #[must_use]
    pub fn input_dropout(self, input_dropout: f64) -> Self {
        Self { input_dropout, ..self }
    }

    /// Sets the dropout between layers.
    #[must_use]
    pub fn dropout(self, dropout: f64) -> Self {
        Self { dropout, ..self }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// # Errors
    /// Returns an error if a width or the number of layers is 0 or too large, or if a dropout is not in `[0, 1)`.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Sage> {
        let &Self { d_in, hidden, n_classes, n_layers, aggregate, input_dropout, dropout } = self;
        let widths = Widths { d_in, hidden, n_classes, n_layers }.of_layers()?;
        let dropout = Dropout::new(input_dropout, dropout)?;
        let layer = |(i, [d_in, d_out]): (usize, [usize; 2])| {
            SageConvConfig { d_in, d_out, aggregate }.init(key.fold_in(KeyDomain::Layer, i as u64), device)
        };
        let layers = widths.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
        Ok(Sage { layers, dropout })
    }
}

impl ModelConfig for SageConfig {
    const KIND: &'static str = "sage";
    type Model = Sage;

    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes)
    }

    fn n_layers(&self) -> usize {
        self.n_layers
    }

    fn init(&self, key: RngKey, device: &Device) -> Result<Sage> {
        self.init(key, device)
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
    #[module(skip)]
    dropout: Dropout,
}

impl BlockModel for Sage {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let x = self.layers[i].forward(block, self.dropout.before(i, block, x, ctx));
        if i + 1 == self.layers.len() { x } else { self.dropout.after(i, block, x, ctx) }
    }
}

impl LayerWiseModel for Sage {
    fn widths(&self, i: usize) -> [usize; 2] {
        self.layers[i].weight_self.dims()
    }
}

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_sample::{KeyDomain, RngKey};
use serde::{Deserialize, Serialize};

use crate::stack::{Dropout, Widths};
use crate::{BlockModel, ForwardContext, GcnConv, GcnConvConfig, LayerWiseModel, ModelConfig, Result};

/// The configuration of a [`Gcn`] model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
}

impl GcnConfig {
    /// Creates a configuration of three layers with a hidden width of 256 and a dropout of 0.5 between layers.
    pub fn new(d_in: usize, n_classes: usize) -> Self {
        Self { d_in, hidden: 256, n_classes, n_layers: 3, input_dropout: 0.0, dropout: 0.5 }
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
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Gcn> {
        let &Self { d_in, hidden, n_classes, n_layers, input_dropout, dropout } = self;
        let widths = Widths { d_in, hidden, n_classes, n_layers }.of_layers()?;
        let dropout = Dropout::new(input_dropout, dropout)?;
        let layer = |(i, [d_in, d_out]): (usize, [usize; 2])| {
            GcnConvConfig { d_in, d_out }.init(key.fold_in(KeyDomain::Layer, i as u64), device)
        };
        let layers = widths.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
        Ok(Gcn { layers, dropout })
    }
}

impl ModelConfig for GcnConfig {
    const KIND: &'static str = "gcn";
    type Model = Gcn;

    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes)
    }

    fn n_layers(&self) -> usize {
        self.n_layers
    }

    fn needs_edge_weights(&self) -> bool {
        true
    }

    fn init(&self, key: RngKey, device: &Device) -> Result<Gcn> {
        self.init(key, device)
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
    #[module(skip)]
    dropout: Dropout,
}

impl BlockModel for Gcn {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// Runs layer `i`, followed by ReLU and dropout unless it is the last; see [`BlockModel::layer`].
    ///
    /// # Panics
    /// Panics if the block has no edge weights, and when [`BlockModel::layer`] panics.
    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let x = self.layers[i].forward(block, self.dropout.before(i, block, x, ctx));
        if i + 1 == self.layers.len() { x } else { self.dropout.after(i, block, x, ctx) }
    }
}

impl LayerWiseModel for Gcn {
    fn widths(&self, i: usize) -> [usize; 2] {
        self.layers[i].weight.dims()
    }
}

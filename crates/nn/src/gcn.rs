use std::fmt;

use burn::tensor::Device;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::frame::{debug_config, frame_options};
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    GcnConv, GcnConvConfig, GraphRequirements, JumpingKnowledge, ModelConfig, Net, Normalization, Result,
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
    ///
    /// ```
    /// # use kiln_nn::GcnConfig;
    /// // The model of a set with 1,433 feature columns and 7 classes, as Cora has.
    /// let config = GcnConfig::new(1_433, 7).layers(2).hidden(16);
    /// assert_eq!(config.dropout, 0.5);
    /// ```
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
    /// ```
    /// # use kiln_nn::{BlockModel, GcnConfig};
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = GcnConfig::new(8, 3).layers(2).hidden(16);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.n_layers(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a width or the number of layers is 0 or too large, if a dropout is not in `[0, 1)`, if
    /// `norm` or `jumping` has a value for another kind of model, or if no layer could have a residual connection.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Gcn> {
        Net::init(&self.frame(), key, device, |_, [d_in, d_out], key| {
            GcnConvConfig { d_in, d_out }.init(key, device)
        })
    }
}

impl fmt::Debug for GcnConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_config(f, "GcnConfig", &self.frame(), &[]).finish()
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

    fn requirements(&self) -> GraphRequirements {
        GraphRequirements { edge_weights: true, gcn_norm: true, ..GraphRequirements::default() }
    }
}

/// A graph convolutional network (Kipf and Welling 2017): [`GcnConv`] layers, with ReLU and then dropout
/// after each but the last, and dropout of the input features, as in the authors' code.
///
/// Blocks must have the edge weights of `kiln_graph::gcn_norm`. With sampled neighbours and
/// [`EdgeWeights::Unbiased`](kiln_sample::EdgeWeights::Unbiased), each layer is an unbiased estimate, given its input,
/// of the layer over whole neighbourhoods.
pub type Gcn = Net<GcnConv>;

use std::fmt;

use burn::tensor::Device;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::frame::{debug_config, frame_options};
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    Aggregate, EdgeWeighting, GraphRequirements, JumpingKnowledge, ModelConfig, Net, Normalization, Result,
    SageConv, SageConvConfig, WeightInit,
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
    /// The use of edge weights in the aggregation of neighbours.
    #[serde(default)]
    pub edge_weighting: EdgeWeighting,
}

impl SageConfig {
    /// Creates a configuration of three layers with mean aggregation, a hidden width of 256 and a dropout of 0.5
    /// between layers.
    ///
    /// ```
    /// # use kiln_nn::SageConfig;
    /// // The model of a set with 100 feature columns and 47 classes, as for `ogbn-products`.
    /// let config = SageConfig::new(100, 47);
    /// assert_eq!((config.n_layers, config.hidden), (3, 256));
    /// ```
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
            edge_weighting: EdgeWeighting::None,
        }
    }

    /// Sets the aggregation over neighbours.
    ///
    /// ```
    /// # use kiln_nn::{Aggregate, SageConfig};
    /// // The maximum of each column over the neighbours, as with `aggr="max"` in PyG.
    /// let config = SageConfig::new(100, 47).aggregate(Aggregate::Max);
    /// ```
    #[must_use]
    pub fn aggregate(self, aggregate: Aggregate) -> Self {
        Self { aggregate, ..self }
    }

    /// Sets the distribution of the layers' initial weights.
    ///
    /// ```
    /// # use kiln_nn::{SageConfig, WeightInit};
    /// // The initial weights of PyG's `SAGEConv`, which suit link prediction.
    /// let config = SageConfig::new(100, 47).weight_init(WeightInit::Pyg);
    /// ```
    #[must_use]
    pub fn weight_init(self, weight_init: WeightInit) -> Self {
        Self { weight_init, ..self }
    }

    /// Sets the use of edge weights in the aggregation of neighbours. Unless it is [`EdgeWeighting::None`], loaders need
    /// [`EdgeWeights::Stored`](kiln_sample::EdgeWeights::Stored), and the graph needs weights.
    ///
    /// ```
    /// use kiln_nn::{EdgeWeighting, SageConfig};
    /// let config = SageConfig::new(16, 3).edge_weighting(EdgeWeighting::Normalize);
    /// ```
    #[must_use]
    pub fn edge_weighting(self, edge_weighting: EdgeWeighting) -> Self {
        Self { edge_weighting, ..self }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// ```
    /// # use kiln_nn::{BlockModel, SageConfig};
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = SageConfig::new(8, 3).layers(2).hidden(16);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.n_layers(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a width or the number of layers is 0 or too large, if a dropout is not in `[0, 1)`, if
    /// `norm` or `jumping` has a value for another kind of model, if no layer could have a residual connection, or if the
    /// weighting does not apply to the aggregation.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Sage> {
        Net::init(&self.frame(), key, device, |_, [d_in, d_out], key| {
            let &Self { aggregate, edge_weighting, .. } = self;
            let config = SageConvConfig { d_in, d_out, aggregate, edge_weighting };
            config.init_with(self.weight_init, key, device)
        })
    }
}

impl fmt::Debug for SageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: [(&str, &dyn fmt::Debug); 1] = [("aggregate", &self.aggregate)];
        let mut text = debug_config(f, "SageConfig", &self.frame(), &layers);
        if self.weight_init != WeightInit::Dgl {
            text.field("weight_init", &self.weight_init);
        }
        if self.edge_weighting.reads_weights() {
            text.field("edge_weighting", &self.edge_weighting);
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

    fn requirements(&self) -> GraphRequirements {
        GraphRequirements {
            edge_weights: self.edge_weighting.reads_weights(),
            ..GraphRequirements::default()
        }
    }
}

/// GraphSAGE (Hamilton, Ying and Leskovec 2017): [`SageConv`] layers, with ReLU and then dropout after each but the
/// last, and optional dropout of the input features.
pub type Sage = Net<SageConv>;

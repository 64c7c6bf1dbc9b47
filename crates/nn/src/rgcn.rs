use std::fmt;

use burn::tensor::Device;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::edge_features::{common_width, n_edge_weights, relation_widths};
use crate::frame::frame_options;
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    EdgeWeighting, Error, GraphMetadata, GraphRequirements, JumpingKnowledge, ModelConfig, Net,
    Normalization, Result, RgcnConv, RgcnConvConfig,
};

/// The largest number of relations, because edge types are bytes.
const MAX_RELATIONS: usize = 256;

/// The configuration of a [`Rgcn`] model.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RgcnConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width of the rows between layers.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// Number of relations: one more than the largest edge type of the graph, 1 to 256.
    pub n_relations: usize,
    /// Number of bases of each layer, at least 1.
    pub n_bases: usize,
    /// Probability that dropout zeroes a value of the input features, in `[0, 1)`.
    pub input_dropout: f64,
    /// Probability that dropout zeroes a value between layers, in `[0, 1)`.
    pub dropout: f64,
    /// Normalisation of each layer's rows before the activation, except of the outputs: [`Normalization::None`] or
    /// [`Normalization::Layer`].
    #[serde(default)]
    pub norm: Normalization,
    /// True to add a node's own row to the result of each layer whose input and output have the hidden width (He,
    /// Zhang, Ren and Sun 2016), after activation and dropout. The outputs have no residual connection.
    #[serde(default)]
    pub residual: bool,
    /// The layers from which the outputs are computed: any but [`JumpingKnowledge::Sum`]. Except for
    /// [`JumpingKnowledge::Direct`], all layers have the hidden width, and a linear layer follows them.
    #[serde(default)]
    pub jumping: JumpingKnowledge,
    /// The use of edge weights in the mean over the edges of a relation.
    #[serde(default)]
    pub edge_weighting: EdgeWeighting,
    /// Number of columns of the edge features of each relation, or of each edge type, `None` for one without features; empty if the layers
    /// read no edge features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edge_features: Vec<Option<usize>>,
}

impl RgcnConfig {
    /// Creates a configuration of three layers with a hidden width of 256, 4 bases, and a dropout of 0.5 between layers.
    ///
    /// ```
    /// # use kiln_nn::RgcnConfig;
    /// // A graph whose edges have the types 0 to 3.
    /// let config = RgcnConfig::new(100, 47, 4);
    /// assert_eq!((config.n_relations, config.n_bases), (4, 4));
    /// ```
    pub fn new(d_in: usize, n_classes: usize, n_relations: usize) -> Self {
        Self {
            d_in,
            hidden: 256,
            n_classes,
            n_layers: 3,
            n_relations,
            n_bases: 4,
            input_dropout: 0.0,
            dropout: 0.5,
            norm: Normalization::None,
            residual: false,
            jumping: JumpingKnowledge::Direct,
            edge_weighting: EdgeWeighting::None,
            edge_features: Vec::new(),
        }
    }

    /// Sets the number of bases.
    ///
    /// ```
    /// # use kiln_nn::RgcnConfig;
    /// // The matrices of 90 relations are weighted sums of 30 matrices.
    /// let config = RgcnConfig::new(16, 11, 90).bases(30);
    /// ```
    #[must_use]
    pub fn bases(self, n_bases: usize) -> Self {
        Self { n_bases, ..self }
    }

    /// Sets the use of edge weights in the aggregation of neighbours. Unless it is [`EdgeWeighting::None`], loaders need
    /// [`EdgeWeights::Stored`](kiln_sample::EdgeWeights::Stored), and the graph needs weights.
    ///
    /// ```
    /// use kiln_nn::{EdgeWeighting, RgcnConfig};
    /// let config = RgcnConfig::new(16, 3, 2).edge_weighting(EdgeWeighting::Normalize);
    /// ```
    #[must_use]
    pub fn edge_weighting(self, edge_weighting: EdgeWeighting) -> Self {
        Self { edge_weighting, ..self }
    }

    /// Sets the number of columns of the edge features of each relation, or of each edge type, `None` for one without features. Loaders of a
    /// heterogeneous graph need `edge_features_by_relation`, others `edge_features`.
    ///
    /// ```
    /// # use kiln_nn::RgcnConfig;
    /// // The edges of the first relation have 5 feature columns, those of the second have none.
    /// let config = RgcnConfig::new(100, 47, 2).edge_features([Some(5), None]);
    /// # assert_eq!(config.edge_features.len(), 2);
    /// ```
    #[must_use]
    pub fn edge_features(self, widths: impl IntoIterator<Item = Option<usize>>) -> Self {
        Self { edge_features: widths.into_iter().collect(), ..self }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// ```
    /// # use kiln_nn::{BlockModel, RgcnConfig};
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = RgcnConfig::new(8, 3, 4).layers(2).hidden(16);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.n_layers(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a width or number is 0 or too large, if a dropout is not in `[0, 1)`, if `norm` or `jumping` has
    /// a value for another kind of model, or if no layer could have a residual connection.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Rgcn> {
        let &Self { n_relations, n_bases, edge_weighting, .. } = self;
        if MAX_RELATIONS < n_relations {
            return Err(Error::OutOfRange { name: "n_relations", got: n_relations, max: MAX_RELATIONS });
        }
        Net::init(&self.frame(), key, device, |_, [d_in, d_out], key| {
            let edge_features = self.edge_features.clone();
            let config = RgcnConvConfig { d_in, d_out, n_relations, n_bases, edge_weighting, edge_features };
            config.init(key, device)
        })
    }
}

/// The text identifies a run with its settings, so a default that older versions do not have is not a part of it.
impl fmt::Debug for RgcnConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("RgcnConfig");
        text.field("d_in", &self.d_in);
        text.field("hidden", &self.hidden);
        text.field("n_classes", &self.n_classes);
        text.field("n_layers", &self.n_layers);
        text.field("n_relations", &self.n_relations);
        text.field("n_bases", &self.n_bases);
        text.field("input_dropout", &self.input_dropout);
        text.field("dropout", &self.dropout);
        text.field("norm", &self.norm);
        text.field("residual", &self.residual);
        text.field("jumping", &self.jumping);
        if self.edge_weighting.reads_weights() {
            text.field("edge_weighting", &self.edge_weighting);
        }
        if !self.edge_features.is_empty() {
            text.field("edge_features", &self.edge_features);
        }
        text.finish()
    }
}

frame_options!(RgcnConfig, Activation::Relu);

impl ModelConfig for RgcnConfig {
    const KIND: &'static str = "rgcn";
    type Model = Rgcn;
    dims_and_init!();

    /// Returns [`RgcnConfig::new`] for the largest number of relations, 256, of which every graph has some.
    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes, 256)
    }

    fn min_parameters(&self) -> u64 {
        let coefficients = (self.n_relations as u64).saturating_mul(self.n_bases as u64);
        let matrices = self.frame().n_weights((self.n_bases as u64).saturating_add(1));
        let of_edges = n_edge_weights(&self.edge_features, self.hidden.min(self.n_classes));
        matrices.saturating_add(coefficients.saturating_add(of_edges).saturating_mul(self.n_layers as u64))
    }

    fn requirements(&self) -> GraphRequirements {
        let edge_weights = self.edge_weighting.reads_weights();
        GraphRequirements {
            edge_weights,
            n_relations: Some(self.n_relations),
            d_edge: common_width(&self.edge_features),
            edge_widths: (!self.edge_features.is_empty()).then(|| self.edge_features.clone()),
            ..GraphRequirements::default()
        }
    }

    fn for_graph(self, graph: &GraphMetadata) -> Self {
        let n_relations = graph.n_relations.unwrap_or(self.n_relations);
        Self { n_relations, ..self }
    }

    /// Returns a model with a matrix for the features of each relation, or of each edge type of a graph with one type of nodes.
    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        let n_relations = self.n_relations;
        match (relation_widths(graph), graph.d_edge) {
            (Some(widths), _) => Some(self.edge_features(widths)),
            (None, Some(d_edge)) => Some(self.edge_features(vec![Some(d_edge); n_relations])),
            (None, None) => None,
        }
    }
}

/// A relational graph convolutional network (Schlichtkrull et al. 2018): [`RgcnConv`] layers, with ReLU and then dropout
/// after each but the last, and optional dropout of the input features.
///
/// Blocks must have edge types.
pub type Rgcn = Net<RgcnConv>;

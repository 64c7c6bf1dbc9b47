use std::fmt;

use burn::tensor::Device;
use kiln_graph::Metagraph;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::edge_features::{common_width, n_edge_weights, relation_widths};
use crate::frame::frame_options;
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    Aggregate, EdgeWeighting, GraphMetadata, GraphRequirements, JumpingKnowledge, ModelConfig, Net,
    Normalization, Result, RsageConv, RsageConvConfig, WeightInit,
};

/// The configuration of a [`Rsage`] model.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RsageConfig {
    /// Width of the input rows of all node types.
    pub d_in: usize,
    /// Width of the rows between layers.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// Number of node types, at least 1.
    pub n_types: usize,
    /// The types of the sources and destinations of each relation.
    pub relations: Vec<[usize; 2]>,
    /// The aggregation of the neighbours by each relation.
    pub aggregate: Aggregate,
    /// Probability that dropout zeroes a value of the input rows, in `[0, 1)`.
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
    /// Number of columns of the edge features of each relation, `None` for one without features; empty if the layers
    /// read no edge features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edge_features: Vec<Option<usize>>,
}

impl RsageConfig {
    /// Creates a configuration of three layers with mean aggregation, a hidden width of 256 and a dropout of 0.5
    /// between layers, for one type of nodes and one relation.
    ///
    /// ```
    /// # use kiln_nn::RsageConfig;
    /// // `metagraph` sets the types and relations; a trainer takes them from the graph.
    /// let config = RsageConfig::new(64, 10).layers(2);
    /// assert_eq!((config.n_types, config.relations.len()), (1, 1));
    /// ```
    pub fn new(d_in: usize, n_classes: usize) -> Self {
        Self {
            d_in,
            hidden: 256,
            n_classes,
            n_layers: 3,
            n_types: 1,
            relations: vec![[0, 0]],
            aggregate: Aggregate::Mean,
            input_dropout: 0.0,
            dropout: 0.5,
            norm: Normalization::None,
            residual: false,
            jumping: JumpingKnowledge::Direct,
            weight_init: WeightInit::Dgl,
            edge_weighting: EdgeWeighting::None,
            edge_features: Vec::new(),
        }
    }

    /// Sets the node types and relations of the graph.
    ///
    /// ```
    /// # use kiln_nn::RsageConfig;
    /// use kiln_graph::Metagraph;
    /// // Users (type 0) buy items (type 1), and items are bought by users.
    /// let metagraph = Metagraph::new(2, vec![[0, 1], [1, 0]])?;
    /// let config = RsageConfig::new(64, 10).metagraph(&metagraph);
    /// assert_eq!((config.n_types, config.relations.len()), (2, 2));
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    #[must_use]
    pub fn metagraph(self, metagraph: &Metagraph) -> Self {
        Self { n_types: metagraph.n_types(), relations: metagraph.relations().to_vec(), ..self }
    }

    /// Sets the aggregation over neighbours.
    ///
    /// ```
    /// # use kiln_nn::{Aggregate, RsageConfig};
    /// // Sums over the neighbours by each relation, for tasks that depend on their number.
    /// let config = RsageConfig::new(64, 10).aggregate(Aggregate::Sum);
    /// ```
    #[must_use]
    pub fn aggregate(self, aggregate: Aggregate) -> Self {
        Self { aggregate, ..self }
    }

    /// Sets the distribution of the layers' initial weights.
    ///
    /// ```
    /// # use kiln_nn::{RsageConfig, WeightInit};
    /// // The initial weights of PyG's `SAGEConv`, which suit link prediction.
    /// let config = RsageConfig::new(64, 10).weight_init(WeightInit::Pyg);
    /// ```
    #[must_use]
    pub fn weight_init(self, weight_init: WeightInit) -> Self {
        Self { weight_init, ..self }
    }

    /// Sets the use of edge weights in the aggregation of neighbours. Unless it is [`EdgeWeighting::None`], loaders need
    /// [`EdgeWeights::Stored`](kiln_sample::EdgeWeights::Stored), and the graph needs weights.
    ///
    /// ```
    /// use kiln_nn::{EdgeWeighting, RsageConfig};
    /// let config = RsageConfig::new(16, 3).edge_weighting(EdgeWeighting::Normalize);
    /// ```
    #[must_use]
    pub fn edge_weighting(self, edge_weighting: EdgeWeighting) -> Self {
        Self { edge_weighting, ..self }
    }

    /// Sets the number of columns of the edge features of each relation, `None` for one without features. Loaders of a
    /// heterogeneous graph need `edge_features_by_relation`, others `edge_features`.
    ///
    /// ```
    /// # use kiln_nn::RsageConfig;
    /// # let metagraph = kiln_graph::Metagraph::new(2, vec![[0, 1], [1, 0]])?;
    /// // The edges of the first relation have 5 feature columns, those of the second have none.
    /// let config = RsageConfig::new(64, 10).metagraph(&metagraph).edge_features([Some(5), None]);
    /// # assert_eq!(config.edge_features.len(), 2);
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    #[must_use]
    pub fn edge_features(self, widths: impl IntoIterator<Item = Option<usize>>) -> Self {
        Self { edge_features: widths.into_iter().collect(), ..self }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// ```
    /// # use kiln_nn::{BlockModel, RsageConfig};
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = RsageConfig::new(8, 3).layers(2).hidden(16);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.n_layers(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the metagraph is invalid, if a width or the number of layers is 0 or too large, if a dropout is not
    /// in `[0, 1)`, if `norm` or `jumping` has a value for another kind of model, if no layer could have a residual
    /// connection, or if the weighting does not apply to the aggregation.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Rsage> {
        let metagraph = Metagraph::new(self.n_types, self.relations.clone())?;
        Net::init(&self.frame(), key, device, |_, [d_in, d_out], key| {
            let metagraph = metagraph.clone();
            let &Self { aggregate, edge_weighting, .. } = self;
            let edge_features = self.edge_features.clone();
            let config = RsageConvConfig { d_in, d_out, metagraph, aggregate, edge_weighting, edge_features };
            config.init_with(self.weight_init, key, device)
        })
    }
}

/// The text identifies a run with its settings, so a default that older versions do not have is not a part of it.
impl fmt::Debug for RsageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("RsageConfig");
        text.field("d_in", &self.d_in);
        text.field("hidden", &self.hidden);
        text.field("n_classes", &self.n_classes);
        text.field("n_layers", &self.n_layers);
        text.field("n_types", &self.n_types);
        text.field("relations", &self.relations);
        text.field("aggregate", &self.aggregate);
        text.field("input_dropout", &self.input_dropout);
        text.field("dropout", &self.dropout);
        text.field("norm", &self.norm);
        text.field("residual", &self.residual);
        text.field("jumping", &self.jumping);
        text.field("weight_init", &self.weight_init);
        if self.edge_weighting.reads_weights() {
            text.field("edge_weighting", &self.edge_weighting);
        }
        if !self.edge_features.is_empty() {
            text.field("edge_features", &self.edge_features);
        }
        text.finish()
    }
}

frame_options!(RsageConfig, Activation::Relu);

impl ModelConfig for RsageConfig {
    const KIND: &'static str = "rsage";
    type Model = Rsage;
    dims_and_init!();

    /// Returns [`RsageConfig::new`], which is for one type of nodes and one relation.
    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes)
    }

    fn min_parameters(&self) -> u64 {
        let matrices =
            self.frame().n_weights((self.n_types as u64).saturating_add(self.relations.len() as u64));
        let of_edges = n_edge_weights(&self.edge_features, self.hidden.min(self.n_classes));
        matrices.saturating_add(of_edges.saturating_mul(self.n_layers as u64))
    }

    /// Returns requirements without edge types for one type of nodes and one relation, where the model reads none.
    fn requirements(&self) -> GraphRequirements {
        let metagraph = Metagraph::new(self.n_types, self.relations.clone()).ok();
        let heterogeneous = metagraph.as_ref().filter(|metagraph| !metagraph.is_homogeneous());
        let n_relations = heterogeneous.map(Metagraph::n_relations);
        let edge_weights = self.edge_weighting.reads_weights();
        GraphRequirements {
            edge_weights,
            n_relations,
            metagraph,
            d_edge: common_width(&self.edge_features),
            edge_widths: (!self.edge_features.is_empty()).then(|| self.edge_features.clone()),
            ..GraphRequirements::default()
        }
    }

    fn for_graph(self, graph: &GraphMetadata) -> Self {
        match &graph.metagraph {
            Some(metagraph) => self.metagraph(metagraph),
            None => self,
        }
    }

    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        match (relation_widths(graph), graph.d_edge) {
            (Some(widths), _) => Some(self.edge_features(widths)),
            (None, Some(d_edge)) if self.relations.len() == 1 => Some(self.edge_features([Some(d_edge)])),
            (None, _) => None,
        }
    }
}

/// GraphSAGE for heterogeneous graphs (R-SAGE): [`RsageConv`] layers, with ReLU and then dropout after each but the last,
/// and optional dropout of the input rows.
///
/// The nodes of all types have input rows of one width, which an [`InputEncoder`](crate::InputEncoder) provides. Blocks need
/// relation groups, except for one type and one relation, where the model is a [`Sage`](crate::Sage) with bit-identical
/// initial weights, outputs and gradients. Because of the groups, it cannot be evaluated layer by layer.
pub type Rsage = Net<RsageConv>;

use burn::tensor::Device;
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::error::check_size;
use crate::frame::frame_options;
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    Epsilon, Error, GineConv, GraphMetadata, GraphRequirements, JumpingKnowledge, Linear, Mlp, MlpConfig,
    ModelConfig, Net, Normalization, Result,
};

/// The largest number of edge types, because they are bytes.
const MAX_TYPES: usize = 256;

/// What a [`Gine`] reads of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeInput {
    /// Its features, with this number of columns.
    Features(usize),
    /// Its type, which is below this number. Each layer has a row for each type.
    Types(usize),
}

/// The configuration of a [`Gine`] model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GineConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width of the rows between layers and inside their MLPs.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// Number of dense layers in each layer's MLP, at least 1.
    pub mlp_layers: usize,
    /// What the model reads of an edge.
    pub edges: EdgeInput,
    /// The epsilon of each layer: a node's own row has the weight `1 + epsilon`.
    pub epsilon: Epsilon,
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
}

impl GineConfig {
    /// Creates a configuration of three layers with a hidden width of 256, MLPs of two dense layers, an epsilon that is
    /// fixed at 0, and a dropout of 0.5 between layers.
    ///
    /// ```
    /// # use kiln_nn::{EdgeInput, GineConfig};
    /// // Edges have 5 feature columns.
    /// let config = GineConfig::new(100, 47, EdgeInput::Features(5));
    /// assert_eq!((config.mlp_layers, config.hidden), (2, 256));
    /// ```
    pub fn new(d_in: usize, n_classes: usize, edges: EdgeInput) -> Self {
        Self {
            d_in,
            hidden: 256,
            n_classes,
            n_layers: 3,
            mlp_layers: 2,
            edges,
            epsilon: Epsilon::Fixed(0.0),
            input_dropout: 0.0,
            dropout: 0.5,
            norm: Normalization::None,
            residual: false,
            jumping: JumpingKnowledge::Direct,
        }
    }

    /// Sets the number of dense layers in each layer's MLP.
    ///
    /// ```
    /// # use kiln_nn::{EdgeInput, GineConfig};
    /// // One dense layer in each layer, which has about half the parameters of two.
    /// let config = GineConfig::new(100, 47, EdgeInput::Types(4)).mlp_layers(1);
    /// ```
    #[must_use]
    pub fn mlp_layers(self, mlp_layers: usize) -> Self {
        Self { mlp_layers, ..self }
    }

    /// Sets the epsilon of each layer.
    ///
    /// ```
    /// # use kiln_nn::{EdgeInput, Epsilon, GineConfig};
    /// // Training adjusts the weight of a node's own row, which starts at 1.
    /// let config = GineConfig::new(100, 47, EdgeInput::Features(5)).epsilon(Epsilon::Learnable(0.0));
    /// ```
    #[must_use]
    pub fn epsilon(self, epsilon: Epsilon) -> Self {
        Self { epsilon, ..self }
    }

    /// Creates a model with initial weights drawn from the key, uniform as in PyTorch's `Linear`. Layer `i` uses
    /// `key.fold_in(KeyDomain::Layer, i)`; the linear layer of edges follows the dense layers of the MLP.
    ///
    /// ```
    /// # use kiln_nn::{BlockModel, EdgeInput, GineConfig};
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = GineConfig::new(8, 3, EdgeInput::Types(4)).layers(2).hidden(16);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.n_layers(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a width or number is 0 or too large, if a dropout is not in `[0, 1)`, if epsilon is not finite,
    /// if `norm` or `jumping` has a value for another kind of model, or if no layer could have a residual connection.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Gine> {
        let &Self { hidden, mlp_layers: n_layers, epsilon, edges, .. } = self;
        let width = match edges {
            EdgeInput::Features(width) => width,
            EdgeInput::Types(n_types) if MAX_TYPES < n_types => {
                return Err(Error::OutOfRange {
                    name: "the number of edge types",
                    got: n_types,
                    max: MAX_TYPES,
                });
            }
            EdgeInput::Types(n_types) => n_types,
        };
        check_size("the width of the edges' input", width)?;
        Net::init(&self.frame(), key, device, |_, [d_in, d_out], key| {
            let norm = Normalization::None;
            let mlp = MlpConfig { d_in, hidden, d_out, n_layers, norm }.init(key, device)?;
            let edge_linear = Linear::init(key, n_layers, [width, d_in], device)?;
            let conv = GineConv::new(mlp, Some(edge_linear), epsilon, device)?;
            Ok(match edges {
                EdgeInput::Features(_) => conv,
                EdgeInput::Types(_) => conv.of_edge_types(),
            })
        })
    }
}

frame_options!(GineConfig, Activation::Relu);

impl ModelConfig for GineConfig {
    const KIND: &'static str = "gine";
    type Model = Gine;
    dims_and_init!();

    /// Returns [`GineConfig::new`] for the largest number of edge types, 256, of which every graph has some.
    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes, EdgeInput::Types(MAX_TYPES))
    }

    /// Counts the matrices between rows of the hidden width and the first one, which is most of the MLPs.
    fn min_parameters(&self) -> u64 {
        match self.mlp_layers {
            0 | 1 => self.frame().n_weights(1),
            _ => {
                let hidden = self.hidden as u64;
                let d_in = self.d_in as u64;
                let hidden_layers = (self.n_layers as u64).saturating_mul(self.mlp_layers as u64 - 1);
                let inner = hidden_layers.saturating_sub(1).saturating_mul(hidden.saturating_mul(hidden));
                inner.saturating_add(d_in.saturating_mul(hidden))
            }
        }
    }

    fn requirements(&self) -> GraphRequirements {
        let (n_relations, d_edge) = match self.edges {
            EdgeInput::Types(n_types) => (Some(n_types), None),
            EdgeInput::Features(width) => (None, Some(width)),
        };
        GraphRequirements { n_relations, d_edge, ..GraphRequirements::default() }
    }

    /// Returns the configuration for the edge features of the graph if it has some, else for its number of edge types,
    /// unless the model reads features.
    fn for_graph(self, graph: &GraphMetadata) -> Self {
        let edges = match (graph.d_edge, graph.n_relations, self.edges) {
            (Some(d_edge), _, _) => EdgeInput::Features(d_edge),
            (None, Some(n_types), EdgeInput::Types(_)) => EdgeInput::Types(n_types),
            (None, _, edges) => edges,
        };
        Self { edges, ..self }
    }

    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        graph.d_edge.map(|d_edge| Self { edges: EdgeInput::Features(d_edge), ..self })
    }
}

/// A graph isomorphism network whose messages include features or types of edges (Hu et al. 2020): [`GineConv`] layers, with
/// ReLU and then dropout after each but the last, and optional dropout of the input features.
///
/// Blocks must have edge features ([`EdgeInput::Features`]) or edge types ([`EdgeInput::Types`]).
pub type Gine = Net<GineConv<Mlp>>;

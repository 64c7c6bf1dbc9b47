use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_graph::Metagraph;
use kiln_kernels::DeviceBlock;
use kiln_sample::{KeyDomain, RngKey};
use serde::{Deserialize, Serialize};

use crate::frame::frame_options;
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    Aggregate, BlockModel, ForwardContext, Frame, JumpingKnowledge, ModelConfig, Normalization, Result,
    RsageConv, RsageConvConfig, WeightInit,
};

/// The configuration of a [`Rsage`] model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
}

impl RsageConfig {
    /// Creates a configuration of three layers with mean aggregation, a hidden width of 256 and a dropout of 0.5
    /// between layers, for one type of nodes and one relation.
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
        }
    }

    /// Sets the node types and relations of the graph.
    #[must_use]
    pub fn metagraph(self, metagraph: &Metagraph) -> Self {
        Self { n_types: metagraph.n_types(), relations: metagraph.relations().to_vec(), ..self }
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
    /// Returns an error if the metagraph is invalid, if a width or the number of layers is 0 or too large, if a dropout is not
    /// in `[0, 1)`, if `norm` or `jumping` has a value for another kind of model, or if no layer could have a residual
    /// connection.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Rsage> {
        let metagraph = Metagraph::new(self.n_types, self.relations.clone())?;
        let (frame, aggregate) = (self.frame(), self.aggregate);
        let layer = |(i, [d_in, d_out]): (usize, [usize; 2])| {
            let key = key.fold_in(KeyDomain::Layer, i as u64);
            let metagraph = metagraph.clone();
            RsageConvConfig { d_in, d_out, metagraph, aggregate }.init_with(self.weight_init, key, device)
        };
        let layers = frame.of_convs()?.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
        Ok(Rsage { layers, frame: frame.init(key, device)? })
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
        self.frame().n_weights((self.n_types as u64).saturating_add(self.relations.len() as u64))
    }

    fn n_relations(&self) -> Option<usize> {
        let metagraph = self.relation_groups().filter(|metagraph| !metagraph.is_homogeneous());
        metagraph.map(|metagraph| metagraph.n_relations())
    }

    fn relation_groups(&self) -> Option<Metagraph> {
        Metagraph::new(self.n_types, self.relations.clone()).ok()
    }

    fn with_metagraph(self, metagraph: &Metagraph) -> Self {
        self.metagraph(metagraph)
    }
}

/// GraphSAGE for heterogeneous graphs (R-SAGE): [`RsageConv`] layers, with ReLU and then dropout after each but the last,
/// and optional dropout of the input rows.
///
/// The nodes of all types have input rows of one width, which an [`InputEncoder`](crate::InputEncoder) provides. Blocks need
/// relation groups, except for one type and one relation, where the model is a [`Sage`](crate::Sage) with bit-identical
/// initial weights, outputs and gradients. Because of the groups, the model is no [`LayerWiseModel`](crate::LayerWiseModel).
///
/// The dropout mask of a row is a function of its node's global id, the layer and the key of the step. It does not
/// depend on the distribution of a step's seeds over ranks.
#[derive(Module, Debug)]
pub struct Rsage {
    /// The layers, input layer first.
    pub layers: Vec<RsageConv>,
    /// Normalisations and the linear layer of jumping knowledge; without parameters if the options are not used.
    pub frame: Frame,
}

impl BlockModel for Rsage {
    fn uses_burn_rng(&self) -> bool {
        false
    }

    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn reads_half_rows(&self) -> bool {
        true
    }

    fn reads_relation_groups(&self) -> bool {
        self.layers.iter().any(RsageConv::reads_relation_groups)
    }

    /// Runs layer `i`, followed by ReLU and dropout unless it is the last; see [`BlockModel::layer`].
    ///
    /// # Panics
    /// Panics if the block has no relation groups of the model's metagraph, and when [`BlockModel::layer`] panics.
    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.frame.layer(i, block, x, ctx, |x| self.layers[i].forward(block, x))
    }
}

use burn::module::Module;
use burn::nn::BatchNorm;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, DeviceGraphs, is_cpu, ops};
use kiln_sample::{KeyDomain, RngKey};
use serde::{Deserialize, Serialize};

use crate::error::{check_dropout, check_size};
use crate::model::dims_and_init;
use crate::stack::n_weights;
use crate::{
    Aggregate, Epsilon, Error, ForwardContext, GinConv, GraphModel, Linear, Mlp, MlpConfig, Mode,
    ModelConfig, Normalization, Readout, Result,
};

/// The layers from which the scores of graphs or nodes are computed. In a model of nodes there is no pooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JumpingKnowledge {
    /// The last layer alone, without a linear layer. Its rows have one column per class, and the readout returns the
    /// scores.
    #[default]
    Direct,
    /// The last layer alone, with a linear layer on its pooled rows: PyG's `jk="last"`.
    Last,
    /// All layers and the input, as in the paper: each has its own linear layer on its pooled rows, and the scores are
    /// summed. Except for the initial weights, this equals one linear layer on the concatenated pooled rows of all
    /// layers (Xu, Li, Tian, Sonobe, Kawarabayashi and Jegelka 2018). It is for [`Gin`].
    Sum,
    /// The concatenated rows of all layers, without the input, with a linear layer: PyG's `jk="cat"`. It is for
    /// models of nodes, such as [`Sage`](crate::Sage).
    Cat,
    /// The maximum of each column over the rows of all layers, without the input, with a linear layer: PyG's
    /// `jk="max"`. It is for models of nodes, such as [`Sage`](crate::Sage).
    Max,
}

fn other_jumping(got: &'static str) -> Error {
    Error::OtherModel { name: "jumping", got, expected: "direct, last or sum" }
}

/// The configuration of a [`Gin`] model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GinConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width of the rows between layers and inside their MLPs.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of [`GinConv`] layers, at least 1. The paper also counts the input, so its 5 layers are 4 here.
    pub n_layers: usize,
    /// Number of dense layers in each layer's MLP, at least 1.
    pub mlp_layers: usize,
    /// Normalisation inside the MLPs and after each of them.
    pub norm: Normalization,
    /// The epsilon of each layer: a node's own row has the weight `1 + epsilon`.
    pub epsilon: Epsilon,
    /// The aggregation of neighbours.
    pub aggregate: Aggregate,
    /// The pooling of a graph's nodes.
    pub readout: Readout,
    /// The layers from which the scores are computed.
    pub jumping: JumpingKnowledge,
    /// Probability that dropout zeroes a score of a linear layer after the readout (the paper's "final dropout"), in
    /// `[0, 1)`. It has no effect with [`JumpingKnowledge::Direct`].
    pub dropout: f64,
}

impl GinConfig {
    /// Creates the configuration of DGL's tutorial on graph classification with several GPUs: a [`GinConv`] of one
    /// dense layer `d_in -> hidden`, ReLU, another `hidden -> n_classes`, and the sum of its rows for each graph.
    /// Neighbours are summed, epsilon is fixed at 0, and there is no normalisation. The tutorial sets `hidden` to its
    /// number of classes, 2.
    ///
    /// ```
    /// # use kiln_nn::GinConfig;
    /// // The tutorial's model for graphs of 3 feature columns and 2 classes.
    /// let config = GinConfig::simplified(3, 2, 2);
    /// assert_eq!((config.n_layers, config.mlp_layers), (2, 1));
    /// ```
    pub fn simplified(d_in: usize, hidden: usize, n_classes: usize) -> Self {
        Self {
            n_layers: 2,
            mlp_layers: 1,
            norm: Normalization::None,
            jumping: JumpingKnowledge::Direct,
            dropout: 0.0,
            ..Self::paper(d_in, hidden, n_classes)
        }
    }

    /// Creates the configuration of GIN-0 in section 7 of the paper: 5 layers including the input, MLPs of 2 dense
    /// layers, batch normalisation, sums over neighbours, nodes and the layers' scores, and a dropout of 0.5, one of
    /// the two values that the paper's search tried. The paper's GIN-eps uses [`Epsilon::Learnable`]`(0.0)`; for social
    /// networks the paper's readout is the mean.
    ///
    /// ```
    /// # use kiln_nn::{Epsilon, GinConfig};
    /// // GIN-0 for MUTAG, whose nodes have 7 labels; a learnable epsilon makes it GIN-eps.
    /// let config = GinConfig::paper(7, 32, 2);
    /// let config = GinConfig { epsilon: Epsilon::Learnable(0.0), ..config };
    /// assert_eq!(config.n_layers, 4);
    /// ```
    pub fn paper(d_in: usize, hidden: usize, n_classes: usize) -> Self {
        Self {
            d_in,
            hidden,
            n_classes,
            n_layers: 4,
            mlp_layers: 2,
            norm: Normalization::Batch,
            epsilon: Epsilon::Fixed(0.0),
            aggregate: Aggregate::Sum,
            readout: Readout::Sum,
            jumping: JumpingKnowledge::Sum,
            dropout: 0.5,
        }
    }

    /// Creates a model with initial weights drawn from the key, uniform as in PyTorch's `Linear`. Layer `i` uses
    /// `key.fold_in(KeyDomain::Layer, i)`; the linear layers after the readout use `i = n_layers`.
    ///
    /// ```
    /// # use kiln_nn::GinConfig;
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = GinConfig::paper(7, 16, 2);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.layers.len(), 4);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a width or a number of layers is 0 or too large, if epsilon is not finite, if the dropout is
    /// not in `[0, 1)`, or if `norm` or `jumping` has a value for another kind of model.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Gin> {
        check_size("n_classes", self.n_classes)?;
        check_size("n_layers", self.n_layers)?;
        check_size("mlp_layers", self.mlp_layers)?;
        check_dropout("dropout", self.dropout)?;
        let layer_key = |i: usize| key.fold_in(KeyDomain::Layer, i as u64);
        let layers =
            (0..self.n_layers).map(|i| self.layer(i, layer_key(i), device)).collect::<Result<_>>()?;
        let pooled_widths = match self.jumping {
            JumpingKnowledge::Direct => Vec::new(),
            JumpingKnowledge::Last => vec![self.hidden],
            JumpingKnowledge::Sum => [vec![self.d_in], vec![self.hidden; self.n_layers]].concat(),
            JumpingKnowledge::Cat => return Err(other_jumping("cat")),
            JumpingKnowledge::Max => return Err(other_jumping("max")),
        };
        let heads = pooled_widths
            .into_iter()
            .enumerate()
            .map(|(k, width)| Linear::init(layer_key(self.n_layers), k, [width, self.n_classes], device))
            .collect::<Result<_>>()?;
        Ok(Gin { layers, heads, readout: self.readout, dropout: self.dropout })
    }

    fn layer(&self, i: usize, key: RngKey, device: &Device) -> Result<GinLayer> {
        let &Self { hidden, norm, mlp_layers: n_layers, .. } = self;
        let d_in = if i == 0 { self.d_in } else { hidden };
        let gives_scores = self.jumping == JumpingKnowledge::Direct && i + 1 == self.n_layers;
        let d_out = if gives_scores { self.n_classes } else { hidden };
        let mlp = MlpConfig { d_in, hidden, d_out, n_layers, norm }.init(key, device)?;
        let conv = GinConv::new(mlp, self.epsilon, self.aggregate, device)?;
        let (norm, follow) =
            if gives_scores { (None, Follow::Nothing) } else { (norm.init(d_out, device)?, Follow::Relu) };
        Ok(GinLayer { conv, norm, follow })
    }
}

impl GinConfig {
    /// Returns the number of weights of the model's matrices.
    fn n_weights(&self) -> u64 {
        let &Self { d_in, hidden, n_classes, n_layers, mlp_layers, jumping, .. } = self;
        let is_direct = jumping == JumpingKnowledge::Direct;
        let layer = |i: usize| {
            let d_out = if is_direct && i + 1 == n_layers { n_classes } else { hidden };
            n_weights(mlp_layers, if i == 0 { d_in } else { hidden }, hidden, d_out)
        };
        // The layers between the first and the last one are equal.
        let layers = match n_layers {
            0 => 0,
            1 => layer(0),
            _ => layer(1)
                .saturating_mul(n_layers as u64 - 2)
                .saturating_add(layer(0))
                .saturating_add(layer(n_layers - 1)),
        };
        let head = |width: usize| (width as u64).saturating_mul(n_classes as u64);
        let heads = match jumping {
            JumpingKnowledge::Sum => head(hidden).saturating_mul(n_layers as u64).saturating_add(head(d_in)),
            JumpingKnowledge::Last => head(hidden),
            _ => 0,
        };
        layers.saturating_add(heads)
    }
}

impl ModelConfig for GinConfig {
    const KIND: &'static str = "gin";
    type Model = Gin;
    dims_and_init!();

    /// Returns [`GinConfig::paper`] with a hidden width of 64.
    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::paper(d_in, 64, n_classes)
    }

    fn min_parameters(&self) -> u64 {
        self.n_weights()
    }
}

/// A graph isomorphism network (Xu, Hu, Leskovec and Jegelka 2019), as in the authors' code: [`GinConv`]
/// layers, each followed by batch normalisation and ReLU, and scores from the pooled rows of all layers.
///
/// The dropout mask of a score is a function of its graph's id, the linear layer and the key of the step. It does not
/// depend on the distribution of a step's graphs over ranks. Batch normalisation uses the statistics of the graphs of
/// one rank.
#[derive(Module, Debug)]
pub struct Gin {
    /// The layers, input layer first.
    pub layers: Vec<GinLayer>,
    /// The linear layers after the readout: one for the pooled rows of the input and of each layer
    /// ([`JumpingKnowledge::Sum`]), one for those of the last layer ([`JumpingKnowledge::Last`]), or none
    /// ([`JumpingKnowledge::Direct`]).
    pub heads: Vec<Linear>,
    #[module(skip)]
    readout: Readout,
    #[module(skip)]
    dropout: f64,
}

impl Gin {
    /// Returns the scores of linear layer `k` for the node rows `x`: readout, linear layer and, in training, dropout.
    fn head(&self, k: usize, graphs: &DeviceGraphs, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let pooled = self.readout.pool(graphs.segments(), x);
        let head = &self.heads[k];
        let nodes = graphs.items();
        match ctx.mode {
            Mode::Train if is_cpu(&pooled.device()) => {
                ops::dropout(head.forward(pooled), nodes, ctx.key, k, self.dropout)
            }
            Mode::Train => {
                let scores = ops::product(pooled, head.weight.val());
                ops::bias_dropout(scores, head.bias.val(), false, nodes, ctx.key, k, self.dropout)
            }
            Mode::Eval => head.forward(pooled),
        }
    }
}

impl GraphModel for Gin {
    fn uses_burn_rng(&self) -> bool {
        false
    }

    fn forward(&self, graphs: &DeviceGraphs, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let reads_all = self.heads.len() == self.layers.len() + 1;
        let mut scores = reads_all.then(|| self.head(0, graphs, x.clone(), ctx));
        let mut x = x;
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(graphs.block(), x, ctx);
            scores = scores.map(|scores| scores + self.head(i + 1, graphs, x.clone(), ctx));
        }
        match scores {
            Some(scores) => scores,
            None if self.heads.is_empty() => self.readout.pool(graphs.segments(), x),
            None => self.head(0, graphs, x, ctx),
        }
    }
}

/// A [`GinConv`], followed by optional normalisation and ReLU. A layer whose output is the scores has neither of the
/// two.
#[derive(Module, Debug)]
pub struct GinLayer {
    /// The convolution.
    pub conv: GinConv<Mlp>,
    /// The normalisation of its output, if there is one.
    pub norm: Option<BatchNorm>,
    #[module(skip)]
    follow: Follow,
}

/// The activation at the end of a layer.
#[derive(Debug, Clone, Copy)]
enum Follow {
    Relu,
    /// No activation, because the output of the layer is the scores.
    Nothing,
}

impl GinLayer {
    fn forward(&self, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let rows = self.conv.aggregated(block, x);
        let has_relu = matches!(self.follow, Follow::Relu);
        self.conv.mlp.forward_normalized(rows, self.norm.as_ref(), has_relu, ctx)
    }
}

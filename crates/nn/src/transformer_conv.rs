use std::fmt;

use burn::module::{Module, Param};
use burn::tensor::activation::sigmoid;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, ops};
use kiln_sample::RngKey;
use serde::{Deserialize, Serialize};

use crate::attention::{HeadOutput, Heads, Messages};
use crate::edge_features::{check_edge_features, edge_features_of};
use crate::error::check_size;
use crate::frame::frame_options;
use crate::init::uniform;
use crate::model::dims_and_init;
use crate::stack::Activation;
use crate::{
    Conv, Error, ForwardContext, GraphMetadata, GraphRequirements, InputFormat, JumpingKnowledge,
    LayerMemory, LayerSize, Linear, ModelConfig, Net, Normalization, Result,
};

/// The widths and options of a [`TransformerConv`] layer.
#[derive(Debug, Clone)]
pub struct TransformerConvConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width of the rows of one head.
    pub d_head: usize,
    /// Number of attention heads, at least 1.
    pub n_heads: usize,
    /// The combination of the heads; [`HeadOutput::Concat`] is PyG's `concat=True`.
    pub output: HeadOutput,
    /// Probability that dropout zeroes an attention weight, in `[0, 1)`.
    pub attention_dropout: f64,
    /// True to add a dense layer of the destination's own row.
    pub root_weight: bool,
    /// True to weight the own row and the sum over the edges by a learned gate instead of adding them. It needs the root
    /// weight.
    pub beta: bool,
    /// Number of columns of the edge features, which are a part of the scores and of the messages; `None` without edge
    /// features.
    pub edge_features: Option<usize>,
}

impl TransformerConvConfig {
    /// Creates a layer of concatenated heads with a root weight, without a gate, dropout and edge features: PyG's defaults.
    pub fn new(d_in: usize, d_head: usize, n_heads: usize) -> Self {
        let output = HeadOutput::Concat;
        let attention_dropout = 0.0;
        Self {
            d_in,
            d_head,
            n_heads,
            output,
            attention_dropout,
            root_weight: true,
            beta: false,
            edge_features: None,
        }
    }

    /// Creates a layer with initial weights drawn from the key: uniform within `1 / sqrt(d_in)`, biases too, as in PyG's
    /// `TransformerConv`. Parameters `2 i` and `2 i + 1` are weight and bias of the keys, queries, values and own rows, in this
    /// order, 8 is the gate, and 9 the matrix of edge features, uniform within `1 / sqrt(d_edge)`.
    ///
    /// # Errors
    /// Returns an error if a width or the number of heads is 0 or too large, if the dropout is not in `[0, 1)`, or if there is a
    /// gate without a root weight.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<TransformerConv> {
        let &Self { d_in, d_head, n_heads, output, attention_dropout: dropout, root_weight, beta, .. } = self;
        // The scores have no leaky ReLU, so the slope is not used.
        let heads = Heads { n_heads, d_head, output, negative_slope: 0.0, dropout };
        heads.check(d_in)?;
        check_edge_features(self.edge_features)?;
        if beta && !root_weight {
            return Err(Error::OtherModel {
                name: "beta",
                got: "true",
                expected: "false without root_weight",
            });
        }
        let width = heads.width();
        let d_out = heads.d_out();
        let bound = 1.0 / (3.0 * d_out as f64).sqrt();
        Ok(TransformerConv {
            key: Linear::init(key, 0, [d_in, width], device)?,
            query: Linear::init(key, 1, [d_in, width], device)?,
            value: Linear::init(key, 2, [d_in, width], device)?,
            skip: root_weight.then(|| Linear::init(key, 3, [d_in, d_out], device)).transpose()?,
            beta: beta.then(|| uniform(key, 8, [3 * d_out, 1], bound, device)),
            weight_edge: self
                .edge_features
                .map(|d_edge| uniform(key, 9, [d_edge, width], 1.0 / (d_edge as f64).sqrt(), device)),
            heads,
        })
    }
}

/// A layer of a graph transformer (Shi, Huang, Feng, Zhong, Wang and Sun 2021, "Masked Label Prediction"): for each head,
/// `m_v = sum over u -> v of alpha_uv value(x_u)`, where `alpha_uv` is the softmax over the edges of `v` of
/// `query(x_v) . key(x_u) / sqrt(d_head)`.
///
/// With the dense layer `r_v = skip(x_v)` of the root weight, the output is `m_v + r_v`, or with a gate
/// `beta r_v + (1 - beta) m_v`, where `beta = sigmoid([m_v, r_v, m_v - r_v] w)`. It is PyG's `TransformerConv`. The layer has
/// no normalisation and no activation.
///
/// With edge features `e_uv`, `W_edge e_uv` is added to the keys and to the values, as in PyG's layer with `edge_dim`.
///
/// Without edge features, the scores and their gradients are computed without an array of one row per edge ([`ops::edge_dots`]).
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
/// use kiln_kernels::DeviceBlock;
/// use kiln_nn::{ForwardContext, Mode, TransformerConvConfig};
/// use kiln_sample::RngKey;
/// // The edges 7 -> 2 and 9 -> 2 of the destination 2.
/// let block = Block::new(BlockParts {
///     srcs: vec![NodeId(2), NodeId(7), NodeId(9)],
///     indptr: vec![0, 2],
///     indices: vec![LocalId(1), LocalId(2)],
///     edge_ids: vec![EdgeId(0), EdgeId(1)],
///     ..BlockParts::default()
/// });
/// let device = Device::flex();
/// let block = DeviceBlock::upload(&block, &device);
/// // Two heads of three columns for input rows of five columns.
/// let config = TransformerConvConfig { beta: true, ..TransformerConvConfig::new(5, 3, 2) };
/// let layer = config.init(RngKey::new(0), &device)?;
/// let ctx = ForwardContext { key: RngKey::new(1), mode: Mode::Eval };
/// let rows = layer.forward(0, &block, Tensor::ones([3, 5], &device), &ctx);
/// assert_eq!(rows.dims(), [1, 6]);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Module, Debug)]
pub struct TransformerConv {
    /// The keys of the sources, of `n_heads * d_head` columns.
    pub key: Linear,
    /// The queries of the destinations, of as many columns.
    pub query: Linear,
    /// The values of the sources, of as many columns.
    pub value: Linear,
    /// The layer of the own rows, of `d_out` columns; `None` without a root weight.
    pub skip: Option<Linear>,
    /// The weights of the gate for the sum over the edges, the own row and their difference, `[3 * d_out, 1]`; `None` without a
    /// gate.
    pub beta: Option<Param<Tensor<2>>>,
    /// The weight matrix of edge features, `[d_edge, n_heads * d_head]`, without a bias; `None` if the layer reads none.
    pub weight_edge: Option<Param<Tensor<2>>>,
    #[module(skip)]
    heads: Heads,
}

impl TransformerConv {
    /// Runs the layer. In training, the masks of the attention weights are keyed by the edges' ids and `layer`, the
    /// layer's number in its model.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, n_heads * d_head]`, or `[n_dst, d_head]` with [`HeadOutput::Mean`].
    ///
    /// # Panics
    /// Panics if `x` does not have this shape, or if the block lacks edge features that the layer reads.
    pub fn forward(
        &self,
        layer: usize,
        block: &DeviceBlock,
        x: Tensor<2>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let own = ops::take_dst(block, x.clone());
        let queries = self.query.forward(own.clone());
        let keys = self.key.forward(x.clone());
        let n_heads = self.heads.n_heads;
        let of_edges =
            self.weight_edge.as_ref().map(|weight| ops::product(edge_features_of(block), weight.val()));
        let mut dots = ops::edge_dots(block, keys, queries.clone(), n_heads);
        if let Some(of_edges) = &of_edges {
            dots = dots + ops::edge_row_dots(block, of_edges.clone(), queries, n_heads);
        }
        let scores = dots / (self.heads.d_head as f64).sqrt();
        let messages = Messages { of_sources: self.value.forward(x), of_edges };
        let rows = self.heads.attend(layer, block, scores, messages, self.sum_bias(), ctx);
        match (&self.skip, &self.beta) {
            (None, _) => rows,
            // The bias of the own rows is in the sums already.
            (Some(skip), None) => ops::linear(rows, own, skip.weight.val()),
            (Some(skip), Some(beta)) => gated(rows, skip.forward(own), beta.val()),
        }
    }

    /// Returns the bias of the sums over the edges: that of the own rows if they are added to the sums, otherwise zeros.
    fn sum_bias(&self) -> Tensor<1> {
        match (&self.skip, &self.beta) {
            (Some(skip), None) => skip.bias.val(),
            _ => {
                let bias = self.value.bias.val();
                Tensor::zeros([self.heads.d_out()], (&bias.device(), bias.dtype()))
            }
        }
    }
}

/// Returns `beta own + (1 - beta) sums` with `beta = sigmoid([sums, own, sums - own] weight)`.
///
/// The three parts of the weight are combined to two, so that no array of `3 d_out` columns is created.
fn gated(sums: Tensor<2>, own: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let [_, d_out] = sums.dims();
    let [of_sums, of_own, of_difference] =
        [0, 1, 2].map(|part| weight.clone().narrow(0, part * d_out, d_out));
    let logits = ops::product(sums.clone(), of_sums + of_difference.clone());
    let beta = sigmoid(ops::linear(logits, own.clone(), of_own - of_difference));
    sums.clone() + ops::mul_column(own - sums, beta)
}

impl Conv for TransformerConv {
    fn forward(&self, layer: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.forward(layer, block, x, ctx)
    }

    fn input_format(&self) -> InputFormat {
        InputFormat { half_rows: true, ..InputFormat::default() }
    }

    fn uses_burn_rng(&self) -> bool {
        false
    }

    fn size(&self) -> Option<LayerSize> {
        let [d_in, width] = self.key.weight.dims();
        let d_out = self.heads.d_out();
        let n_heads = self.heads.n_heads;
        // The features of an edge and their product.
        let of_features = self.weight_edge.as_ref().map_or(0, |weight| weight.dims()[0] + width);
        let memory = LayerMemory {
            // The query, the sums of all heads, and the own row with its difference to them.
            dst_bytes: 4 * (2 * width + 2 * d_out) as u64,
            // The key and the value.
            src_bytes: 4 * 2 * width as u64,
            // The dot product, the score and the weight of each head.
            edge_bytes: 4 * (3 * n_heads + of_features) as u64,
        };
        Some(LayerSize { widths: [d_in, d_out], memory })
    }
}

/// The configuration of a [`Transformer`] model.
///
/// ```
/// use burn::tensor::Device;
/// use kiln_nn::{BlockModel, Normalization, TransformerConfig};
/// use kiln_sample::RngKey;
/// // As in the paper: two heads in each layer, gates and layer normalisation.
/// let config = TransformerConfig::new(100, 40).hidden(64).heads(2).output_heads(2);
/// let config = config.beta(true).norm(Normalization::Layer).dropout(0.3);
/// let model = config.init(RngKey::new(0), &Device::flex())?;
/// assert_eq!(model.n_layers(), 3);
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width of the rows between layers, of all heads together: a multiple of `n_heads`.
    pub hidden: usize,
    /// Width of the output rows, one column per class.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// Number of attention heads of each layer but the last. Their rows are concatenated.
    pub n_heads: usize,
    /// Number of attention heads of the last layer. Their rows are averaged. With jumping knowledge, the last layer has
    /// `n_heads` concatenated heads instead.
    pub n_output_heads: usize,
    /// True for layers with a dense layer of a node's own row ([`TransformerConvConfig::root_weight`]).
    pub root_weight: bool,
    /// True for layers with a gate between a node's own row and the sum over its edges ([`TransformerConvConfig::beta`]).
    pub beta: bool,
    /// Probability that dropout zeroes an attention weight, in `[0, 1)`.
    pub attention_dropout: f64,
    /// Probability that dropout zeroes a value of the input features, in `[0, 1)`.
    pub input_dropout: f64,
    /// Probability that dropout zeroes a value between layers, in `[0, 1)`.
    pub dropout: f64,
    /// Normalisation of each layer's rows before the activation, except of the outputs: [`Normalization::None`] or
    /// [`Normalization::Layer`].
    pub norm: Normalization,
    /// True to add a node's own row to the result of each layer whose input and output have the hidden width (He,
    /// Zhang, Ren and Sun 2016), after activation and dropout, in addition to the root weight. The outputs have no residual
    /// connection.
    pub residual: bool,
    /// The layers from which the outputs are computed: any but [`JumpingKnowledge::Sum`]. Except for
    /// [`JumpingKnowledge::Direct`], all layers have the hidden width, and a linear layer follows them.
    pub jumping: JumpingKnowledge,
    /// Number of columns of the edge features that the layers read; `None` if they read none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_features: Option<usize>,
}

impl TransformerConfig {
    /// Creates a configuration of three layers with a hidden width of 256, which are 4 heads of 64, one output head, a root
    /// weight without a gate, and a dropout of 0.5 between layers.
    ///
    /// ```
    /// # use kiln_nn::TransformerConfig;
    /// // 4 heads of 64 columns in each layer but the last.
    /// let config = TransformerConfig::new(100, 47);
    /// assert_eq!((config.n_heads, config.hidden, config.root_weight), (4, 256, true));
    /// ```
    pub fn new(d_in: usize, n_classes: usize) -> Self {
        Self {
            d_in,
            hidden: 256,
            n_classes,
            n_layers: 3,
            n_heads: 4,
            n_output_heads: 1,
            root_weight: true,
            beta: false,
            attention_dropout: 0.0,
            input_dropout: 0.0,
            dropout: 0.5,
            norm: Normalization::None,
            residual: false,
            jumping: JumpingKnowledge::Direct,
            edge_features: None,
        }
    }

    /// Sets the number of heads of each layer but the last.
    ///
    /// ```
    /// # use kiln_nn::TransformerConfig;
    /// // 8 heads of 32 columns: the number of heads divides the hidden width.
    /// let config = TransformerConfig::new(100, 47).hidden(256).heads(8);
    /// ```
    #[must_use]
    pub fn heads(self, n_heads: usize) -> Self {
        Self { n_heads, ..self }
    }

    /// Sets the number of heads of the last layer.
    ///
    /// ```
    /// # use kiln_nn::TransformerConfig;
    /// // The scores of a node are the mean of those of 2 heads.
    /// let config = TransformerConfig::new(100, 47).output_heads(2);
    /// ```
    #[must_use]
    pub fn output_heads(self, n_output_heads: usize) -> Self {
        Self { n_output_heads, ..self }
    }

    /// Sets whether layers have a dense layer of a node's own row.
    ///
    /// ```
    /// # use kiln_nn::TransformerConfig;
    /// // A node's own row reaches its output only through a self loop of the graph.
    /// let config = TransformerConfig::new(100, 47).root_weight(false);
    /// ```
    #[must_use]
    pub fn root_weight(self, root_weight: bool) -> Self {
        Self { root_weight, ..self }
    }

    /// Sets whether layers have a gate.
    ///
    /// ```
    /// # use kiln_nn::TransformerConfig;
    /// // A gate weighs a node's own row against the sum over its neighbours.
    /// let config = TransformerConfig::new(100, 47).beta(true);
    /// ```
    #[must_use]
    pub fn beta(self, beta: bool) -> Self {
        Self { beta, ..self }
    }

    /// Sets the dropout of the attention weights.
    ///
    /// ```
    /// # use kiln_nn::TransformerConfig;
    /// // In a training step, an attention weight is 0 with a probability of 0.1.
    /// let config = TransformerConfig::new(100, 47).attention_dropout(0.1);
    /// ```
    #[must_use]
    pub fn attention_dropout(self, attention_dropout: f64) -> Self {
        Self { attention_dropout, ..self }
    }

    /// Sets the number of columns of the edge features that the layers read, which are a part of the scores and the messages. Loaders need `edge_features`.
    ///
    /// ```
    /// # use kiln_nn::TransformerConfig;
    /// // The edges have 5 feature columns.
    /// let config = TransformerConfig::new(100, 47).edge_features(5);
    /// # assert_eq!(config.edge_features, Some(5));
    /// ```
    #[must_use]
    pub fn edge_features(self, d_edge: usize) -> Self {
        Self { edge_features: Some(d_edge), ..self }
    }

    /// Creates a model with initial weights drawn from the key; layer `i` uses `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// ```
    /// # use kiln_nn::{BlockModel, TransformerConfig};
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// let config = TransformerConfig::new(8, 3).layers(2).hidden(16).heads(2);
    /// let model = config.init(RngKey::new(0), &Device::flex())?;
    /// assert_eq!(model.n_layers(), 2);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a width, a number of heads or the number of layers is 0 or too large, if the hidden width is not
    /// a multiple of the number of heads, if a dropout is not in `[0, 1)`, if there is a gate without a root weight, if `norm`
    /// or `jumping` has a value for another kind of model, or if no layer could have a residual connection.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Transformer> {
        Net::init(&self.frame(), key, device, |i, widths, key| self.conv(i, widths)?.init(key, device))
    }

    /// Returns the configuration of layer `i`.
    fn conv(&self, i: usize, [d_in, d_out]: [usize; 2]) -> Result<TransformerConvConfig> {
        let &Self { attention_dropout, root_weight, beta, edge_features, .. } = self;
        let gives_scores = self.jumping == JumpingKnowledge::Direct && i + 1 == self.n_layers;
        let (n_heads, d_head, output) = if gives_scores {
            (self.n_output_heads, d_out, HeadOutput::Mean)
        } else {
            check_size("n_heads", self.n_heads)?;
            if !d_out.is_multiple_of(self.n_heads) {
                return Err(Error::HeadWidth { hidden: d_out, n_heads: self.n_heads });
            }
            (self.n_heads, d_out / self.n_heads, HeadOutput::Concat)
        };
        Ok(TransformerConvConfig {
            d_in,
            d_head,
            n_heads,
            output,
            attention_dropout,
            root_weight,
            beta,
            edge_features,
        })
    }
}

/// The text identifies a run with its settings, so a default that older versions do not have is not a part of it.
impl fmt::Debug for TransformerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("TransformerConfig");
        text.field("d_in", &self.d_in);
        text.field("hidden", &self.hidden);
        text.field("n_classes", &self.n_classes);
        text.field("n_layers", &self.n_layers);
        text.field("n_heads", &self.n_heads);
        text.field("n_output_heads", &self.n_output_heads);
        text.field("root_weight", &self.root_weight);
        text.field("beta", &self.beta);
        text.field("attention_dropout", &self.attention_dropout);
        text.field("input_dropout", &self.input_dropout);
        text.field("dropout", &self.dropout);
        text.field("norm", &self.norm);
        text.field("residual", &self.residual);
        text.field("jumping", &self.jumping);
        if let Some(d_edge) = &self.edge_features {
            text.field("edge_features", d_edge);
        }
        text.finish()
    }
}

frame_options!(TransformerConfig, Activation::Relu);

impl ModelConfig for TransformerConfig {
    const KIND: &'static str = "transformer";
    type Model = Transformer;
    dims_and_init!();

    fn for_dims(d_in: usize, n_classes: usize) -> Self {
        Self::new(d_in, n_classes)
    }

    fn min_parameters(&self) -> u64 {
        let &Self { hidden, n_classes, n_output_heads, n_layers, d_in, .. } = self;
        // Keys, queries and values of the last layer have `n_classes` columns for each output head; the frame counts one head.
        let d_last = if n_layers == 1 { d_in } else { hidden };
        let of_heads = match self.jumping {
            JumpingKnowledge::Direct => (d_last as u64)
                .saturating_mul(n_classes as u64)
                .saturating_mul((n_output_heads as u64).saturating_sub(1))
                .saturating_mul(3),
            _ => 0,
        };
        self.frame().n_weights(3 + u64::from(self.root_weight)).saturating_add(of_heads)
    }

    fn requirements(&self) -> GraphRequirements {
        GraphRequirements { d_edge: self.edge_features, ..GraphRequirements::default() }
    }

    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        graph.d_edge.map(|d_edge| self.edge_features(d_edge))
    }
}

/// A graph transformer (Shi et al. 2021, without the propagation of labels): [`TransformerConv`] layers, with ReLU and then
/// dropout after each but the last, and optional dropout of the input features and of the attention weights.
///
/// The dropout mask of an attention weight is a function of its edge's id, the layer and the key of the step.
pub type Transformer = Net<TransformerConv>;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, ops};
use kiln_sample::RngKey;

use crate::attention::{HeadOutput, Heads};
use crate::edge_features::{check_edge_features, edge_features_of};
use crate::init::{NO_GAIN, xavier_uniform, zeros};
use crate::{ForwardContext, Result};

/// The widths and options of a [`GatV2Conv`] layer.
#[derive(Debug, Clone)]
pub struct GatV2ConvConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width of the rows of one head.
    pub d_head: usize,
    /// Number of attention heads, at least 1.
    pub n_heads: usize,
    /// The combination of the heads.
    pub output: HeadOutput,
    /// The slope of the leaky ReLU below 0; 0.2 in the paper, in DGL and in PyG.
    pub negative_slope: f64,
    /// Probability that dropout zeroes an attention weight, in `[0, 1)`.
    pub attention_dropout: f64,
    /// True if sources and destinations have the same weight matrix and bias, which then has half as many parameters.
    pub share_weights: bool,
    /// Number of columns of the edge features, which are a part of the scores; `None` without edge features.
    pub edge_features: Option<usize>,
}

impl GatV2ConvConfig {
    /// Creates a layer of concatenated heads with a slope of 0.2, without dropout, shared weights and edge features.
    pub fn new(d_in: usize, d_head: usize, n_heads: usize) -> Self {
        let output = HeadOutput::Concat;
        let negative_slope = 0.2;
        let attention_dropout = 0.0;
        Self {
            d_in,
            d_head,
            n_heads,
            output,
            negative_slope,
            attention_dropout,
            share_weights: false,
            edge_features: None,
        }
    }

    /// Creates a layer with initial weights drawn from the key: Xavier uniform, and biases of zeros, as in PyG's
    /// `GATv2Conv`. Parameter 0 is the weight matrix of sources, 1 that of destinations, 2 the attention vectors, 3 the matrix of
    /// edge features.
    ///
    /// # Errors
    /// Returns an error if a width or the number of heads is 0 or too large, if the dropout is not in `[0, 1)`, or if the
    /// slope is not finite.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<GatV2Conv> {
        let &Self { d_in, d_head, n_heads, output, negative_slope, attention_dropout: dropout, .. } = self;
        let heads = Heads { n_heads, d_head, output, negative_slope, dropout };
        heads.check(d_in)?;
        check_edge_features(self.edge_features)?;
        let width = heads.width();
        let has_dst = !self.share_weights;
        Ok(GatV2Conv {
            weight_src: xavier_uniform(key, 0, [d_in, width], NO_GAIN, device),
            bias_src: zeros(width, device),
            weight_dst: has_dst.then(|| xavier_uniform(key, 1, [d_in, width], NO_GAIN, device)),
            bias_dst: has_dst.then(|| zeros(width, device)),
            attention: xavier_uniform(key, 2, [n_heads, d_head], NO_GAIN, device),
            weight_edge: self
                .edge_features
                .map(|d_edge| xavier_uniform(key, 3, [d_edge, width], NO_GAIN, device)),
            bias: heads.bias(device),
            heads,
        })
    }
}

/// A graph attention layer with dynamic attention (Brody, Alon and Yahav 2022): for each head,
/// `h_v = sum over u -> v of alpha_uv l_u` with `l_u = W_src x_u + b_src`, where `alpha_uv` is the softmax over the edges of
/// `v` of `a . leaky_relu(l_u + W_dst x_v + b_dst)`.
///
/// A destination attends to itself only if the block has its self loop, as for [`GatConv`](crate::GatConv).
///
/// With edge features `e_uv`, the scores are `a . leaky_relu(l_u + W_dst x_v + b_dst + W_edge e_uv)`, as in PyG's layer with
/// `edge_dim`; the messages do not contain the features.
///
/// Without edge features, the scores and their gradients are computed without an array of one row per edge
/// ([`ops::attention_scores`]).
#[derive(Module, Debug)]
pub struct GatV2Conv {
    /// The weight matrix of sources, `[d_in, n_heads * d_head]`.
    pub weight_src: Param<Tensor<2>>,
    /// The bias of sources, `[n_heads * d_head]`.
    pub bias_src: Param<Tensor<1>>,
    /// The weight matrix of destinations; `None` if it is that of sources.
    pub weight_dst: Option<Param<Tensor<2>>>,
    /// The bias of destinations; `None` if it is that of sources.
    pub bias_dst: Option<Param<Tensor<1>>>,
    /// The attention vectors, `[n_heads, d_head]`.
    pub attention: Param<Tensor<2>>,
    /// The weight matrix of edge features, `[d_edge, n_heads * d_head]`; `None` if the layer reads none.
    pub weight_edge: Option<Param<Tensor<2>>>,
    /// The bias of the output, `[d_out]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    heads: Heads,
}

impl GatV2Conv {
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
        let src = ops::linear(self.bias_src.val().unsqueeze(), x.clone(), self.weight_src.val());
        let dst = match (&self.weight_dst, &self.bias_dst) {
            (Some(weight), Some(bias)) => {
                ops::linear(bias.val().unsqueeze(), ops::take_dst(block, x), weight.val())
            }
            _ => ops::take_dst(block, src.clone()),
        };
        let attention = self.attention.val();
        let slope = self.heads.slope();
        let scores = match &self.weight_edge {
            None => ops::attention_scores(block, src.clone(), dst, attention, slope),
            Some(weight) => {
                let of_edges = ops::product(edge_features_of(block), weight.val());
                let rows = ops::source_rows(block, src.clone()) + of_edges;
                ops::edge_row_scores(block, rows, dst, attention, slope)
            }
        };
        self.heads.attend(layer, block, scores, src, self.bias.val(), ctx)
    }

    /// Returns the bytes that an edge takes for its features: its row, that of its source and their sum.
    pub(crate) fn edge_feature_bytes(&self) -> u64 {
        let Some(weight) = &self.weight_edge else { return 0 };
        let [d_edge, width] = weight.dims();
        4 * (d_edge + 3 * width) as u64
    }

    /// Returns the widths of the input and output rows.
    pub(crate) fn widths(&self) -> [usize; 2] {
        [self.weight_src.dims()[0], self.heads.d_out()]
    }
}

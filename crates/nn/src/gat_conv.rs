use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, ops};
use kiln_sample::RngKey;

use crate::attention::{HeadOutput, Heads};
use crate::init::{NO_GAIN, xavier_uniform};
use crate::{ForwardContext, Result};

/// The widths and options of a [`GatConv`] layer.
#[derive(Debug, Clone)]
pub struct GatConvConfig {
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
}

impl GatConvConfig {
    /// Creates a layer of concatenated heads with a slope of 0.2 and without dropout.
    pub fn new(d_in: usize, d_head: usize, n_heads: usize) -> Self {
        let output = HeadOutput::Concat;
        let negative_slope = 0.2;
        let attention_dropout = 0.0;
        Self { d_in, d_head, n_heads, output, negative_slope, attention_dropout }
    }

    /// Creates a layer with initial weights drawn from the key: Xavier uniform, and a bias of zeros, as in PyG's
    /// `GATConv`. Parameter 0 is the weight matrix, 1 and 2 are the attention vectors of sources and destinations.
    ///
    /// # Errors
    /// Returns an error if a width or the number of heads is 0 or too large, if the dropout is not in `[0, 1)`, or if the
    /// slope is not finite.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<GatConv> {
        let heads = self.heads();
        heads.check(self.d_in)?;
        let vector = |parameter| xavier_uniform(key, parameter, [self.n_heads, self.d_head], NO_GAIN, device);
        Ok(GatConv {
            weight: xavier_uniform(key, 0, [self.d_in, heads.width()], NO_GAIN, device),
            attention_src: vector(1),
            attention_dst: vector(2),
            bias: heads.bias(device),
            heads,
        })
    }

    fn heads(&self) -> Heads {
        let &Self { d_head, n_heads, output, negative_slope, attention_dropout: dropout, .. } = self;
        Heads { n_heads, d_head, output, negative_slope, dropout }
    }
}

/// A graph attention layer (Veličković, Cucurull, Casanova, Romero, Liò and Bengio 2018): for each head,
/// `h_v = sum over u -> v of alpha_uv W x_u`, where `alpha_uv` is the softmax over the edges of `v` of
/// `leaky_relu(a_src . W x_u + a_dst . W x_v)`.
///
/// A destination attends to itself only if the block has its self loop: add self loops to the graph
/// (`kiln_graph::add_self_loops`) and sample with a rule that keeps them
/// ([`Rule::UniformKeepSelfLoops`](kiln_sample::Rule::UniformKeepSelfLoops)). PyG's layer adds them itself.
///
/// The products of rows and attention vectors are computed as `x (W a)`, so no array of `n_src` rows of all heads is read
/// for the scores.
#[derive(Module, Debug)]
pub struct GatConv {
    /// The weight matrix, `[d_in, n_heads * d_head]`.
    pub weight: Param<Tensor<2>>,
    /// The attention vectors of sources, `[n_heads, d_head]`.
    pub attention_src: Param<Tensor<2>>,
    /// The attention vectors of destinations, `[n_heads, d_head]`.
    pub attention_dst: Param<Tensor<2>>,
    /// The bias, `[d_out]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    heads: Heads,
}

impl GatConv {
    /// Runs the layer. In training, the masks of the attention weights are keyed by the edges' ids and `layer`, the
    /// layer's number in its model.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, n_heads * d_head]`, or `[n_dst, d_head]` with [`HeadOutput::Mean`].
    ///
    /// # Panics
    /// Panics if `x` does not have this shape.
    pub fn forward(
        &self,
        layer: usize,
        block: &DeviceBlock,
        x: Tensor<2>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let src = ops::product(x.clone(), self.score_weight(&self.attention_src));
        let dst = ops::product(ops::take_dst(block, x.clone()), self.score_weight(&self.attention_dst));
        let ones = Tensor::ones([self.heads.n_heads, 1], (&x.device(), src.dtype()));
        let scores = ops::attention_scores(block, src, dst, ones, self.heads.slope());
        let rows = ops::product(x, self.weight.val());
        self.heads.attend(layer, block, scores, rows, self.bias.val(), ctx)
    }

    /// Returns the widths of the input and output rows.
    pub(crate) fn widths(&self) -> [usize; 2] {
        [self.weight.dims()[0], self.heads.d_out()]
    }

    /// Returns the product of the weight matrix of each head and its attention vector, `[d_in, n_heads]`.
    fn score_weight(&self, vectors: &Param<Tensor<2>>) -> Tensor<2> {
        let Heads { n_heads, d_head, .. } = self.heads;
        let vectors = vectors.val().reshape([1, n_heads * d_head]);
        ops::range_sums(ops::mul_row(self.weight.val(), vectors), n_heads)
    }
}

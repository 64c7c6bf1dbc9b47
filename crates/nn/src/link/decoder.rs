use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Int, Tensor};
use kiln_kernels::ops;
use kiln_sample::{KeyDomain, RngKey};
use serde::{Deserialize, Serialize};

use crate::error::{check_dropout, check_size};
use crate::link::pairs::{PAIRS_AT_ONCE, PairsPart};
use crate::stack::n_weights;
use crate::{EdgeDims, ForwardContext, Linear, LinkPairs, Mode, Result};

/// The layer number that keys the decoder's initial weights and, for its first dense layer, the dropout masks. It is
/// larger than any encoder's number of layers.
const DECODER: usize = 1 << 30;

/// The configuration of a [`LinkDecoder`]. The score of a pair does not depend on its direction: the decoders of scores read the
/// element-wise product of the two rows. [`LinkDecoderConfig::Edge`] is the decoder of edges with targets, which reads both rows,
/// so that its outputs depend on the direction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LinkDecoderConfig {
    /// The dot product of the two rows. It has no parameters.
    #[default]
    Dot,
    /// The dot product with a learned weight for each column: DistMult (Yang, Yih, He, Gao and Deng 2015, section 3.1)
    /// with one relation. All weights start at 1, so an untrained decoder computes the dot product. (PyG draws them.)
    #[serde(rename = "distmult")]
    DistMult,
    /// A multilayer perceptron on the element-wise product of the two rows, with ReLU and dropout between its dense
    /// layers: `LinkPredictor` of the examples of OGB (Hu et al. 2020), without the sigmoid, which the loss contains.
    Mlp {
        /// Width of the rows between dense layers.
        hidden: usize,
        /// Number of dense layers, at least 1.
        n_layers: usize,
        /// Probability that dropout zeroes a value between dense layers, in `[0, 1)`.
        dropout: f64,
    },
    /// A multilayer perceptron on the row of the source, the row of the destination and the features of the edge, side by side,
    /// with ReLU and dropout between its dense layers: `MLPEFeatEdgeDecoder` of GraphStorm, and the usual classifier of edges of
    /// PyG's and DGL's examples. An edge in the other direction has other outputs; for undirected edges, list both directions.
    Edge {
        /// Width of the rows between dense layers.
        hidden: usize,
        /// Number of dense layers, at least 1.
        n_layers: usize,
        /// Probability that dropout zeroes a value between dense layers, in `[0, 1)`.
        dropout: f64,
        /// Number of feature columns of the edges themselves; 0 for edges without features.
        d_edge: usize,
        /// Number of classes, labels or numbers of an edge.
        n_outputs: usize,
    },
}

impl LinkDecoderConfig {
    /// Returns the default decoder of edges: two dense layers of 64 columns without dropout.
    ///
    /// ```
    /// # use kiln_nn::{EdgeDims, LinkDecoderConfig};
    /// // Payments with two features, such as the amount, that are honest or frauds.
    /// let config = LinkDecoderConfig::edges(EdgeDims { d_edge: 2, n_outputs: 2 });
    /// assert_eq!(config.edge_dims(), Some(EdgeDims { d_edge: 2, n_outputs: 2 }));
    /// assert_eq!(LinkDecoderConfig::Dot.edge_dims(), None);
    /// ```
    pub fn edges(dims: EdgeDims) -> Self {
        let EdgeDims { d_edge, n_outputs } = dims;
        Self::Edge { hidden: 64, n_layers: 2, dropout: 0.0, d_edge, n_outputs }
    }

    /// Returns the sizes of the edges that a decoder of edges is for; `None` for a decoder of scores.
    ///
    /// ```
    /// # use kiln_nn::{EdgeDims, LinkDecoderConfig};
    /// let dims = EdgeDims { d_edge: 0, n_outputs: 3 };
    /// assert_eq!(LinkDecoderConfig::edges(dims).edge_dims(), Some(dims));
    /// assert_eq!(LinkDecoderConfig::DistMult.edge_dims(), None);
    /// ```
    pub fn edge_dims(&self) -> Option<EdgeDims> {
        match *self {
            Self::Edge { d_edge, n_outputs, .. } => Some(EdgeDims { d_edge, n_outputs }),
            Self::Dot | Self::DistMult | Self::Mlp { .. } => None,
        }
    }

    /// Returns true if the decoder has parameters, whose shapes depend on the width of the rows.
    ///
    /// ```
    /// # use kiln_nn::LinkDecoderConfig;
    /// // The weights of a model with the dot product are those of its encoder.
    /// assert!(!LinkDecoderConfig::Dot.has_parameters());
    /// assert!(LinkDecoderConfig::DistMult.has_parameters());
    /// ```
    pub fn has_parameters(&self) -> bool {
        *self != Self::Dot
    }

    /// Returns a lower bound on the number of parameters, for rows of `width` columns. Valid for any values, because those
    /// of a damaged file are counted before they are checked.
    pub(crate) fn min_parameters(&self, width: usize) -> u64 {
        match *self {
            Self::Dot => 0,
            Self::DistMult => width as u64,
            Self::Mlp { hidden, n_layers, .. } => n_weights(n_layers, width, hidden, 1),
            Self::Edge { hidden, n_layers, d_edge, n_outputs, .. } => {
                let d_in = width.saturating_mul(2).saturating_add(d_edge);
                n_weights(n_layers, d_in, hidden, n_outputs)
            }
        }
    }

    /// Creates a decoder of rows of `width` columns. The weights and biases of dense layer `i` are parameters `2 i` and
    /// `2 i + 1` of `key.fold_in(KeyDomain::Layer, 2^30)`, uniform as in PyTorch's `Linear`.
    ///
    /// ```
    /// # use kiln_nn::LinkDecoderConfig;
    /// # use burn::tensor::Device;
    /// # use kiln_sample::RngKey;
    /// // A decoder of rows of 64 columns, the outputs of an encoder.
    /// let config = LinkDecoderConfig::Mlp { hidden: 32, n_layers: 2, dropout: 0.0 };
    /// let decoder = config.init(64, RngKey::new(0), &Device::flex())?;
    /// assert_eq!(decoder.linears[0].weight.dims(), [64, 32]);
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a width or the number of layers is 0 or too large, or if the dropout is not in `[0, 1)`.
    pub fn init(&self, width: usize, key: RngKey, device: &Device) -> Result<LinkDecoder> {
        check_size("the width of the decoder's rows", width)?;
        match *self {
            Self::Dot => Ok(LinkDecoder::scoring(None, Vec::new(), 0.0)),
            Self::DistMult => {
                let relation = Some(Param::from_tensor(Tensor::ones([width, 1], device)));
                Ok(LinkDecoder::scoring(relation, Vec::new(), 0.0))
            }
            Self::Mlp { hidden, n_layers, dropout } => {
                let linears = dense_layers([width, hidden, 1], n_layers, dropout, key, device)?;
                Ok(LinkDecoder::scoring(None, linears, dropout))
            }
            Self::Edge { hidden, n_layers, dropout, d_edge, n_outputs } => {
                check_size("n_outputs", n_outputs)?;
                let d_in = width.saturating_mul(2).saturating_add(d_edge);
                check_size("the width of the decoder's rows", d_in)?;
                let linears = dense_layers([d_in, hidden, n_outputs], n_layers, dropout, key, device)?;
                let edges = Some(EdgeDims { d_edge, n_outputs });
                Ok(LinkDecoder { edges, ..LinkDecoder::scoring(None, linears, dropout) })
            }
        }
    }
}

/// Creates the dense layers of a perceptron from its widths: of the input, between layers and of the output.
fn dense_layers(
    [d_in, hidden, d_out]: [usize; 3],
    n_layers: usize,
    dropout: f64,
    key: RngKey,
    device: &Device,
) -> Result<Vec<Linear>> {
    check_size("hidden", hidden)?;
    check_size("n_layers", n_layers)?;
    check_dropout("dropout", dropout)?;
    let key = key.fold_in(KeyDomain::Layer, DECODER as u64);
    let mut layers = Vec::new();
    for i in 0..n_layers {
        let input = if i == 0 { d_in } else { hidden };
        let output = if i + 1 == n_layers { d_out } else { hidden };
        layers.push(Linear::init(key, i, [input, output], device)?);
    }
    Ok(layers)
}

/// Scores pairs of rows: the larger the score, the more probable is a link. The score is a logit. The decoder of
/// [`LinkDecoderConfig::Edge`] computes the outputs of edges instead ([`LinkDecoder::outputs`]).
///
/// The dropout mask of a pair is a function of its id, the dense layer and the key of the step. It does not depend on
/// the distribution of a step's links over ranks.
#[derive(Module, Debug)]
pub struct LinkDecoder {
    /// The weight of each column, `[width, 1]`, of [`LinkDecoderConfig::DistMult`].
    pub relation: Option<Param<Tensor<2>>>,
    /// The dense layers of [`LinkDecoderConfig::Mlp`], whose last one has one output, or of [`LinkDecoderConfig::Edge`].
    pub linears: Vec<Linear>,
    #[module(skip)]
    dropout: f64,
    /// The sizes of a decoder of edges; `None` for one of scores.
    #[module(skip)]
    edges: Option<EdgeDims>,
}

impl LinkDecoder {
    fn scoring(relation: Option<Param<Tensor<2>>>, linears: Vec<Linear>, dropout: f64) -> Self {
        Self { relation, linears, dropout, edges: None }
    }

    /// Returns the sizes of the edges that a decoder of [`LinkDecoderConfig::Edge`] is for; `None` for a decoder of scores.
    pub fn edge_dims(&self) -> Option<EdgeDims> {
        self.edges
    }

    /// Computes the outputs of each edge from `src[i]` to `dst[i]` with the features `edge[i]`, for a decoder of
    /// [`LinkDecoderConfig::Edge`]. `ids` are the ids of the edges, from which dropout masks are drawn in training.
    ///
    /// # Shapes
    /// `src` and `dst` are `[n, width]`, `edge` `[n, d_edge]` (`None` if `d_edge` is 0), `ids` `[n]` as u32, the result
    /// `[n, n_outputs]`.
    ///
    /// # Panics
    /// Panics for a decoder of scores, and if the shapes differ from each other or from those of the parameters.
    pub fn outputs(
        &self,
        src: Tensor<2>,
        dst: Tensor<2>,
        edge: Option<Tensor<2>>,
        ids: &Tensor<1, Int>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let EdgeDims { d_edge, .. } = self.edges.expect("a decoder of scores has no outputs of edges");
        let got = edge.as_ref().map_or(0, |edge| edge.dims()[1]);
        assert_eq!(got, d_edge, "the edges should have the features that the decoder reads");
        let rows = [Some(src), Some(dst), edge].into_iter().flatten().collect();
        self.dense(Tensor::cat(rows, 1), ids, ctx)
    }

    /// Computes the outputs of edges between rows of a matrix, as [`LinkDecoder::outputs`] does. The gradient of a row is the sum
    /// over its edges in a fixed order, so it is bit-identical for any number of threads.
    ///
    /// # Shapes
    /// `rows` is `[n_rows, width]`, `edge` `[n_pairs, d_edge]` (`None` if `d_edge` is 0), the result `[n_pairs, n_outputs]`.
    ///
    /// # Panics
    /// Panics as [`LinkDecoder::outputs`] does, and if `rows` does not have the number of rows of the pairs.
    pub fn outputs_of_pairs(
        &self,
        rows: Tensor<2>,
        pairs: &LinkPairs,
        edge: Option<&Tensor<2>>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let mut first = 0;
        let mut outputs = Vec::with_capacity(pairs.parts.len());
        for part in &pairs.parts {
            let src = ops::gather_rows(&part.srcs, rows.clone());
            let dst = ops::gather_rows(&part.dsts, rows.clone());
            let [n_pairs] = part.ids.dims();
            let edge = edge.map(|edge| edge.clone().narrow(0, first, n_pairs));
            outputs.push(self.outputs(src, dst, edge, &part.ids, ctx));
            first += n_pairs;
        }
        Tensor::cat(outputs, 0)
    }

    /// Scores each pair of rows `src[i]` and `dst[i]`. `ids` are the pairs' ids, from which dropout masks are drawn in
    /// training. The products are added in a fixed order.
    ///
    /// # Shapes
    /// `src` and `dst` are `[n, width]`, `ids` `[n]` as u32, the result `[n]`.
    ///
    /// # Panics
    /// Panics if the shapes differ from each other or from those of the parameters, and for a decoder of edges.
    pub fn scores(
        &self,
        src: Tensor<2>,
        dst: Tensor<2>,
        ids: &Tensor<1, Int>,
        ctx: &ForwardContext,
    ) -> Tensor<1> {
        let shape = src.dims();
        let other = dst.dims();
        assert_eq!(shape, other, "the rows of sources and destinations should have the same shape");
        self.of_products(src * dst, ids, ctx).reshape([shape[0]])
    }

    /// Scores every row of `src` with every row of `dst`, without dropout. For a dot product or DistMult, this is one
    /// matrix product; a perceptron reads the products of at most 65,536 pairs at once. The scores equal those of
    /// [`LinkDecoder::scores`] up to rounding.
    ///
    /// # Shapes
    /// `src` is `[n_src, width]`, `dst` `[n_dst, width]`, the result `[n_src, n_dst]`.
    ///
    /// # Panics
    /// Panics if the widths differ from each other or from that of the parameters.
    pub fn score_all(&self, src: Tensor<2>, dst: Tensor<2>) -> Tensor<2> {
        let [n_src, width] = src.dims();
        let [n_dst, other] = dst.dims();
        assert_eq!(width, other, "the rows of sources and destinations should have the same width");
        if let Some(relation) = &self.relation {
            return ops::product(src * relation.val().transpose(), dst.transpose());
        }
        if self.linears.is_empty() {
            return ops::product(src, dst.transpose());
        }
        let dst = dst.unsqueeze_dim::<3>(0);
        let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
        let scores = |first: usize, n: usize| {
            let x = src.clone().narrow(0, first, n).unsqueeze_dim::<3>(1) * dst.clone();
            let ids = Tensor::zeros([n * n_dst], (&x.device(), DType::U32));
            self.of_products(x.reshape([n * n_dst, width]), &ids, &ctx).reshape([n, n_dst])
        };
        // A perceptron needs the products of all pairs, so few sources are scored at once.
        let n_at_once = (PAIRS_AT_ONCE / n_dst.max(1)).max(1);
        let parts = (0..n_src.max(1)).step_by(n_at_once);
        Tensor::cat(parts.map(|first| scores(first, n_at_once.min(n_src - first))).collect(), 0)
    }

    /// Computes the scores `[n, 1]` of the element-wise products of pairs, `[n, width]`.
    fn of_products(&self, mut x: Tensor<2>, ids: &Tensor<1, Int>, ctx: &ForwardContext) -> Tensor<2> {
        assert!(self.edges.is_none(), "a decoder of edges scores no pairs");
        if let Some(relation) = &self.relation {
            x = ops::product(x, relation.val());
        } else if self.linears.is_empty() {
            x = ops::range_sums(x, 1);
        }
        self.dense(x, ids, ctx)
    }

    /// Runs the dense layers, with ReLU and dropout between them.
    fn dense(&self, mut x: Tensor<2>, ids: &Tensor<1, Int>, ctx: &ForwardContext) -> Tensor<2> {
        for (i, linear) in self.linears.iter().enumerate() {
            x = linear.forward(x);
            if i + 1 < self.linears.len() {
                let dropout = if ctx.mode == Mode::Train { self.dropout } else { 0.0 };
                x = ops::relu_dropout(x, ids, ctx.key, DECODER + i, dropout);
            }
        }
        x
    }

    /// Scores pairs of rows of a matrix. The gradient of a row is the sum over its pairs in a fixed order, so it is
    /// bit-identical for any number of threads.
    ///
    /// # Shapes
    /// `rows` is `[n_rows, width]`, the result `[n_pairs]`.
    ///
    /// # Panics
    /// Panics if `rows` does not have the number of rows of the pairs or the width of the parameters.
    pub fn score_pairs(&self, rows: Tensor<2>, pairs: &LinkPairs, ctx: &ForwardContext) -> Tensor<1> {
        let scores = |part: &PairsPart| {
            let src = ops::gather_rows(&part.srcs, rows.clone());
            let dst = ops::gather_rows(&part.dsts, rows.clone());
            self.scores(src, dst, &part.ids, ctx)
        };
        match &pairs.parts[..] {
            [part] => scores(part),
            parts => Tensor::cat(parts.iter().map(scores).collect(), 0),
        }
    }
}

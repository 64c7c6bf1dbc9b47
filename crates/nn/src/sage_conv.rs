use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::ops::{self, Aggregation, OwnRow};
use kiln_kernels::{DeviceBlock, FeatureAggregation};
use kiln_sample::RngKey;

use crate::error::check_weight;
use crate::init::{RELU_GAIN, WeightInit, uniform, xavier_uniform, zeros};
use crate::linear::product_with;
use crate::order::{InputAggregation, projects_first};
use crate::{Aggregate, BiasedRows, Conv, EdgeWeighting, ForwardContext, InputFormat, LayerSize, Result};

/// The widths and the aggregation of a [`SageConv`] layer.
#[derive(Debug, Clone)]
pub struct SageConvConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width of the output rows.
    pub d_out: usize,
    /// The aggregation of neighbours.
    pub aggregate: Aggregate,
    /// The use of edge weights in it.
    pub edge_weighting: EdgeWeighting,
}

impl SageConvConfig {
    /// Creates a layer with initial weights drawn from the key: Xavier uniform with the gain of a ReLU, as in DGL's
    /// `SAGEConv`, and a bias of zeros. For other distributions see
    /// [`SageConvConfig::init_with`].
    ///
    /// # Errors
    /// Returns an error if a width is 0 or too large, if the weight matrices would be too large, or if the weighting does not
    /// apply to the aggregation.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<SageConv> {
        self.init_with(WeightInit::Dgl, key, device)
    }

    /// Creates a layer with initial weights of this distribution, drawn from the key. Parameter 0 is the matrix of a
    /// node's own row, 1 that of the neighbours, 2 the bias.
    ///
    /// # Errors
    /// Returns the errors of [`SageConvConfig::init`].
    pub fn init_with(&self, init: WeightInit, key: RngKey, device: &Device) -> Result<SageConv> {
        let &Self { d_in, d_out, aggregate, edge_weighting } = self;
        check_weight(d_in, d_out)?;
        edge_weighting.check(aggregate)?;
        let bound = 1.0 / (d_in as f64).sqrt();
        let matrix = |parameter| match init {
            WeightInit::Dgl => xavier_uniform(key, parameter, [d_in, d_out], RELU_GAIN, device),
            WeightInit::Pyg => uniform(key, parameter, [d_in, d_out], bound, device),
        };
        let bias = match init {
            WeightInit::Dgl => zeros(d_out, device),
            WeightInit::Pyg => uniform(key, 2, [d_out], bound, device),
        };
        Ok(SageConv { weight_self: matrix(0), weight_neigh: matrix(1), bias, aggregate, edge_weighting })
    }
}

/// A GraphSAGE layer: `h_v = x_v W_self + aggregate({x_u : u -> v}) W_neigh + b`.
///
/// This is lines 4 and 5 of algorithm 1 of Hamilton, Ying and Leskovec 2017 before the nonlinearity, with the product
/// of the concatenation written as two products. Like DGL's and PyG's layers it omits the paper's normalisation of rows
/// (line 7). The layer has one bias, as in DGL and PyG; PyG stores it with the neighbours' weights. With an
/// [`EdgeWeighting`], the weights of the edges are a part of the aggregation.
#[derive(Module, Debug)]
pub struct SageConv {
    /// The weight matrix of a node's own row, `[d_in, d_out]`.
    pub weight_self: Param<Tensor<2>>,
    /// The weight matrix of the aggregated neighbours, `[d_in, d_out]`.
    pub weight_neigh: Param<Tensor<2>>,
    /// The bias, `[d_out]`.
    pub bias: Param<Tensor<1>>,
    #[module(skip)]
    aggregate: Aggregate,
    #[module(skip)]
    edge_weighting: EdgeWeighting,
}

impl SageConv {
    /// Runs the layer.
    ///
    /// A mean or sum commutes with the product, so the neighbours' rows are multiplied by the weight matrix before the
    /// aggregation if that is faster. The two orders differ only by rounding, and the block's size and the widths alone
    /// decide which is used.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if `x` does not have this shape, or if the block lacks edge weights that the layer reads.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        self.rows(block, x, Some(self.bias.val().unsqueeze()))
    }

    /// Returns the rows with this bias, `[1, d_out]`, or without one.
    fn rows(&self, block: &DeviceBlock, x: Tensor<2>, bias: Option<Tensor<2>>) -> Tensor<2> {
        forward(block, x, (self.aggregate, self.edge_weighting), self.weights(), bias)
    }

    fn weights(&self) -> SageWeights {
        SageWeights::Separate([self.weight_self.val(), self.weight_neigh.val()])
    }
}

impl Conv for SageConv {
    fn forward(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        self.forward(block, x)
    }

    fn biased_rows(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> BiasedRows {
        BiasedRows { rows: self.rows(block, x, None), bias: Some(self.bias.val()) }
    }

    fn input_format(&self) -> InputFormat {
        InputFormat { half_rows: true, ..InputFormat::default() }
    }

    fn uses_burn_rng(&self) -> bool {
        false
    }

    /// Returns the aggregation by which the layer reads its input rows if it aggregates first; `None` for maxima and for
    /// weighted rows.
    fn input_aggregation(&self) -> Option<InputAggregation> {
        if self.edge_weighting.reads_weights() {
            return None;
        }
        let aggregation = match self.aggregate {
            Aggregate::Mean => FeatureAggregation::ConcatSelfMean,
            Aggregate::Sum => FeatureAggregation::ConcatSelfSum,
            Aggregate::Max => return None,
        };
        let [d_in, d_out] = self.weight_neigh.dims();
        Some(InputAggregation { aggregation, d_in, d_out })
    }

    /// Runs the layer from the own rows followed by the aggregated rows of the neighbours, `[n_dst, 2 * d_in]`.
    fn forward_aggregated(&self, rows: Tensor<2>) -> Tensor<2> {
        ops::linear(self.bias.val().unsqueeze(), rows, self.weights().stacked())
    }

    fn size(&self) -> Option<LayerSize> {
        Some(LayerSize::new(self.weight_self.dims()))
    }
}

/// The matrices of a node's own row and of the aggregated neighbours, `[d_in, d_out]` each.
#[expect(clippy::large_enum_variant, reason = "there is one value per layer and pass")]
pub(crate) enum SageWeights {
    Separate([Tensor<2>; 2]),
    /// One below the other, `[2 * d_in, d_out]`.
    Stacked(Tensor<2>),
}

impl SageWeights {
    fn dims(&self) -> [usize; 2] {
        match self {
            Self::Separate([own, _]) => own.dims(),
            Self::Stacked(both) => [both.dims()[0] / 2, both.dims()[1]],
        }
    }

    fn stacked(self) -> Tensor<2> {
        match self {
            Self::Separate([own, neigh]) => ops::stack_rows(own, neigh),
            Self::Stacked(both) => both,
        }
    }

    fn separate(self) -> [Tensor<2>; 2] {
        let [d_in, _] = self.dims();
        match self {
            Self::Separate(both) => both,
            Self::Stacked(both) => [0, d_in].map(|first| both.clone().narrow(0, first, d_in)),
        }
    }
}

/// Runs a GraphSAGE layer with these weights, and with a bias of `[1, d_out]` if there is one; see [`SageConv::forward`].
pub(crate) fn forward(
    block: &DeviceBlock,
    x: Tensor<2>,
    (aggregate, edge_weighting): (Aggregate, EdgeWeighting),
    weights: SageWeights,
    bias: Option<Tensor<2>>,
) -> Tensor<2> {
    let commutes = aggregate != Aggregate::Max;
    let aggregation = edge_weighting.aggregation(block, aggregate);
    if commutes && !projects_first(block.into(), weights.dims()) {
        let beside = Aggregation { own: OwnRow::Concatenated, ..aggregation };
        // One product of twice the depth is faster than two products, and so is its gradient.
        return product_with(bias, ops::aggregate_for_linear(block, x, beside), weights.stacked());
    }
    let [own, neigh] = weights.separate();
    let out = product_with(bias, ops::take_dst(block, x.clone()), own);
    if commutes {
        out + ops::aggregate_f32(block, ops::product(x, neigh), aggregation)
    } else {
        ops::linear(out, ops::aggregate_for_linear(block, x, aggregation), neigh)
    }
}

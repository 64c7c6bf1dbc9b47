use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
use kiln_kernels::{DeviceBlock, FeatureAggregation};
use kiln_sample::RngKey;

use crate::error::check_weight;
use crate::init::{RELU_GAIN, WeightInit, uniform, xavier_uniform, zeros};
use crate::order::{InputAggregation, projects_first};
use crate::stack::product;
use crate::{Aggregate, Result};

/// The widths and the aggregation of a [`SageConv`] layer.
#[derive(Debug, Clone)]
pub struct SageConvConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width of the output rows.
    pub d_out: usize,
    /// The aggregation of neighbours.
    pub aggregate: Aggregate,
}

impl SageConvConfig {
    /// Creates a layer with initial weights drawn from the key: Xavier uniform with the gain of a ReLU, as in DGL's
    /// `SAGEConv`, and a bias of zeros. For other distributions see
    /// [`SageConvConfig::init_with`].
    ///
    /// # Errors
    /// Returns an error if a width is 0 or too large, or if the weight matrices would be too large.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<SageConv> {
        self.init_with(WeightInit::Dgl, key, device)
    }

    /// Creates a layer with initial weights of this distribution, drawn from the key. Parameter 0 is the matrix of a
    /// node's own row, 1 that of the neighbours, 2 the bias.
    ///
    /// # Errors
    /// Returns the errors of [`SageConvConfig::init`].
    pub fn init_with(&self, init: WeightInit, key: RngKey, device: &Device) -> Result<SageConv> {
        let &Self { d_in, d_out, aggregate } = self;
        check_weight(d_in, d_out)?;
        let bound = 1.0 / (d_in as f64).sqrt();
        let matrix = |parameter| match init {
            WeightInit::Dgl => xavier_uniform(key, parameter, [d_in, d_out], RELU_GAIN, device),
            WeightInit::Pyg => uniform(key, parameter, [d_in, d_out], bound, device),
        };
        let bias = match init {
            WeightInit::Dgl => zeros(d_out, device),
            WeightInit::Pyg => uniform(key, 2, [d_out], bound, device),
        };
        Ok(SageConv { weight_self: matrix(0), weight_neigh: matrix(1), bias, aggregate })
    }
}

/// A GraphSAGE layer: `h_v = x_v W_self + aggregate({x_u : u -> v}) W_neigh + b`.
///
/// This is lines 4 and 5 of algorithm 1 of Hamilton, Ying and Leskovec 2017 before the nonlinearity, with the product
/// of the concatenation written as two products. Like DGL's and PyG's layers it omits the paper's normalisation of rows
/// (line 7). The layer has one bias, as in DGL and PyG; PyG stores it with the neighbours' weights.
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
    /// Panics if `x` does not have this shape.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        let commutes = self.aggregate != Aggregate::Max;
        let reduce = Reduction::from(self.aggregate);
        if commutes && !projects_first(block.into(), self.weight_neigh.dims()) {
            let beside = Aggregation { own: OwnRow::Concatenated, ..reduce.into() };
            return self.forward_aggregated(ops::aggregate_f32(block, x, beside));
        }
        let (own, neigh) = (self.weight_self.val(), self.weight_neigh.val());
        let bias = self.bias.val().unsqueeze();
        let out = ops::linear(bias, ops::take_dst(block, x.clone()), own);
        if commutes {
            out + ops::aggregate(block, product(x, neigh), reduce)
        } else {
            ops::linear(out, ops::aggregate_f32(block, x, reduce), neigh)
        }
    }

    /// Runs the layer from the own rows followed by the aggregated rows of the neighbours, `[n_dst, 2 * d_in]`.
    pub(crate) fn forward_aggregated(&self, rows: Tensor<2>) -> Tensor<2> {
        // One product of twice the depth is faster than two products, and so is its gradient.
        let weights = Tensor::cat(vec![self.weight_self.val(), self.weight_neigh.val()], 0);
        ops::linear(self.bias.val().unsqueeze(), rows, weights)
    }

    /// Returns the aggregation by which the layer reads its input rows if it aggregates first; `None` for maxima.
    pub(crate) fn input_aggregation(&self) -> Option<InputAggregation> {
        let aggregation = match self.aggregate {
            Aggregate::Mean => FeatureAggregation::ConcatSelfMean,
            Aggregate::Sum => FeatureAggregation::ConcatSelfSum,
            Aggregate::Max => return None,
        };
        let [d_in, d_out] = self.weight_neigh.dims();
        Some(InputAggregation { aggregation, d_in, d_out })
    }
}

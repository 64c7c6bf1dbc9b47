use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::ops::{self, Aggregation, Reduction};
use kiln_kernels::{DeviceBlock, FeatureAggregation};
use kiln_sample::RngKey;

use crate::error::check_weight;
use crate::init::{NO_GAIN, xavier_uniform, zeros};
use crate::linear::product_with;
use crate::order::{InputAggregation, projects_first};
use crate::{BiasedRows, Conv, ForwardContext, InputFormat, LayerSize, Result};

/// The widths of a [`GcnConv`] layer.
#[derive(Debug, Clone)]
pub struct GcnConvConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width of the output rows.
    pub d_out: usize,
}

impl GcnConvConfig {
    /// Creates a layer with initial weights drawn from the key: Xavier uniform without a gain, as in Kipf's code, DGL's
    /// `GraphConv` and PyG's `GCNConv`, and a bias of zeros.
    ///
    /// # Errors
    /// Returns an error if a width is 0 or too large, or if the weight matrix would be too large.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<GcnConv> {
        let &Self { d_in, d_out } = self;
        check_weight(d_in, d_out)?;
        Ok(GcnConv {
            weight: xavier_uniform(key, 0, [d_in, d_out], NO_GAIN, device),
            bias: zeros(d_out, device),
        })
    }
}

/// A graph convolution: `h_v = (sum over u -> v of w_uv x_u) W + b`.
///
/// With the weights `w` of `kiln_graph::gcn_norm` this is equation 2 of Kipf and Welling 2017 before the nonlinearity.
/// The layer does not compute degrees: it uses the edge weights of the block.
///
/// On blocks with [`EdgeWeights::Unbiased`](kiln_sample::EdgeWeights::Unbiased), the sum is an unbiased estimate of the
/// sum over the whole neighbourhood, normalised by the degrees of the whole graph. PyG's `GCNConv` on a sampled
/// subgraph normalises by the degrees within the subgraph instead, which estimates another function.
#[derive(Module, Debug)]
pub struct GcnConv {
    /// The weight matrix, `[d_in, d_out]`.
    pub weight: Param<Tensor<2>>,
    /// The bias, `[d_out]`.
    pub bias: Param<Tensor<1>>,
}

impl GcnConv {
    /// Runs the layer.
    ///
    /// The sum commutes with the product, so the rows are multiplied by the weight matrix before the sum if that is
    /// faster. The two orders differ only by rounding, and the block's size and the widths alone decide which is used.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if the block has no edge weights, or if `x` does not have this shape.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        self.rows(block, x, Some(self.bias.val().unsqueeze()))
    }

    /// Returns the rows with this bias, `[1, d_out]`, or without one.
    fn rows(&self, block: &DeviceBlock, x: Tensor<2>, bias: Option<Tensor<2>>) -> Tensor<2> {
        let Some(weights) = block.weights() else {
            panic!(
                "a GCN needs a block with the edge weights of kiln_graph::gcn_norm: use EdgeWeights::Stored \
                 for all neighbours, or EdgeWeights::Unbiased for sampled neighbours"
            );
        };
        let weighted_sum = Aggregation { weights: Some(weights.clone().into()), ..Reduction::Sum.into() };
        if projects_first(block.into(), self.weight.dims()) {
            let rows = ops::aggregate_f32(block, ops::product(x, self.weight.val()), weighted_sum);
            match bias {
                Some(bias) => ops::add_row(rows, bias),
                None => rows,
            }
        } else {
            let rows = ops::aggregate_for_linear(block, x, weighted_sum);
            product_with(bias, rows, self.weight.val())
        }
    }
}

impl Conv for GcnConv {
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

    /// Returns the aggregation by which the layer reads its input rows if it aggregates first.
    fn input_aggregation(&self) -> Option<InputAggregation> {
        let [d_in, d_out] = self.weight.dims();
        Some(InputAggregation { aggregation: FeatureAggregation::WeightedSum, d_in, d_out })
    }

    /// Runs the layer from the weighted sums of the input rows, `[n_dst, d_in]`.
    fn forward_aggregated(&self, rows: Tensor<2>) -> Tensor<2> {
        ops::linear(self.bias.val().unsqueeze(), rows, self.weight.val())
    }

    fn size(&self) -> Option<LayerSize> {
        Some(LayerSize::new(self.weight.dims()))
    }
}

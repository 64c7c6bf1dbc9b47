use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, Reduction};
use kiln_sample::RngKey;

use crate::Result;
use crate::error::check_weight;
use crate::init::{NO_GAIN, xavier_uniform, zeros};
use crate::stack::{product, projects_first};

/// A GCN layer's widths.
#[derive(Debug, Clone)]
pub struct GcnConvConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width of the output rows.
    pub d_out: usize,
}

impl GcnConvConfig {
    /// A layer with initial weights from the key: Xavier uniform without a gain, as in Kipf's code, DGL's
    /// `GraphConv` and PyG's `GCNConv`, and no bias.
    ///
    /// # Errors
    /// When a width is 0, or the widths are so large that the weights would fit no machine.
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
/// With the weights `w` of `kiln_graph::gcn_norm` this is equation 2 of
/// Kipf and Welling 2017 before the nonlinearity. The layer itself knows no degrees: it takes the
/// weights of the block's edges as they are. On blocks of
/// [`EdgeWeights::Unbiased`](kiln_sample::EdgeWeights::Unbiased) the sum is an unbiased
/// estimate of the whole neighbourhood's, with the degrees of the whole graph; PyG's `GCNConv` on a
/// sampled subgraph normalises by the degrees within the subgraph instead, which estimates another
/// function.
#[derive(Module, Debug)]
pub struct GcnConv {
    /// What the weighted sum is multiplied by, `[d_in, d_out]`.
    pub weight: Param<Tensor<2>>,
    /// What is added, `[d_out]`.
    pub bias: Param<Tensor<1>>,
}

impl GcnConv {
    /// Runs the layer.
    ///
    /// The sum commutes with the product, so rows are projected first where that is cheaper; the two
    /// orders differ by rounding. A block always takes the same one.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// When the block carries no weights, or `x` has other dimensions.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        let Some(weights) = block.weights() else {
            panic!(
                "a GCN needs the weights of kiln_graph::gcn_norm: sample all neighbours with \
                 EdgeWeights::Stored, or some with EdgeWeights::Unbiased"
            );
        };
        let weighted_sum = Aggregation { weights: Some(weights.clone()), ..Reduction::Sum.into() };
        let bias: Tensor<2> = self.bias.val().unsqueeze();
        if projects_first(block, self.weight.dims()) {
            ops::aggregate(block, product(x, self.weight.val()), weighted_sum) + bias
        } else {
            ops::linear(bias, ops::aggregate(block, x, weighted_sum), self.weight.val())
        }
    }
}

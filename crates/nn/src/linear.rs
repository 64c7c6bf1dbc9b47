use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::ops;
use kiln_sample::RngKey;

use crate::Result;
use crate::error::check_weight;
use crate::init::uniform;

/// A dense layer: `x W + b`.
#[derive(Module, Debug)]
pub struct Linear {
    /// The weight matrix, `[d_in, d_out]`.
    pub weight: Param<Tensor<2>>,
    /// The bias, `[d_out]`.
    pub bias: Param<Tensor<1>>,
}

/// Computes `x weight`, plus the bias in each row if there is one, `[1, d_out]`.
pub(crate) fn product_with(bias: Option<Tensor<2>>, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    match bias {
        Some(bias) => ops::linear(bias, x, weight),
        None => ops::product(x, weight),
    }
}

impl Linear {
    /// Creates layer `i` of the layers that share a key. Weight and bias are parameters `2 i` and `2 i + 1` of the key,
    /// both uniform in `[-b, b)` with `b = 1 / sqrt(d_in)`, as in PyTorch's `Linear`.
    pub(crate) fn init(key: RngKey, i: usize, [d_in, d_out]: [usize; 2], device: &Device) -> Result<Self> {
        check_weight(d_in, d_out)?;
        let bound = 1.0 / (d_in as f64).sqrt();
        let parameter = 2 * i as u64;
        Ok(Self {
            weight: uniform(key, parameter, [d_in, d_out], bound, device),
            bias: uniform(key, parameter + 1, [d_out], bound, device),
        })
    }

    /// Runs the layer.
    ///
    /// # Shapes
    /// `x` is `[n, d_in]`, the result `[n, d_out]`.
    ///
    /// # Panics
    /// Panics if the width of `x` is not `d_in`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        ops::linear(self.bias.val().unsqueeze(), x, self.weight.val())
    }
}

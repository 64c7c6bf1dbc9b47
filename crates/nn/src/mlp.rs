use burn::module::Module;
use burn::nn::BatchNorm;
use burn::tensor::{Device, Tensor};
use kiln_sample::RngKey;

use crate::error::check_size;
use crate::normalization::dense;
use crate::{ForwardContext, Linear, Normalization, Result};

/// A module that maps node rows, such as the MLP of a [`GinConv`](crate::GinConv).
pub trait NodeModule: Module {
    /// Runs the module.
    ///
    /// # Shapes
    /// `x` is `[n, d_in]`, the result `[n, d_out]`.
    ///
    /// # Panics
    /// Panics if the width of `x` is not `d_in`.
    fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2>;
}

/// The configuration of an [`Mlp`].
#[derive(Debug, Clone)]
pub struct MlpConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width of the rows between dense layers.
    pub hidden: usize,
    /// Width of the output rows.
    pub d_out: usize,
    /// Number of dense layers, at least 1.
    pub n_layers: usize,
    /// Normalisation between layers.
    pub norm: Normalization,
}

impl MlpConfig {
    /// Creates an MLP with initial weights and biases drawn from the key, uniform as in PyTorch's `Linear`. Dense layer
    /// `i` uses the key's parameters `2 i` and `2 i + 1`.
    ///
    /// # Errors
    /// Returns an error if a width or the number of layers is 0 or too large, or for layer normalisation.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Mlp> {
        let &Self { d_in, hidden, d_out, n_layers, norm } = self;
        check_size("hidden", hidden)?;
        check_size("n_layers", n_layers)?;
        let width = |i: usize| match i {
            0 => d_in,
            i if i == n_layers => d_out,
            _ => hidden,
        };
        let norms = (1..n_layers).map(|_| norm.init(hidden, device)).collect::<Result<Vec<_>>>()?;
        Ok(Mlp {
            linears: (0..n_layers)
                .map(|i| Linear::init(key, i, [width(i), width(i + 1)], device))
                .collect::<Result<_>>()?,
            norms: norms.into_iter().flatten().collect(),
        })
    }
}

/// A multilayer perceptron: dense layers with optional normalisation and ReLU between them.
#[derive(Module, Debug)]
pub struct Mlp {
    /// The dense layers.
    pub linears: Vec<Linear>,
    /// The normalisations after each dense layer but the last; empty for [`Normalization::None`].
    pub norms: Vec<BatchNorm>,
}

impl Mlp {
    /// Same as [`NodeModule::forward`], then a normalisation if there is one, then a ReLU if `has_relu` is true.
    pub(crate) fn forward_normalized(
        &self,
        x: Tensor<2>,
        norm: Option<&BatchNorm>,
        has_relu: bool,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let mut x = x;
        for (i, linear) in self.linears.iter().enumerate() {
            let is_last = i + 1 == self.linears.len();
            let norm = self.norms.get(i).or(norm.filter(|_| is_last));
            x = dense(linear, norm, !is_last || has_relu, x, ctx);
        }
        x
    }
}

impl NodeModule for Mlp {
    fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.forward_normalized(x, None, false, ctx)
    }
}

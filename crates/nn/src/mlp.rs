use burn::module::Module;
use burn::nn::BatchNorm;
use burn::tensor::{Device, Tensor};
use kiln_kernels::ops;
use kiln_sample::RngKey;

use crate::error::check_size;
use crate::normalization::normalize;
use crate::{ForwardContext, Linear, Normalization, Result};

/// A module that maps the row of each node, as a [`GinConv`](crate::GinConv) applies it.
pub trait NodeModule: Module {
    /// Runs it.
    ///
    /// # Shapes
    /// `x` is `[n, d_in]`, the result `[n, d_out]`.
    ///
    /// # Panics
    /// When `x` has another width.
    fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2>;
}

/// The shape of an [`Mlp`].
#[derive(Debug, Clone)]
pub struct MlpConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width between layers.
    pub hidden: usize,
    /// Width of the output rows.
    pub d_out: usize,
    /// Number of dense layers, at least 1.
    pub n_layers: usize,
    /// Normalisation between layers.
    pub norm: Normalization,
}

impl MlpConfig {
    /// A network with initial weights from the key, uniform as in PyTorch's `Linear`, biases too; dense
    /// layer `i` takes the key's parameters `2 i` and `2 i + 1`.
    ///
    /// # Errors
    /// When a width or the number of layers is 0 or absurdly large.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Mlp> {
        let &Self { d_in, hidden, d_out, n_layers, norm } = self;
        check_size("hidden", hidden)?;
        check_size("n_layers", n_layers)?;
        let width = |i: usize| match i {
            0 => d_in,
            i if i == n_layers => d_out,
            _ => hidden,
        };
        let linear = |i| Linear::init(key, i, [width(i), width(i + 1)], device);
        Ok(Mlp {
            linears: (0..n_layers).map(linear).collect::<Result<_>>()?,
            norms: (1..n_layers).filter_map(|_| norm.init(hidden, device)).collect(),
        })
    }
}

/// Dense layers with normalisation, if asked for, and ReLU between them.
#[derive(Module, Debug)]
pub struct Mlp {
    /// The dense layers.
    pub linears: Vec<Linear>,
    /// What normalises the output of each dense layer but the last; none without normalisation.
    pub norms: Vec<BatchNorm>,
}

impl NodeModule for Mlp {
    fn forward(&self, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let mut x = x;
        for (i, linear) in self.linears.iter().enumerate() {
            x = linear.forward(x);
            if let Some(norm) = self.norms.get(i) {
                x = normalize(norm, x, ctx);
            }
            if i + 1 < self.linears.len() {
                x = ops::relu(x);
            }
        }
        x
    }
}

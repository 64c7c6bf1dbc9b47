use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, ops};

use crate::{Aggregate, Ctx, Error, Result, RowModel};

/// By how much a node's own row weighs more than a neighbour's in a [`GinConv`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Epsilon {
    /// This number; 0 in the paper's GIN-0, in DGL and in PyG.
    Fixed(f32),
    /// A parameter that starts at this number: the paper's GIN-eps.
    Learnable(f32),
}

/// A graph isomorphism layer: `h_v = mlp((1 + eps) x_v + aggregate({x_u : u -> v}))`.
///
/// With the sum this is equation 4.1 of Xu, Hu, Leskovec and Jegelka 2019; mean and maximum are what the
/// paper compares it with (section 5) and what DGL's `GINConv` takes. What is in the place of the MLP is
/// any [`RowModel`].
#[derive(Module, Debug)]
pub struct GinConv<M: Module> {
    /// What follows the sum.
    pub mlp: M,
    /// Epsilon, `[1]`; it tracks no gradient where it is fixed.
    pub epsilon: Param<Tensor<1>>,
    #[module(skip)]
    aggregate: Aggregate,
}

impl<M: RowModel> GinConv<M> {
    /// A layer around this MLP, whose device it shares.
    ///
    /// # Errors
    /// When epsilon is not finite.
    pub fn new(mlp: M, epsilon: Epsilon, aggregate: Aggregate, device: &Device) -> Result<Self> {
        let (Epsilon::Fixed(value) | Epsilon::Learnable(value)) = epsilon;
        if !value.is_finite() {
            return Err(Error::NotFinite { name: "epsilon", got: value });
        }
        let parameter = Param::from_tensor(Tensor::from_data([value], device));
        let is_learnable = matches!(epsilon, Epsilon::Learnable(_));
        Ok(Self { mlp, epsilon: parameter.set_require_grad(is_learnable), aggregate })
    }

    /// Runs the layer.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// When `x` has other dimensions.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>, ctx: &Ctx) -> Tensor<2> {
        let factor: Tensor<2> = (self.epsilon.val() + 1.0).unsqueeze();
        let own = ops::dst_rows(block, x.clone()) * factor;
        self.mlp.forward(own + self.aggregate.gather(block, x), ctx)
    }
}

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};

use crate::{Aggregate, Error, ForwardContext, NodeModule, Result};

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
/// any [`NodeModule`].
#[derive(Module, Debug)]
pub struct GinConv<M: Module> {
    /// What follows the sum.
    pub mlp: M,
    /// Epsilon, `[1]`, where it is learned. A fixed one is a setting, not a weight: it is neither saved nor
    /// handed on between ranks.
    pub epsilon: Option<Param<Tensor<1>>>,
    #[module(skip)]
    configured: Epsilon,
    #[module(skip)]
    aggregate: Aggregate,
}

impl<M: NodeModule> GinConv<M> {
    /// A layer around this MLP, whose device is this one.
    ///
    /// # Errors
    /// When epsilon is not finite.
    ///
    /// # Panics
    /// When the MLP has parameters on another device, or on this one with or without gradients where this one is
    /// the other.
    pub fn new(mlp: M, epsilon: Epsilon, aggregate: Aggregate, device: &Device) -> Result<Self> {
        let (Epsilon::Fixed(value) | Epsilon::Learnable(value)) = epsilon;
        if !value.is_finite() {
            return Err(Error::NotFinite { name: "epsilon", got: value });
        }
        let devices = mlp.devices();
        // To Burn a device that tracks gradients and the same that does not are equal.
        let is_same = |own: &Device| own == device && own.is_autodiff() == device.is_autodiff();
        assert!(devices.iter().all(is_same), "an MLP on {devices:?} for a layer on {device:?}");
        let parameter = match epsilon {
            Epsilon::Fixed(_) => None,
            Epsilon::Learnable(start) => Some(Param::from_tensor(Tensor::from_data([start], device))),
        };
        Ok(Self { mlp, epsilon: parameter, configured: epsilon, aggregate })
    }

    /// Runs the layer.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// When `x` has other dimensions.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let reduce = Reduction::from(self.aggregate);
        let rows = match (&self.epsilon, self.configured) {
            (Some(epsilon), _) => {
                let own = ops::take_dst(block, x.clone()) * (epsilon.val() + 1.0).unsqueeze();
                ops::aggregate(block, x, reduce) + own
            }
            (None, Epsilon::Fixed(epsilon) | Epsilon::Learnable(epsilon)) => {
                let own = OwnRow::Scaled(1.0 + epsilon);
                ops::aggregate(block, x, Aggregation { own, ..reduce.into() })
            }
        };
        self.mlp.forward(rows, ctx)
    }
}

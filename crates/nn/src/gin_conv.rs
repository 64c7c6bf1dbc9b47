use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
use serde::{Deserialize, Serialize};

use crate::{Aggregate, Error, ForwardContext, NodeModule, Result};

/// The epsilon of a [`GinConv`]: a node's own row has weight `1 + epsilon`, and the row of a neighbour has weight 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Epsilon {
    /// A constant; 0 in the paper's GIN-0, in DGL and in PyG.
    Fixed(f32),
    /// A learned parameter with this initial value: the paper's GIN-eps.
    Learnable(f32),
}

impl Epsilon {
    /// Creates the parameter of a learned epsilon.
    ///
    /// # Errors
    /// Returns [`Error::NotFinite`] if epsilon is not finite.
    pub(crate) fn parameter(self, device: &Device) -> Result<Option<Param<Tensor<1>>>> {
        let (Self::Fixed(value) | Self::Learnable(value)) = self;
        if !value.is_finite() {
            return Err(Error::NotFinite { name: "epsilon", got: value });
        }
        Ok(match self {
            Self::Fixed(_) => None,
            Self::Learnable(start) => Some(Param::from_tensor(Tensor::from_data([start], device))),
        })
    }
}

/// Panics if an MLP has parameters on another device, or if only one of the two devices tracks gradients.
pub(crate) fn check_device<M: NodeModule>(mlp: &M, device: &Device) {
    let devices = mlp.devices();
    // Burn's comparison of devices ignores gradient tracking.
    let is_same = |own: &Device| own == device && own.is_autodiff() == device.is_autodiff();
    assert!(devices.iter().all(is_same), "the MLP is on {devices:?}, expected {device:?}");
}

/// A graph isomorphism layer: `h_v = mlp((1 + eps) x_v + aggregate({x_u : u -> v}))`.
///
/// With the sum this is equation 4.1 of Xu, Hu, Leskovec and Jegelka 2019. The paper compares it with the mean and the
/// maximum (section 5), which DGL's `GINConv` supports, too. Any [`NodeModule`] can be used as the MLP.
#[derive(Module, Debug)]
pub struct GinConv<M: Module> {
    /// The MLP, which is applied to the aggregated rows.
    pub mlp: M,
    /// The learned epsilon, `[1]`. A fixed epsilon is a setting, not a weight: it is neither saved nor synchronised
    /// between ranks.
    pub epsilon: Option<Param<Tensor<1>>>,
    #[module(skip)]
    configured: Epsilon,
    #[module(skip)]
    aggregate: Aggregate,
}

impl<M: NodeModule> GinConv<M> {
    /// Creates a layer from an MLP whose parameters are on `device`.
    ///
    /// # Errors
    /// Returns [`Error::NotFinite`] if epsilon is not finite.
    ///
    /// # Panics
    /// Panics if the MLP has parameters on another device, or if only one of the two devices tracks gradients.
    pub fn new(mlp: M, epsilon: Epsilon, aggregate: Aggregate, device: &Device) -> Result<Self> {
        check_device(&mlp, device);
        let parameter = epsilon.parameter(device)?;
        Ok(Self { mlp, epsilon: parameter, configured: epsilon, aggregate })
    }

    /// Returns epsilon as the layer was configured.
    pub(crate) fn configured_epsilon(&self) -> Epsilon {
        self.configured
    }

    /// Runs the layer.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if `x` does not have this shape.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        self.mlp.forward(self.aggregated(block, x), ctx)
    }

    /// Returns the rows that the MLP reads, `[n_dst, d_in]`.
    pub(crate) fn aggregated(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        let reduce = Reduction::from(self.aggregate);
        match (&self.epsilon, self.configured) {
            (Some(epsilon), _) => {
                let own = ops::widen(ops::take_dst(block, x.clone()));
                ops::aggregate_f32(block, x, reduce) + ops::mul_row(own, (epsilon.val() + 1.0).unsqueeze())
            }
            (None, Epsilon::Fixed(epsilon) | Epsilon::Learnable(epsilon)) => {
                let own = OwnRow::Scaled(1.0 + epsilon);
                ops::aggregate_f32(block, x, Aggregation { own, ..reduce.into() })
            }
        }
    }
}

use burn::nn::{BatchNorm, BatchNormConfig};
use burn::tensor::{Device, Tensor, module};
use serde::{Deserialize, Serialize};

use crate::{Error, ForwardContext, Mode, Result};

/// The normalisation of hidden rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalization {
    /// No normalisation.
    #[default]
    None,
    /// Burn's batch normalisation (Ioffe and Szegedy 2015) over all rows of the batch, with running statistics of
    /// momentum 0.1 for prediction. The running variance is biased, whereas PyTorch's divides by the number of rows
    /// less 1. It is for [`Gin`](crate::Gin) and [`Mlp`](crate::Mlp).
    Batch,
    /// Burn's layer normalisation (Ba, Kiros and Hinton 2016) of each row on its own, with a learned scale and shift of
    /// each column. It is for [`Sage`](crate::Sage) and [`Gcn`](crate::Gcn).
    Layer,
}

impl Normalization {
    /// Creates the module that normalises rows of this width, or returns `None` for [`Normalization::None`].
    ///
    /// # Errors
    /// Returns [`Error::OtherModel`] for [`Normalization::Layer`].
    pub(crate) fn init(self, width: usize, device: &Device) -> Result<Option<BatchNorm>> {
        match self {
            Self::None => Ok(None),
            Self::Batch => Ok(Some(BatchNormConfig::new(width).init(device))),
            Self::Layer => Err(Error::OtherModel { name: "norm", got: "layer", expected: "none or batch" }),
        }
    }
}

/// Normalises rows. Training on a device that tracks gradients uses the mean and variance of the rows and updates the
/// running statistics. Prediction uses the running statistics. A batch without rows is returned unchanged and updates
/// nothing.
///
/// Burn chooses between training and prediction by the device alone. Here [`Mode::Eval`] means prediction on every
/// device, so that predictions by a model in training do not change it. [`Mode::Train`] on a device without gradient
/// tracking keeps Burn's behaviour: it uses the running statistics and does not update them.
///
/// Burn buffers the last update of each thread, and clones of a model share their statistics. Therefore only one thread
/// at a time may train a model and its clones, and other threads must predict with the result of `Module::valid`.
pub(crate) fn normalize(norm: &BatchNorm, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
    let [n_rows, _] = x.dims();
    match ctx.mode {
        _ if n_rows == 0 => x,
        Mode::Train => norm.forward(x),
        Mode::Eval => {
            // Only the synced value contains this thread's last training step.
            let (mean, variance) = (norm.running_mean.value_sync(), norm.running_var.value_sync());
            module::batch_norm(x, norm.gamma.val(), norm.beta.val(), mean, variance, norm.epsilon)
        }
    }
}

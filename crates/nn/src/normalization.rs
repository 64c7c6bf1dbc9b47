use burn::nn::{BatchNorm, BatchNormConfig, LayerNorm};
use burn::tensor::{DType, Device, Tensor, module};
use kiln_kernels::is_cpu;
use kiln_kernels::ops::{self, BatchNormOutput};
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
        Mode::Train if trains_on_device(norm, &x) => normalize_on_device(norm, x),
        Mode::Train => norm.forward(x),
        Mode::Eval => {
            // Only the synced value contains this thread's last training step.
            let mean = norm.running_mean.value_sync();
            let variance = norm.running_var.value_sync();
            module::batch_norm(x, norm.gamma.val(), norm.beta.val(), mean, variance, norm.epsilon)
        }
    }
}

/// Returns true if Burn's `forward` would take a training step, and the device is not the CPU.
fn trains_on_device(norm: &BatchNorm, x: &Tensor<2>) -> bool {
    let device = x.device();
    device.is_autodiff() && norm.training.is_enabled() && !is_cpu(&device)
}

/// Runs a training step of a batch normalisation as Burn's `forward` does, but with the statistics and the gradients as
/// column sums of all multiprocessors of a GPU.
fn normalize_on_device(norm: &BatchNorm, x: Tensor<2>) -> Tensor<2> {
    let BatchNormOutput { rows, mean, variance } =
        ops::batch_norm(x, norm.gamma.val(), norm.beta.val(), norm.epsilon);
    let device = rows.device();
    for (running, batch) in [(&norm.running_mean, mean), (&norm.running_var, variance)] {
        let before = running.value_sync().to_device(&device);
        running.update(ops::moving_average(before, batch, norm.momentum).detach());
    }
    rows
}

/// The number that a layer normalisation adds to the variance: Burn's default.
pub(crate) const LAYER_EPSILON: f64 = 1e-5;

/// Normalizes each row by its mean and biased variance, then scales and shifts the columns, as Burn's `forward` does.
/// Except on the CPU, f32 rows are normalized by [`ops::layer_norm`], whose sums all multiprocessors of a GPU compute.
pub(crate) fn normalize_rows(norm: &LayerNorm, x: Tensor<2>) -> Tensor<2> {
    if is_cpu(&x.device()) || x.dtype() != DType::F32 {
        return norm.forward(x);
    }
    ops::layer_norm(x, norm.gamma.val(), norm.beta.as_ref().map(|beta| beta.val()), LAYER_EPSILON)
}

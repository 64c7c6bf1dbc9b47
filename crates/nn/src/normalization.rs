use burn::module::{Module, ModuleMapper, Param, RunningState};
use burn::nn::{BatchNorm, BatchNormConfig, LayerNorm};
use burn::tensor::{DType, Device, Tensor, module};
use kiln_kernels::is_cpu;
use kiln_kernels::ops::{self, BatchNormOutput};
use serde::{Deserialize, Serialize};

use crate::{Error, ForwardContext, Linear, Mode, Result};

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

/// Runs a dense layer, then its normalisation if there is one, then a ReLU if `has_relu` is true. Training on a device that
/// tracks gradients uses the mean and variance of the rows and updates the running statistics. Prediction uses the running
/// statistics. A batch without rows is not normalised and updates nothing.
///
/// Burn chooses between training and prediction by the device alone. Here [`Mode::Eval`] means prediction on every
/// device, so that predictions by a model in training do not change it. [`Mode::Train`] on a device without gradient
/// tracking keeps Burn's behaviour: it uses the running statistics and does not update them.
///
/// Clones of a model share their running statistics, and on the CPU, Burn buffers the last update of each thread. Therefore
/// only one thread at a time may train a model and its clones, and other threads must predict with the result of
/// `Module::valid`.
pub(crate) fn dense(
    linear: &Linear,
    norm: Option<&BatchNorm>,
    has_relu: bool,
    x: Tensor<2>,
    ctx: &ForwardContext,
) -> Tensor<2> {
    let [n_rows, _] = x.dims();
    let norm = norm.filter(|_| 0 < n_rows);
    if let Some(norm) = norm.filter(|norm| matches!(ctx.mode, Mode::Train) && trains_on_device(norm)) {
        return dense_on_device(linear, norm, has_relu, x);
    }
    let mut x = linear.forward(x);
    if let Some(norm) = norm {
        x = normalize(norm, x, ctx);
    }
    if has_relu { ops::relu(x) } else { x }
}

fn normalize(norm: &BatchNorm, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
    match ctx.mode {
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
fn trains_on_device(norm: &BatchNorm) -> bool {
    // The rows may be untracked features.
    let device = norm.gamma.val().device();
    device.is_autodiff() && norm.training.is_enabled() && !is_cpu(&device)
}

/// Runs a training step of [`dense`] with the ops of this project, whose sums over the rows all multiprocessors of a GPU
/// compute. The bias is only added to the running mean: the normalised rows do not depend on it, and its gradient is 0, which
/// on the CPU is a sum of numbers that cancel.
fn dense_on_device(linear: &Linear, norm: &BatchNorm, has_relu: bool, x: Tensor<2>) -> Tensor<2> {
    let parameters = ops::BatchNorm {
        bias: linear.bias.val(),
        gamma: norm.gamma.val(),
        beta: norm.beta.val(),
        moving_mean: current(&norm.running_mean),
        moving_variance: current(&norm.running_var),
        momentum: norm.momentum,
        epsilon: norm.epsilon,
        relu: has_relu,
    };
    let BatchNormOutput { rows, moving_mean, moving_variance } =
        ops::batch_norm(ops::product(x, linear.weight.val()), parameters);
    replace(&norm.running_mean, moving_mean);
    replace(&norm.running_var, moving_variance);
    rows
}

/// Returns a running statistic with the updates of all threads.
fn current(running: &RunningState<Tensor<1>>) -> Tensor<1> {
    // Nothing else applies the updates of other threads.
    drop(running.valid());
    running.value()
}

/// Replaces a running statistic. Burn's `update` would add the values of all threads and divide by their number, which is a launch.
fn replace(running: &RunningState<Tensor<1>>, value: Tensor<1>) {
    let _ = running.clone().map(&mut Replacement(value.detach()));
}

/// Replaces the value of a running statistic, which its clones share, by this one.
struct Replacement(Tensor<1>);

impl ModuleMapper for Replacement {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|old| self.0.clone().reshape(old.dims()))
    }
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

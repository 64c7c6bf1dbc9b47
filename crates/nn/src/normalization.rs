use burn::nn::{BatchNorm, BatchNormConfig};
use burn::tensor::{Device, Tensor, module};

use crate::{ForwardContext, Mode};

/// A normalisation, which brings the columns of hidden rows to one scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalization {
    /// Nothing.
    None,
    /// Batch normalisation (Ioffe and Szegedy 2015), Burn's: over all rows of the batch, with the running
    /// statistics of momentum 0.1 for prediction. Their variance is the biased one; PyTorch's divides by
    /// the number of rows less 1.
    Batch,
}

impl Normalization {
    /// The normalisation of rows of this width, if there is any.
    pub(crate) fn init(self, width: usize, device: &Device) -> Option<BatchNorm> {
        match self {
            Self::None => None,
            Self::Batch => Some(BatchNormConfig::new(width).init(device)),
        }
    }
}

/// Normalises rows: in training, on a device that tracks gradients, by their own mean and variance, which
/// also move the running ones; in prediction by the running ones. No rows have no statistics, and change none.
///
/// Burn looks at the device alone. Here [`Mode::Eval`] means prediction on every device, so that predicting by
/// a model that is being trained changes nothing. [`Mode::Train`] on a device that tracks no gradients is left
/// as Burn has it: by the running statistics, which do not move.
///
/// Burn holds each thread's last update back, and clones of a model share them: one thread at a time trains
/// a model and its clones, and `Module::valid` is what others predict by.
pub(crate) fn normalize(norm: &BatchNorm, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
    let [n_rows, _] = x.dims();
    match ctx.mode {
        _ if n_rows == 0 => x,
        Mode::Train => norm.forward(x),
        Mode::Eval => {
            // Only the synced value has this thread's last training step in it.
            let (mean, variance) = (norm.running_mean.value_sync(), norm.running_var.value_sync());
            module::batch_norm(x, norm.gamma.val(), norm.beta.val(), mean, variance, norm.epsilon)
        }
    }
}

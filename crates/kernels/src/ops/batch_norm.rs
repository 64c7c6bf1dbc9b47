//! Batch normalisation (Ioffe and Szegedy 2015, algorithm 1) of the rows of a matrix, with the statistics of its columns.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType, TensorMetadata};

/// The inputs of a batch normalisation, as tensors of a backend. All but `x` have a value per column.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct NormalizationInput<B: Backend> {
    /// The rows, `[n, d]`.
    pub(crate) x: FloatTensor<B>,
    /// A row that is added to all rows. Only the moving average of the means depends on it.
    pub(crate) bias: FloatTensor<B>,
    pub(crate) gamma: FloatTensor<B>,
    pub(crate) beta: FloatTensor<B>,
    /// The moving averages before this step.
    pub(crate) moving_mean: FloatTensor<B>,
    pub(crate) moving_variance: FloatTensor<B>,
}

/// The settings of a batch normalisation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NormalizationSettings {
    /// The number that is added to the variances.
    pub(crate) epsilon: f64,
    /// The weight of this batch's statistics in the moving averages.
    pub(crate) momentum: f64,
    /// True if a ReLU follows.
    pub(crate) has_relu: bool,
}

/// The results of a batch normalisation, as tensors of a backend. All but `rows` have a value per column.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct Normalized<B: Backend> {
    /// The normalised rows, `[n, d]`.
    pub(crate) rows: FloatTensor<B>,
    /// The means of `x`, without the bias.
    pub(crate) means: FloatTensor<B>,
    /// The biased variances.
    pub(crate) variances: FloatTensor<B>,
    pub(crate) moving_mean: FloatTensor<B>,
    pub(crate) moving_variance: FloatTensor<B>,
}

/// The data that the gradients of a batch normalisation need.
#[derive(Debug, Clone)]
pub(crate) struct SavedNormalization<B: Backend> {
    pub(crate) x: FloatTensor<B>,
    pub(crate) gamma: FloatTensor<B>,
    pub(crate) means: FloatTensor<B>,
    pub(crate) variances: FloatTensor<B>,
    pub(crate) epsilon: f64,
    /// The result, if a ReLU followed.
    pub(crate) output: Option<FloatTensor<B>>,
}

/// The gradients of the inputs of a batch normalisation. That of the bias is 0, because the result does not depend on it.
#[derive(Debug, Clone)]
pub(crate) struct NormalizationGradients<B: Backend> {
    pub(crate) x: FloatTensor<B>,
    pub(crate) bias: FloatTensor<B>,
    pub(crate) gamma: FloatTensor<B>,
    pub(crate) beta: FloatTensor<B>,
}

pub(crate) fn normalize<B: Backend>(
    input: NormalizationInput<B>,
    settings: NormalizationSettings,
) -> Normalized<B> {
    let NormalizationInput { x, bias, gamma, beta, moving_mean, moving_variance } = input;
    let NormalizationSettings { epsilon, momentum, has_relu } = settings;
    let normalized = B::batch_norm_train(x, gamma, beta, epsilon);
    let rows = if has_relu { B::relu(normalized.output) } else { normalized.output };
    let mean_with_bias = B::float_add(normalized.mean.clone(), bias);
    Normalized {
        rows,
        moving_mean: moved::<B>(moving_mean, mean_with_bias, momentum),
        moving_variance: moved::<B>(moving_variance, normalized.variance.clone(), momentum),
        means: normalized.mean,
        variances: normalized.variance,
    }
}

/// Computes `average * (1 - momentum) + new * momentum`.
fn moved<B: Backend>(average: FloatTensor<B>, new: FloatTensor<B>, momentum: f64) -> FloatTensor<B> {
    let kept = B::float_mul_scalar(average, (1.0 - momentum).into());
    B::float_add(kept, B::float_mul_scalar(new, momentum.into()))
}

pub(crate) fn adjoint<B: Backend>(
    saved: SavedNormalization<B>,
    grad: FloatTensor<B>,
) -> NormalizationGradients<B> {
    let SavedNormalization { x, gamma, means, variances, epsilon, output } = saved;
    let grad = match output {
        Some(output) => B::relu_backward(output, grad),
        None => grad,
    };
    let bias = B::float_zeros(gamma.shape(), &gamma.device(), gamma.dtype().into());
    let gradients = B::batch_norm_train_backward(x, gamma, means, variances, epsilon, grad);
    NormalizationGradients {
        x: gradients.x_grad,
        bias,
        gamma: gradients.gamma_grad,
        beta: gradients.beta_grad,
    }
}

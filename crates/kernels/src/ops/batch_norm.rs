//! Batch normalisation (Ioffe and Szegedy 2015, algorithm 1) of the rows of a matrix, with the statistics of its columns.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, ExtensionType};

/// The results of a batch normalisation, as tensors of a backend.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) struct Normalized<B: Backend> {
    /// The normalised rows, `[n, d]`.
    pub(crate) rows: FloatTensor<B>,
    /// The mean of each column, `[d]`.
    pub(crate) means: FloatTensor<B>,
    /// The biased variance of each column, `[d]`.
    pub(crate) variances: FloatTensor<B>,
}

/// The data that the gradients of a batch normalisation need.
#[derive(Debug, Clone)]
pub(crate) struct BatchStatistics<B: Backend> {
    pub(crate) x: FloatTensor<B>,
    pub(crate) gamma: FloatTensor<B>,
    pub(crate) means: FloatTensor<B>,
    pub(crate) variances: FloatTensor<B>,
    pub(crate) epsilon: f64,
}

/// The gradients of the inputs of a batch normalisation.
#[derive(Debug, Clone)]
pub(crate) struct NormalizationGradients<B: Backend> {
    pub(crate) x: FloatTensor<B>,
    pub(crate) gamma: FloatTensor<B>,
    pub(crate) beta: FloatTensor<B>,
}

pub(crate) fn moving_average<B: Backend>(
    old: FloatTensor<B>,
    new: FloatTensor<B>,
    share: f64,
) -> FloatTensor<B> {
    let kept = B::float_mul_scalar(old, (1.0 - share).into());
    B::float_add(kept, B::float_mul_scalar(new, share.into()))
}

pub(crate) fn normalize<B: Backend>(
    x: FloatTensor<B>,
    gamma: FloatTensor<B>,
    beta: FloatTensor<B>,
    epsilon: f64,
) -> Normalized<B> {
    let normalized = B::batch_norm_train(x, gamma, beta, epsilon);
    Normalized { rows: normalized.output, means: normalized.mean, variances: normalized.variance }
}

pub(crate) fn adjoint<B: Backend>(
    saved: BatchStatistics<B>,
    grad: FloatTensor<B>,
) -> NormalizationGradients<B> {
    let BatchStatistics { x, gamma, means, variances, epsilon } = saved;
    let gradients = B::batch_norm_train_backward(x, gamma, means, variances, epsilon, grad);
    NormalizationGradients { x: gradients.x_grad, gamma: gradients.gamma_grad, beta: gradients.beta_grad }
}

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

/// The results of [`BlockOps::cross_entropy`](crate::ops::backend::BlockOps::cross_entropy).
#[derive(Debug, Clone)]
pub(crate) struct CrossEntropy<B: Backend> {
    /// The sum of the rows' losses, `[1]`.
    pub(crate) loss: FloatTensor<B>,
    /// The maximum of each row, `[n]`, for the adjoint.
    pub(crate) maxima: FloatTensor<B>,
    /// The logarithm of the sum of the exponentials of each row, after the maximum was subtracted, `[n]`, for the adjoint.
    pub(crate) log_sums: FloatTensor<B>,
}

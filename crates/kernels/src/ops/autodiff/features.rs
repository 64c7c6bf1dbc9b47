//! Gradients of rows of half precision.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, TensorMetadata};
use burn::tensor::{DType, FloatDType};

use crate::ops::backend::BlockAdjoints;

/// Returns rows of half precision as f32 if they need a gradient and the device of the rows does not compute in bf16. Burn's
/// cast rounds that gradient to their element type; the ops on the inner backend that widen rows as they read them would
/// return it in f32.
pub(super) fn widened_if_tracked<B: BlockAdjoints, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    match x.dtype() {
        DType::BF16 if B::reads_bf16(x.primitive()) => x,
        DType::F16 | DType::BF16 if x.is_tracked() => Autodiff::<B, C>::float_cast(x, FloatDType::F32),
        _ => x,
    }
}

/// Returns the gradient of a product's rows in the element type of these rows, which is f32 or bf16.
pub(super) fn row_gradient<B: BlockAdjoints>(grad: FloatTensor<B>, row_type: DType) -> FloatTensor<B> {
    match (grad.dtype(), row_type) {
        (DType::F32, DType::BF16) => B::float_cast(grad, FloatDType::BF16),
        _ => grad,
    }
}

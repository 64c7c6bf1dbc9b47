//! Gradients of rows of half precision.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata};
use burn::tensor::{DType, FloatDType};

/// Returns rows of half precision as f32 if they need a gradient. Burn's cast rounds that gradient to their element type;
/// the ops on the inner backend that widen rows as they read them would return it in f32.
pub(super) fn widened_if_tracked<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    match x.dtype() {
        DType::F16 | DType::BF16 if x.is_tracked() => Autodiff::<B, C>::float_cast(x, FloatDType::F32),
        _ => x,
    }
}

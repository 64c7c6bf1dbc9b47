//! Rows of half precision.

use burn::tensor::{DType, Tensor};

use crate::device::devices::is_cpu;

/// Returns the rows as f32: the entry of ops and models that do not read features of half precision. Other tensors are
/// returned as they are. Gradients have the element type of `x`.
pub fn widen(x: Tensor<2>) -> Tensor<2> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.cast(DType::F32),
        _ => x,
    }
}

/// Returns true if the rows are of half precision and their device has ops that widen them as they are read.
pub(super) fn reads_half_rows(x: &Tensor<2>) -> bool {
    is_cpu(&x.device()) && matches!(x.dtype(), DType::F16 | DType::BF16)
}

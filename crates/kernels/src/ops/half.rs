//! Rows of half precision.

use burn::tensor::{DType, Device, Tensor};

use crate::device::devices::{is_cpu, is_cuda};
use crate::ops::precision::{MatmulPrecision, matmul_precision};

/// Returns the rows as f32: the entry of ops and models that do not read features of half precision. Other tensors are
/// returned as they are. Gradients have the element type of `x`.
pub fn widen(x: Tensor<2>) -> Tensor<2> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.cast(DType::F32),
        _ => x,
    }
}

/// Returns the rows as bf16 if layers on their device read rows in bf16 ([`MatmulPrecision::Bf16`] on CUDA). Other tensors
/// are returned as they are. Gradients have the element type of `x`.
pub fn narrow(x: Tensor<2>) -> Tensor<2> {
    if reads_bf16(&x.device()) { x.cast(DType::BF16) } else { x }
}

/// Returns true if the ops of layers on the device of the rows read them in their half precision.
pub(super) fn reads_half_rows(x: &Tensor<2>) -> bool {
    match x.dtype() {
        DType::F16 => is_cpu(&x.device()),
        DType::BF16 => is_cpu(&x.device()) || reads_bf16(&x.device()),
        _ => false,
    }
}

/// Returns true if layers on a device read rows in bf16.
pub(crate) fn reads_bf16(device: &Device) -> bool {
    matmul_precision() == MatmulPrecision::Bf16 && is_cuda(device)
}

//! The precision of matrix products.

use std::sync::atomic::{AtomicBool, Ordering};

/// The precision of matrix products of f32 values on a CUDA device. Other devices compute in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatmulPrecision {
    /// Computes in f32, without tensor cores: each product has the relative error of f32, 2^-24.
    #[default]
    F32,
    /// Rounds the factors to TF32, which has a mantissa of 10 bits, and adds the products in f32 on tensor cores. The
    /// error of an element of the result is at most about 2^-9 times the sum of the magnitudes of its products.
    Tf32,
}

/// True if products are computed in TF32.
static IS_TF32: AtomicBool = AtomicBool::new(false);

/// Sets the precision of all later matrix products of f32 values of [`linear`](crate::ops::linear) and its gradients in
/// this process, on CUDA devices. The default is [`MatmulPrecision::F32`]. Set it before training: gradients of products
/// that were computed before the call use the new precision.
///
/// It does not apply to Burn's own `matmul` and layers, which use TF32 on CUDA.
///
/// The default is f32, as in PyTorch, because results then agree with those of the CPU within the rounding of f32. TF32
/// trades accuracy for speed: its tensor cores have several times the arithmetic rate.
pub fn set_matmul_precision(precision: MatmulPrecision) {
    IS_TF32.store(precision == MatmulPrecision::Tf32, Ordering::Relaxed);
}

/// Returns the precision that [`set_matmul_precision`] has set.
pub fn matmul_precision() -> MatmulPrecision {
    if IS_TF32.load(Ordering::Relaxed) { MatmulPrecision::Tf32 } else { MatmulPrecision::F32 }
}

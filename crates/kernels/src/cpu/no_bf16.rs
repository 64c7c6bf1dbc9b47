//! The place of `bf16.rs` on architectures without a kernel for bf16: all products are computed in f32.

use std::mem::MaybeUninit;

use crate::cpu::matrix::{Matrix, Start};

/// The right operand of a product in bf16, of which there are none.
pub(super) enum Panels {}

impl Panels {
    /// Returns `None`: the product is computed in f32.
    pub(super) fn of(_right: Matrix<'_>) -> Option<Self> {
        None
    }

    /// Cannot be called.
    pub(super) fn multiply(&self, _out: &mut [MaybeUninit<f32>], _left: Matrix<'_>, _start: Start<'_>) {
        match *self {}
    }
}

/// Returns false: the product is computed in f32.
pub(super) fn transposed_product(_out: &mut Vec<f32>, _x: Matrix<'_>, _grad: Matrix<'_>) -> bool {
    false
}

//! The element types of rows that the loops read: f32, and the half-precision types, which are widened in registers.

use std::fmt::Debug;
use std::mem::MaybeUninit;

use burn::tensor::Element;
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_mem::vector;

/// An element type of rows. All of its values are also f32 values, so widening a value does not round it.
pub(super) trait RowValue: Element + Pod + Debug + Copy + Sync {
    /// Returns the value as f32. Implementations are free of branches and calls, so that loops over them are vectorised
    /// for each instruction set (see [`kiln_mem::vector`]).
    fn widened(self) -> f32;

    /// Returns several values as f32.
    #[inline(always)]
    fn all_widened<const N: usize>(values: &[Self; N]) -> [f32; N] {
        std::array::from_fn(|i| values[i].widened())
    }

    /// Calls `read` with the values as f32.
    fn with_widened<R>(values: &[Self], read: impl FnOnce(&[f32]) -> R) -> R {
        read(&widened(values))
    }
}

impl RowValue for f32 {
    #[inline(always)]
    fn widened(self) -> f32 {
        self
    }

    #[inline(always)]
    fn all_widened<const N: usize>(values: &[f32; N]) -> [f32; N] {
        *values
    }

    fn with_widened<R>(values: &[f32], read: impl FnOnce(&[f32]) -> R) -> R {
        read(values)
    }
}

impl RowValue for bf16 {
    #[inline(always)]
    fn widened(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// Copies values as f32, in the calling thread.
fn widened<E: RowValue>(values: &[E]) -> Vec<f32> {
    let mut out = Vec::with_capacity(values.len());
    vector::run(Widening { values, out: &mut out.spare_capacity_mut()[..values.len()] });
    // SAFETY: the loop writes one element per value.
    unsafe { out.set_len(values.len()) };
    out
}

/// The loop of [`widened`].
struct Widening<'a, E> {
    values: &'a [E],
    out: &'a mut [MaybeUninit<f32>],
}

impl<E: RowValue> vector::VectorTask for Widening<'_, E> {
    #[inline(always)]
    fn run(self) {
        for (out, value) in self.out.iter_mut().zip(self.values) {
            out.write(value.widened());
        }
    }
}

/// The exponent bits of an f16 value after its bits were shifted to the mantissa of an f32.
const F16_EXPONENT: u32 = 0x7c00 << 13;

impl RowValue for f16 {
    /// Moves exponent and mantissa to their places in an f32, and adds the difference of the exponents' biases.
    /// `f16::to_f32` of the crate `half` asks for the processor's features at each value.
    #[inline(always)]
    fn widened(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let shifted = (bits & 0x7fff) << 13;
        let exponent = shifted & F16_EXPONENT;
        // Infinity and NaN have the largest exponent in both types.
        let bias = if exponent == F16_EXPONENT { 224 << 23 } else { 112 << 23 };
        // A subnormal value has the exponent 1, but no leading 1 in front of its mantissa.
        let subnormal = f32::from_bits(shifted + (113 << 23)) - f32::from_bits(113 << 23);
        let magnitude = if exponent == 0 { subnormal.to_bits() } else { shifted + bias };
        f32::from_bits(magnitude | (bits & 0x8000) << 16)
    }

    /// Uses the conversion of the processor, which takes one instruction for eight values instead of a dozen.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn all_widened<const N: usize>(values: &[f16; N]) -> [f32; N] {
        if !N.is_multiple_of(8) || !is_x86_feature_detected!("f16c") {
            return std::array::from_fn(|i| values[i].widened());
        }
        let mut out = [0.0; N];
        for (out, values) in out.chunks_exact_mut(8).zip(values.chunks_exact(8)) {
            // SAFETY: both slices have eight values, and the condition above checks that the processor has the
            // instructions.
            unsafe { widen_eight(out.as_mut_ptr(), values.as_ptr()) };
        }
        out
    }
}

/// Widens eight values.
///
/// # Safety
/// Both pointers must be valid for eight values.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "f16c")]
unsafe fn widen_eight(out: *mut f32, values: *const f16) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    // SAFETY: the caller guarantees that the pointers are valid for eight values.
    unsafe { _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(values.cast()))) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a widened value against the conversion of the crate `half`, which makes signalling NaNs quiet.
    fn check(got: f32, expected: f32) {
        let is_same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        assert!(is_same, "got {got:e} ({:#x}), expected {expected:e}", got.to_bits());
    }

    #[test]
    fn all_half_precision_values_are_widened_exactly() {
        for bits in 0..=u16::MAX {
            check(f16::from_bits(bits).widened(), f16::from_bits(bits).to_f32());
            check(bf16::from_bits(bits).widened(), bf16::from_bits(bits).to_f32());
            check(f16::all_widened(&[f16::from_bits(bits); 8])[7], f16::from_bits(bits).to_f32());
        }
    }
}

//! Conversion of f32 matrices to bf16 in the layouts of [`tile`](super::tile).
//!
//! Values are rounded to nearest even. Subnormal values become 0, and NaN stays NaN.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_loadu_epi16, _mm512_mask_storeu_epi32,
    _mm512_maskz_loadu_ps, _mm512_permutexvar_epi16, _mm512_setzero_ps,
};

use super::tile::{LANES, PANEL_COLUMNS, first_lanes};

/// The order that interleaves the two halves of a vector of 16-bit values.
const INTERLEAVED: [i16; 2 * LANES] = {
    let mut order = [0; 2 * LANES];
    let mut i = 0;
    while i < order.len() {
        order[i] = (i / 2 + i % 2 * LANES) as i16;
        i += 1;
    }
    order
};

/// Converts a row-major matrix to pairs of adjacent columns: `width.div_ceil(2)` pairs per row, in row-major order. An
/// odd last column is paired with zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn pair_columns(out: &mut [u32], values: &[f32], width: usize) {
    let n_pairs = width.div_ceil(2);
    for (out, row) in out.chunks_exact_mut(n_pairs).zip(values.chunks_exact(width)) {
        for (out, values) in out.chunks_mut(LANES).zip(row.chunks(2 * LANES)) {
            let (first, second) = values.split_at(values.len().min(LANES));
            store(out, converted(first, second));
        }
    }
}

/// Converts a row-major matrix to pairs of adjacent rows, in panels of `panel_columns` columns, which is a multiple of 16.
/// Each panel is in row-major order. An odd last row is paired with zeros. The padding of the last panel is zeroed up to a
/// multiple of 16 columns; the rest of it is not written.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn pair_rows(out: &mut [u32], values: &[f32], width: usize, panel_columns: usize) {
    let n_pairs = (values.len() / width).div_ceil(2);
    // SAFETY: `INTERLEAVED` has the 64 bytes that are read.
    let order = unsafe { _mm512_loadu_epi16(INTERLEAVED.as_ptr()) };
    // Rows are read completely, one after the other, because reading a panel's part of each row is slower.
    for (pair, rows) in values.chunks(2 * width).enumerate() {
        let (even, odd) = rows.split_at(width);
        for start in (0..width).step_by(LANES) {
            let columns = start..(start + LANES).min(width);
            let at = (start / panel_columns * n_pairs + pair) * panel_columns + start % panel_columns;
            let odd = odd.get(columns.clone()).unwrap_or(&[]);
            let halves = converted(&even[columns], odd);
            store(&mut out[at..at + LANES], _mm512_permutexvar_epi16(order, halves));
        }
    }
}

/// Copies pairs in row-major order, `[n_columns, n_pairs]`, to panels of [`PANEL_COLUMNS`] columns, transposed. The
/// padding of the last panel is not written.
pub(super) fn transpose(out: &mut [u32], pairs: &[u32], n_pairs: usize) {
    for (out, pairs) in out.chunks_mut(n_pairs * PANEL_COLUMNS).zip(pairs.chunks(n_pairs * PANEL_COLUMNS)) {
        for (column, pairs) in pairs.chunks_exact(n_pairs).enumerate() {
            for (place, pair) in out[column..].iter_mut().step_by(PANEL_COLUMNS).zip(pairs) {
                *place = *pair;
            }
        }
    }
}

/// Converts two times up to 16 values. Each half of the result is padded with zeros.
#[target_feature(enable = "avx512f,avx512bf16")]
fn converted(first: &[f32], second: &[f32]) -> __m512i {
    let values = _mm512_cvtne2ps_pbh(load(second), load(first));
    // SAFETY: both types have 64 bytes, and all bits are valid.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(values) }
}

/// Loads up to 16 values, padded with zeros.
#[target_feature(enable = "avx512f")]
fn load(values: &[f32]) -> __m512 {
    if values.is_empty() {
        return _mm512_setzero_ps();
    }
    // SAFETY: the mask excludes the values beyond the slice.
    unsafe { _mm512_maskz_loadu_ps(first_lanes(values.len()), values.as_ptr()) }
}

/// Stores the first 16 pairs, or as many as `out` has.
#[target_feature(enable = "avx512f")]
fn store(out: &mut [u32], pairs: __m512i) {
    // SAFETY: the mask excludes the pairs beyond the slice.
    unsafe { _mm512_mask_storeu_epi32(out.as_mut_ptr().cast(), first_lanes(out.len()), pairs) }
}

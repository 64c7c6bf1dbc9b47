//! Sums over equal ranges of the columns of a matrix: the sum of each range, or of all ranges; and the maximum of each row.
//!
//! ```text
//! each: out[i, k] = sum over the columns c of range k of x[i, c]        all: out[i, c] = sum over the ranges k of x[i, k * d + c]
//! ```
//!
//! * *Contract.* `out` is overwritten. Values are added in f32: of a range, first per lane of the vectors, then over the lanes in
//!   order; over ranges in their order. The division of long sums depends on the shape and the layout only.
//! * *Work distribution.* One unit per row and range, or per row and vector of columns.
//! * *Cost.* `F b` bytes per row for `F` columns of `b` bytes.

#![allow(clippy::eq_op, reason = "a comparison of a value with itself finds NaN in kernels")]

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::lanes::sum_of_lanes;
use crate::cube::launch::{self, Rows, launch_long_units, launch_units};
use crate::ops::range_sums::Ranges;

/// The number of units from which sums are not divided.
const MANY_UNITS: usize = 1 << 13;

/// The number of vectors that one unit may add.
const LEAST_VECTORS: usize = 64;

/// `width` and `stride` are in vectors.
#[cube(launch, address_type = "dynamic")]
fn sum_each_range<F: Float, N: Size>(
    x: &[Vector<F, N>],
    out: &mut [F],
    n_ranges: usize,
    width: usize,
    stride: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / n_ranges;
    let first = row * stride + (ABSOLUTE_POS - row * n_ranges) * width;
    let mut sums = Vector::<f32, N>::zeroed();
    for column in 0..width {
        sums += Vector::cast_from(x[first + column]);
    }
    out[ABSOLUTE_POS] = F::cast_from(sum_of_lanes::<N>(sums));
}

/// `width` and `stride` are in vectors.
#[cube(launch, address_type = "dynamic")]
fn sum_all_ranges<F: Float, N: Size>(
    x: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    n_ranges: usize,
    width: usize,
    stride: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let first = row * stride + (ABSOLUTE_POS - row * width);
    let mut sum = Vector::<f32, N>::zeroed();
    for range in 0..n_ranges {
        sum += Vector::cast_from(x[first + range * width]);
    }
    out[ABSOLUTE_POS] = Vector::cast_from(sum);
}

#[cube(launch, address_type = "dynamic")]
fn row_maxima_kernel<F: Float>(
    x: &[F],
    out: &mut [F],
    width: usize,
    stride: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let first = ABSOLUTE_POS * stride;
    let mut largest = f32::cast_from(x[first]);
    for column in 1..width {
        let value = f32::cast_from(x[first + column]);
        // The comparison of a value with itself is false for NaN, which must reach the result.
        largest = select(largest < value || value != value, value, largest);
    }
    out[ABSOLUTE_POS] = F::cast_from(largest);
}

/// Returns the maximum of each row, `[n, d] -> [n, 1]`; NaN if the row has one. One unit reads a row.
pub(super) fn row_maxima(x: CubeTensor) -> CubeTensor {
    let x = Rows::of(x);
    let tensor = x.tensor();
    let out = Rows::new(tensor, x.n_rows(), 1, tensor.dtype);
    if x.n_rows() * x.width() == 0 {
        return out.into_tensor();
    }
    launch_long_units!(
        row_maxima_kernel,
        tensor,
        x.n_rows(),
        x.buffer(1),
        out.buffer(1),
        x.width(),
        x.stride,
        launch::element(tensor)
    );
    out.into_tensor()
}

/// Returns the number of equal parts into which each of `n_sums` sums of `width` vectors is divided, so that few long sums are
/// distributed over many units.
fn n_parts(n_sums: usize, width: usize) -> usize {
    let mut n_parts = 1;
    while n_sums * n_parts < MANY_UNITS
        && LEAST_VECTORS < width / n_parts
        && (width / n_parts).is_multiple_of(2)
    {
        n_parts *= 2;
    }
    n_parts
}

/// Returns the sums, `[n, k * d] -> [n, k]` or `[n, d]`. A few long sums of f32 are computed in parts.
pub(super) fn sum_ranges(x: CubeTensor, ranges: Ranges) -> CubeTensor {
    let x = Rows::of(x);
    let tensor = x.tensor();
    let n_rows = x.n_rows();
    let n_ranges = ranges.n();
    let range_width = x.width() / n_ranges;
    let out = Rows::new(tensor, n_rows, ranges.n_sums(x.width()), tensor.dtype);
    if n_rows * out.width() == 0 {
        return out.into_tensor();
    }
    let vector_size = x.vector_size(&[range_width]);
    let width = range_width / vector_size;
    let n_parts = n_parts(n_rows * n_ranges, width);
    if matches!(ranges, Ranges::Each(_)) && tensor.dtype == DType::F32 && 1 < n_parts {
        return sum_ranges(sum_ranges(x.into_tensor(), Ranges::Each(n_ranges * n_parts)), ranges);
    }
    let stride = x.stride / vector_size;
    match ranges {
        Ranges::Each(_) => launch_long_units!(
            sum_each_range,
            tensor,
            n_rows * n_ranges,
            vector_size,
            x.buffer(vector_size),
            out.buffer(1),
            n_ranges,
            width,
            stride,
            launch::element(tensor)
        ),
        Ranges::All(_) => launch_units!(
            sum_all_ranges,
            tensor,
            n_rows * width,
            vector_size,
            x.buffer(vector_size),
            out.buffer(vector_size),
            n_ranges,
            width,
            stride,
            launch::element(tensor)
        ),
    }
    out.into_tensor()
}

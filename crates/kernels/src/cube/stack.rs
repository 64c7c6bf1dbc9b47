//! Rows below other rows, or above rows of zeros.
//!
//! * *Contract.* The result is a new tensor.
//! * *Work distribution.* One unit copies a vector of neighbouring values.
//! * *Cost.* `2 F b` bytes per row for `F` columns of `b` bytes.

use burn::tensor::Shape;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, launch_units};

/// Without `second`, the rows below `first` are zeros.
#[cube(launch, address_type = "dynamic")]
fn stack_kernel<F: Float, N: Size>(
    first: &[Vector<F, N>],
    second: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    #[comptime] has_second: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let mut value = Vector::<F, N>::zeroed();
    if ABSOLUTE_POS < first.len() {
        value = first[ABSOLUTE_POS];
    } else if comptime!(has_second) {
        value = second[ABSOLUTE_POS - first.len()];
    }
    out[ABSOLUTE_POS] = value;
}

/// Puts the rows of two matrices one below the other, `[n, d], [m, d] -> [n + m, d]`.
pub(super) fn stack_rows(first: CubeTensor, second: CubeTensor) -> CubeTensor {
    let n_rows = first.meta.shape()[0] + second.meta.shape()[0];
    stack(first, Some(second), n_rows)
}

/// Appends rows of zeros, `[n, d] -> [n_rows, d]`.
pub(super) fn pad_rows(rows: CubeTensor, n_rows: usize) -> CubeTensor {
    stack(rows, None, n_rows)
}

fn stack(first: CubeTensor, second: Option<CubeTensor>, n_rows: usize) -> CubeTensor {
    let first = into_contiguous(first);
    let second = second.map(into_contiguous);
    let width = first.meta.shape()[1];
    let out = launch::new_tensor(&first, Shape::new([n_rows, width]), first.dtype);
    if n_rows * width == 0 {
        return out;
    }
    let of_both = [Some(&first), second.as_ref()].into_iter().flatten();
    let vector_size = of_both
        .map(|rows| launch::vector_size(rows, &[launch::length(rows), n_rows * width]))
        .fold(usize::MAX, usize::min);
    launch_units!(
        stack_kernel,
        &first,
        n_rows * width / vector_size,
        vector_size,
        launch::vectors(&first, vector_size),
        launch::vectors(second.as_ref().unwrap_or(&first), vector_size),
        launch::vectors(&out, vector_size),
        second.is_some(),
        launch::element(&first)
    );
    out
}

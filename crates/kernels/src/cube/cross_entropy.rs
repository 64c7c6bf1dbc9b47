//! The cross entropy of rows and its gradient.
//!
//! ```text
//! loss = sum over the rows i of (log_sums[i] - (x[i, labels[i]] - maxima[i]))
//! maxima[i] = max over c of x[i, c]    log_sums[i] = log(sum over c of exp(x[i, c] - maxima[i]))
//! ```
//!
//! * *Contract.* The results are new tensors. The maximum of a row is subtracted before the exponentials, so that none
//!   overflows. The losses of the rows are [column sums](super::column_sums) of one column, so that the result is the
//!   same in every run.
//! * *Work distribution.* One unit per row, because rows are short and the rows of a batch few; in the gradient, one unit
//!   per value.
//! * *Cost.* `8 F` bytes per row of `F` columns, of which one half comes from the caches; the gradient reads and writes
//!   `8 F`. One launch and those of the sum, and one for the gradient.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::column_sums::column_sums;
use crate::cube::launch::{self, Rows, launch_long_units, launch_units};
use crate::ops::cross_entropy::CrossEntropy;

/// Computes the maximum, the log-sum and the loss of each row.
#[cube(launch, address_type = "dynamic")]
fn row_losses(
    x: &[f32],
    labels: &[u32],
    maxima: &mut [f32],
    log_sums: &mut [f32],
    losses: &mut [f32],
    width: usize,
    stride: usize,
) {
    let row = ABSOLUTE_POS;
    if row >= losses.len() {
        terminate!();
    }
    let start = row * stride;
    let mut largest = x[start];
    for column in 1..width {
        largest = max(largest, x[start + column]);
    }
    let mut sum = 0.0f32;
    for column in 0..width {
        sum += (x[start + column] - largest).exp();
    }
    let log_sum = sum.ln();
    maxima[row] = largest;
    log_sums[row] = log_sum;
    losses[row] = log_sum - (x[start + labels[row] as usize] - largest);
}

#[cube(launch, address_type = "dynamic")]
fn cross_entropy_adjoint_kernel(
    x: &[f32],
    labels: &[u32],
    maxima: &[f32],
    log_sums: &[f32],
    grad: &[f32],
    out: &mut [f32],
    width: usize,
    stride: usize,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let probability = (x[row * stride + column] - maxima[row] - log_sums[row]).exp();
    let is_label = labels[row] == column as u32;
    out[ABSOLUTE_POS] = (probability - f32::cast_from(is_label)) * grad[0];
}

/// Computes the loss, `[n, F], [n] -> [1]`.
pub(super) fn cross_entropy(x: CubeTensor, labels: CubeTensor) -> CrossEntropy<CubeBackend> {
    let x = Rows::of(x);
    let n_rows = x.n_rows();
    let [maxima, log_sums, losses] =
        [(); 3].map(|()| launch::new_tensor(x.tensor(), Shape::new([n_rows]), DType::F32));
    if n_rows == 0 {
        return CrossEntropy { loss: launch::upload_as(x.tensor(), &[0.0f32], DType::F32), maxima, log_sums };
    }
    launch_long_units!(
        row_losses,
        x.tensor(),
        n_rows,
        x.buffer(1),
        launch::buffer(&into_contiguous(labels)),
        launch::buffer(&maxima),
        launch::buffer(&log_sums),
        launch::buffer(&losses),
        x.width(),
        x.stride
    );
    let losses = CubeBackend::float_reshape(losses, Shape::new([n_rows, 1]));
    let loss = CubeBackend::float_reshape(column_sums(losses), Shape::new([1]));
    CrossEntropy { loss, maxima, log_sums }
}

/// Computes the gradient of `x` from the gradient of the loss, `[1] -> [n, F]`.
pub(super) fn cross_entropy_adjoint(
    x: CubeTensor,
    labels: CubeTensor,
    of_loss: CrossEntropy<CubeBackend>,
    grad: CubeTensor,
) -> CubeTensor {
    let x = Rows::of(x);
    let n_rows = x.n_rows();
    let width = x.width();
    let out = Rows::new(x.tensor(), n_rows, width, DType::F32);
    if n_rows * width == 0 {
        return out.into_tensor();
    }
    launch_units!(
        cross_entropy_adjoint_kernel,
        x.tensor(),
        n_rows * width,
        x.buffer(1),
        launch::buffer(&into_contiguous(labels)),
        launch::buffer(&of_loss.maxima),
        launch::buffer(&of_loss.log_sums),
        launch::buffer(&into_contiguous(grad)),
        out.buffer(1),
        width,
        x.stride
    );
    out.into_tensor()
}

//! Ops on the columns of a matrix: their sums, rows that are combined with all rows, and batch normalisation.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::device::devices::is_cpu;
use crate::ops::backend::BlockOps;
use crate::ops::batch_norm::Normalized;
use crate::ops::ranges::repeat_columns;

/// Sums the rows: the sum of each column.
///
/// The order of the additions depends only on the shape and the layout of `x`. On a GPU, the op takes one launch or two,
/// and many rows are distributed over all multiprocessors; Burn's sum over the first dimension runs on one.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_kernels::{ops, to_vec_f32};
/// let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 5.0]], &Device::flex());
/// assert_eq!(to_vec_f32(ops::column_sums(x)), [4.0, 7.0]);
/// ```
///
/// # Shapes
/// `x` is `[n, d]`, the result `[1, d]`.
pub fn column_sums(x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as BlockOps>::column_sums(x.into_dispatch()))
}

/// Adds a row to all rows, as `x + row` does. Except on the CPU, the gradient of the row is one of [`column_sums`].
///
/// # Shapes
/// `x` and the result are `[n, d]`, `row` is `[1, d]`, or `[1, 1]` to add the same value to all columns.
///
/// # Panics
/// Panics if the row has another shape.
pub fn add_row(x: Tensor<2>, row: Tensor<2>) -> Tensor<2> {
    let row = expanded(&x, row);
    x + row
}

/// Multiplies all rows by a row, value by value, as `x * row` does. Except on the CPU, the gradient of the row is one of
/// [`column_sums`].
///
/// # Shapes
/// Same as [`add_row`].
///
/// # Panics
/// Same as [`add_row`].
pub fn mul_row(x: Tensor<2>, row: Tensor<2>) -> Tensor<2> {
    let row = expanded(&x, row);
    x * row
}

/// Returns a row as an operand of an operation on all rows of `x`.
fn expanded(x: &Tensor<2>, row: Tensor<2>) -> Tensor<2> {
    let [n_rows, width] = x.dims();
    let [row_rows, row_width] = row.dims();
    assert!(
        row_rows == 1 && (row_width == width || row_width == 1),
        "the row is [{row_rows}, {row_width}], expected [1, {width}] or [1, 1]"
    );
    // On the CPU, Burn broadcasts the row without a copy and sums its gradient in parallel.
    if is_cpu(&x.device()) {
        return row;
    }
    let row = if row_width == 1 { repeat_columns(row, width) } else { row };
    Tensor::from_dispatch(<Dispatch as BlockOps>::expand_row(row.into_dispatch(), n_rows))
}

/// The results of [`batch_norm`].
#[derive(Debug, Clone)]
pub struct BatchNormOutput {
    /// The normalised rows, `[n, d]`.
    pub rows: Tensor<2>,
    /// The mean of each column, `[d]`. No gradient flows through it.
    pub mean: Tensor<1>,
    /// The biased variance of each column, `[d]`. No gradient flows through it.
    pub variance: Tensor<1>,
}

/// Moves statistics towards those of a batch, `old * (1 - share) + new * share`, in one launch on a GPU. The result carries no
/// gradient.
///
/// # Shapes
/// All are `[d]`.
///
/// # Panics
/// Panics if the shapes differ.
pub fn moving_average(old: Tensor<1>, new: Tensor<1>, share: f64) -> Tensor<1> {
    assert_eq!(old.dims(), new.dims(), "the shapes of the statistics differ");
    let moved = <Dispatch as BlockOps>::moving_average(old.into_dispatch(), new.into_dispatch(), share);
    Tensor::from_dispatch(moved)
}

/// Normalizes each column by its mean and biased variance, then multiplies it by `gamma` and adds `beta` (Ioffe and
/// Szegedy 2015, algorithm 1), as Burn's `batch_norm_train`. On a GPU, means, variances and gradients are
/// [`column_sums`].
///
/// # Shapes
/// `x` is `[n, d]`, `gamma` and `beta` are `[d]`.
///
/// # Panics
/// Panics if there are no rows, or if `gamma` and `beta` do not have one value per column.
pub fn batch_norm(x: Tensor<2>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> BatchNormOutput {
    let [n_rows, width] = x.dims();
    assert!(0 < n_rows, "x has no rows, whose mean would be undefined");
    for parameter in [&gamma, &beta] {
        assert_eq!(
            parameter.dims(),
            [width],
            "gamma and beta should have a value for each of {width} columns"
        );
    }
    let Normalized { rows, means, variances } = <Dispatch as BlockOps>::normalize_columns(
        x.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        epsilon,
    );
    BatchNormOutput {
        rows: Tensor::from_dispatch(rows),
        mean: Tensor::from_dispatch(means),
        variance: Tensor::from_dispatch(variances),
    }
}

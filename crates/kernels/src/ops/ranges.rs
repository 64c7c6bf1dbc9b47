//! Ops within rows: sums over equal ranges of columns, such as those of attention heads, columns that are combined with all
//! columns, and the logarithm of the softmax.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::device::devices::is_cpu;
use crate::ops::backend::BlockOps;
use crate::ops::range_sums::Ranges;

/// Sums each of `n_ranges` equal ranges of columns, as `reshape` and `sum_dim` do. On a GPU, all multiprocessors add.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_kernels::{ops, to_vec_f32};
/// let x = Tensor::<2>::from_data([[1.0, 2.0, 3.0, 5.0]], &Device::flex());
/// assert_eq!(to_vec_f32(ops::range_sums(x, 2)), [3.0, 8.0]);
/// ```
///
/// # Shapes
/// `x` is `[n, n_ranges * d]`, the result `[n, n_ranges]`.
///
/// # Panics
/// Panics unless the ranges are equal.
pub fn range_sums(x: Tensor<2>, n_ranges: usize) -> Tensor<2> {
    let width = range_width(&x, n_ranges);
    if is_cpu(&x.device()) {
        let [n_rows, _] = x.dims();
        return x.reshape([n_rows, n_ranges, width]).sum_dim(2).squeeze_dim(2);
    }
    sums(x, Ranges::Each(n_ranges))
}

/// Returns the mean of `n_ranges` equal ranges of columns, as `reshape` and `mean_dim` do. On a GPU, all multiprocessors add.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_kernels::{ops, to_vec_f32};
/// let x = Tensor::<2>::from_data([[1.0, 2.0, 3.0, 6.0]], &Device::flex());
/// assert_eq!(to_vec_f32(ops::mean_of_ranges(x, 2)), [2.0, 4.0]);
/// ```
///
/// # Shapes
/// `x` is `[n, n_ranges * d]`, the result `[n, d]`.
///
/// # Panics
/// Panics unless the ranges are equal.
pub fn mean_of_ranges(x: Tensor<2>, n_ranges: usize) -> Tensor<2> {
    let width = range_width(&x, n_ranges);
    if is_cpu(&x.device()) {
        let [n_rows, _] = x.dims();
        return x.reshape([n_rows, n_ranges, width]).mean_dim(1).squeeze_dim(1);
    }
    sums(x, Ranges::All(n_ranges)).div_scalar(n_ranges as f64)
}

/// Repeats all columns `n` times, side by side. The gradient is the sum of the repetitions; on a GPU, all multiprocessors add.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kiln_kernels::{ops, to_vec_f32};
/// let x = Tensor::<2>::from_data([[1.0, 2.0]], &Device::flex());
/// assert_eq!(to_vec_f32(ops::repeat_columns(x, 2)), [1.0, 2.0, 1.0, 2.0]);
/// ```
///
/// # Shapes
/// `x` is `[n_rows, d]`, the result `[n_rows, n * d]`.
pub fn repeat_columns(x: Tensor<2>, n: usize) -> Tensor<2> {
    let [n_rows, width] = x.dims();
    if is_cpu(&x.device()) && width == 1 {
        return x.expand([n_rows, n]);
    }
    if is_cpu(&x.device()) {
        return x.reshape([n_rows, 1, width]).expand([n_rows, n, width]).reshape([n_rows, n * width]);
    }
    let repeated = <Dispatch as BlockOps>::spread_ranges(x.into_dispatch(), Ranges::All(n), n * width);
    Tensor::from_dispatch(repeated)
}

/// Multiplies all columns by a column, value by value, as `x * column` does. Except on the CPU, the gradient of the column is
/// one of [`range_sums`].
///
/// # Shapes
/// `x` and the result are `[n, d]`, `column` is `[n, 1]`.
///
/// # Panics
/// Panics if the column has another shape.
pub fn mul_column(x: Tensor<2>, column: Tensor<2>) -> Tensor<2> {
    let [n_rows, _] = x.dims();
    assert_eq!(column.dims(), [n_rows, 1], "the column should be [{n_rows}, 1]");
    let column = spread(column, &x);
    x * column
}

/// Computes the logarithm of the softmax of each row, as Burn's function. On a GPU, all multiprocessors add, also in the
/// gradient.
///
/// # Shapes
/// `x` and the result are `[n, d]`.
pub fn log_softmax(x: Tensor<2>) -> Tensor<2> {
    if is_cpu(&x.device()) {
        return burn::tensor::activation::log_softmax(x, 1);
    }
    // Subtracting the maximum does not change the result, so no gradient needs to flow through it.
    let maxima = <Dispatch as BlockOps>::row_maxima(x.clone().into_dispatch());
    let shifted = x.clone() - spread(Tensor::from_dispatch(maxima), &x);
    let log_sums = range_sums(shifted.clone().exp(), 1).log();
    shifted - spread(log_sums, &x)
}

/// Returns a column as an operand of an operation on all columns of `x`.
pub(crate) fn spread(column: Tensor<2>, x: &Tensor<2>) -> Tensor<2> {
    // On the CPU, Burn broadcasts the column without a copy and sums its gradient in parallel.
    if is_cpu(&x.device()) {
        return column;
    }
    let [_, width] = x.dims();
    let spread = <Dispatch as BlockOps>::spread_ranges(column.into_dispatch(), Ranges::Each(1), width);
    Tensor::from_dispatch(spread)
}

fn sums(x: Tensor<2>, ranges: Ranges) -> Tensor<2> {
    Tensor::from_dispatch(<Dispatch as BlockOps>::sum_ranges(x.into_dispatch(), ranges))
}

fn range_width(x: &Tensor<2>, n_ranges: usize) -> usize {
    let [_, width] = x.dims();
    assert!(
        n_ranges != 0 && width.is_multiple_of(n_ranges),
        "x has {width} columns, expected a multiple of the {n_ranges} ranges"
    );
    width / n_ranges
}

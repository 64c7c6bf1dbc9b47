//! Ops on the columns of a matrix: their sums, rows that are combined with all rows, and batch normalisation.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::device::devices::is_cpu;
use crate::ops::backend::BlockOps;
use crate::ops::batch_norm::{NormalizationInput, NormalizationSettings};
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

/// The parameters and settings of a [`batch_norm`]. Tensors have a value per column, `[d]`.
#[derive(Debug, Clone)]
pub struct BatchNorm {
    /// The bias that is added to the rows first. The normalised rows do not depend on it, so its gradient is 0; the moving
    /// average of the means does.
    pub bias: Tensor<1>,
    /// The scale.
    pub gamma: Tensor<1>,
    /// The shift.
    pub beta: Tensor<1>,
    /// The moving average of the means before this step.
    pub moving_mean: Tensor<1>,
    /// The moving average of the biased variances before this step.
    pub moving_variance: Tensor<1>,
    /// The weight of this step's statistics in the moving averages.
    pub momentum: f64,
    /// The number that is added to the variances.
    pub epsilon: f64,
    /// True if a ReLU follows.
    pub relu: bool,
}

/// The results of [`batch_norm`].
#[derive(Debug, Clone)]
pub struct BatchNormOutput {
    /// The normalised rows, `[n, d]`.
    pub rows: Tensor<2>,
    /// The moving average of the means after this step, `[d]`. No gradient flows through it.
    pub moving_mean: Tensor<1>,
    /// The moving average of the biased variances after this step, `[d]`. No gradient flows through it.
    pub moving_variance: Tensor<1>,
}

/// Adds a bias to all rows, normalizes each column by its mean and biased variance, multiplies it by `gamma` and adds `beta`
/// (Ioffe and Szegedy 2015, algorithm 1), as Burn's `batch_norm_train`, with an optional ReLU. On a GPU, this takes three
/// launches for many rows, and so do its gradients.
///
/// # Shapes
/// `x` is `[n, d]`.
///
/// # Panics
/// Panics if there are no rows, or if a parameter does not have one value per column, or another element type.
pub fn batch_norm(x: Tensor<2>, norm: BatchNorm) -> BatchNormOutput {
    let [n_rows, width] = x.dims();
    assert!(0 < n_rows, "x has no rows, whose mean would be undefined");
    let BatchNorm { bias, gamma, beta, moving_mean, moving_variance, momentum, epsilon, relu } = norm;
    for parameter in [&bias, &gamma, &beta, &moving_mean, &moving_variance] {
        assert_eq!(
            parameter.dims(),
            [width],
            "the parameters should have a value for each of {width} columns"
        );
        assert_eq!(
            parameter.dtype(),
            x.dtype(),
            "the element types of x and the parameters differ: cast some of them"
        );
    }
    let input = NormalizationInput {
        x: x.into_dispatch(),
        bias: bias.into_dispatch(),
        gamma: gamma.into_dispatch(),
        beta: beta.into_dispatch(),
        moving_mean: moving_mean.into_dispatch(),
        moving_variance: moving_variance.into_dispatch(),
    };
    let settings = NormalizationSettings { epsilon, momentum, has_relu: relu };
    let normalized = <Dispatch as BlockOps>::normalize_columns(input, settings);
    BatchNormOutput {
        rows: Tensor::from_dispatch(normalized.rows),
        moving_mean: Tensor::from_dispatch(normalized.moving_mean),
        moving_variance: Tensor::from_dispatch(normalized.moving_variance),
    }
}

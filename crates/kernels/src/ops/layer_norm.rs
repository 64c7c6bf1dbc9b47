//! Layer normalisation: of each row by its own mean and variance.

use burn::tensor::Tensor;

use crate::ops::columns::{add_row, mul_row};
use crate::ops::ranges::{range_sums, spread};

/// Normalizes each row by its mean and biased variance, then multiplies it by `gamma` and adds `beta` (Ba, Kiros and Hinton
/// 2016, equation 4). On a GPU, all multiprocessors add, also in the gradients.
///
/// # Shapes
/// `x` and the result are `[n, d]`, `gamma` and `beta` are `[d]`.
///
/// # Panics
/// Panics if `gamma` or `beta` do not have one value per column.
pub fn layer_norm(x: Tensor<2>, gamma: Tensor<1>, beta: Option<Tensor<1>>, epsilon: f64) -> Tensor<2> {
    let centered = x.clone() - spread(mean(x.clone()), &x);
    let variances = mean(centered.clone() * centered.clone());
    let deviations = spread((variances + epsilon).sqrt(), &x);
    let rows = mul_row(centered / deviations, gamma.unsqueeze());
    match beta {
        Some(beta) => add_row(rows, beta.unsqueeze()),
        None => rows,
    }
}

/// Returns the mean of each row, `[n, 1]`.
fn mean(x: Tensor<2>) -> Tensor<2> {
    let [_, width] = x.dims();
    range_sums(x, 1).div_scalar(width as f64)
}

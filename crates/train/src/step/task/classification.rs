//! The loss and the metrics that node and graph classification share.

use burn::tensor::Tensor;
use kiln_kernels::ops;

use crate::step::task::StepOutput;
use crate::step::task::metric_sums::MetricSums;

/// A classifier's prediction for one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The node's id; for graph classification, the graph's position in its set.
    pub item: u32,
    /// The true class.
    pub label: u32,
    /// The class with the largest output; the first one in case of a tie. `None` if an output is not finite.
    pub predicted: Option<u32>,
}

/// Computes the cross entropy of the items' classes, summed with equal weights.
///
/// # Panics
/// Panics if a class has no output.
pub(crate) fn cross_entropy(outputs: Tensor<2>, labels: &[i32]) -> StepOutput {
    let [n_items, width] = outputs.dims();
    let largest = labels.iter().max().map_or(0, |&class| class as usize);
    assert!(
        largest < width,
        "an item has class {largest}, but the model has {width} outputs, expected one per class"
    );
    let loss_sum = ops::cross_entropy(outputs.clone(), labels);
    StepOutput { outputs, loss_sum, weight: n_items as f64 }
}

/// Sets the numbers of items and of correct predictions, without items whose outputs are not finite.
pub(crate) fn count(outputs: &Tensor<2>, labels: &[i32], counts: &mut MetricSums) {
    let [_, n_classes] = outputs.dims();
    let values = kiln_kernels::to_vec_f32(outputs.clone());
    for (row, &label) in values.chunks_exact(n_classes).zip(labels) {
        if let Some(class) = predicted_class(row) {
            counts.hits += u64::from(class == label as u32);
            counts.total += 1;
        }
    }
}

/// Returns true if all values are finite.
pub(crate) fn is_finite(row: &[f32]) -> bool {
    row.iter().all(|value| value.is_finite())
}

/// Returns true if a row of scores has a class: no score is NaN, and the largest is finite. A class of the score -inf is one
/// that the model rules out.
pub(crate) fn has_class(row: &[f32]) -> bool {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    largest.is_finite() && !row.iter().any(|score| score.is_nan())
}

/// Returns the index of the largest value; the first one in case of a tie. `None` without a class ([`has_class`]).
pub(crate) fn predicted_class(row: &[f32]) -> Option<u32> {
    if !has_class(row) {
        return None;
    }
    let mut best = 0;
    for (class, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = class;
        }
    }
    Some(best as u32)
}

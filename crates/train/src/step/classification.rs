//! The loss and the metrics that node and graph classification share.

use burn::tensor::Tensor;
use kiln_kernels::ops;

use crate::step::metric_sums::MetricSums;
use crate::step::task::StepOutput;

/// A classifier's prediction for one item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The node's id; for graph classification, the graph's position in its set.
    pub item: u32,
    /// The true class.
    pub label: u32,
    /// The class with the largest output; the first one in case of a tie.
    pub predicted: u32,
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

/// Sets the numbers of items and of correct predictions.
pub(crate) fn count(outputs: &Tensor<2>, labels: &[i32], counts: &mut MetricSums) {
    let [_, n_classes] = outputs.dims();
    let values = kiln_kernels::to_vec_f32(outputs.clone());
    let said = values.chunks_exact(n_classes).map(predicted_class).zip(labels);
    counts.hits = said.filter(|&(predicted, &label)| predicted == label as u32).count() as u64;
    counts.total = labels.len() as u64;
}

/// Returns the index of the largest value; the first one in case of a tie.
pub(crate) fn predicted_class(row: &[f32]) -> u32 {
    let mut best = 0;
    for (class, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = class;
        }
    }
    best as u32
}

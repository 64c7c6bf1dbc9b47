//! Tests of the cross entropy.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use kiln_kernels::is_cpu;
use kiln_kernels::ops;
use kiln_kernels::testing::{Launches, check_close, device, launches_of, ramp, values};

/// The relative tolerance of a loss and of its gradients.
const TOLERANCE: f32 = 1e-6;

/// Returns the loss and the gradient of each value, computed in float64.
fn expected(x: &[f32], n_classes: usize, labels: &[i32]) -> (f32, Vec<f32>) {
    let (mut loss, mut gradient) = (0.0, Vec::new());
    for (row, label) in x.chunks(n_classes).zip(labels) {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let powers: Vec<f64> = row.iter().map(|value| f64::from(value - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        loss += sum.ln() + f64::from(largest) - f64::from(row[*label as usize]);
        let is_label = |class: usize| f64::from(u8::from(class == *label as usize));
        gradient
            .extend(powers.iter().enumerate().map(|(class, power)| (power / sum - is_label(class)) as f32));
    }
    (loss as f32, gradient)
}

#[test]
fn losses_and_gradients_match_the_formula() {
    let device = device();
    for (shape, factor) in [([1, 1], 1.0), ([3, 2], 1.0), ([64, 7], 1.0), ([65, 47], 3.0), ([5000, 3], 1.0)] {
        let labels: Vec<i32> = (0..shape[0]).map(|row| (row * 5 % shape[1]) as i32).collect();
        let x: Tensor<2> = (ramp(shape, &device) * factor).autodiff().require_grad();
        let mut results = Vec::new();
        let launches = launches_of(|| {
            let loss = ops::cross_entropy(x.clone(), &labels);
            let gradients = (loss.clone() * 0.5).sum().backward();
            let gradient = x.grad(&gradients).expect("the rows should have a gradient");
            results = vec![values(loss), values(gradient)];
        });
        // The CPU runs Burn's operations.
        let direct = if is_cpu(&device) { 0 } else { 2 };
        assert_eq!(launches, Launches { direct, reference: 0 }, "{shape:?}");
        let (loss, gradient) = expected(&values(x), shape[1], &labels);
        let relative =
            |values: &[f32], scale: f32| values.iter().map(|value| value / scale).collect::<Vec<_>>();
        check_close(&relative(&results[0], loss.max(1.0)), &[loss / loss.max(1.0)], TOLERANCE);
        check_close(&relative(&results[1], 0.5), &gradient, TOLERANCE);
    }
}

#[test]
fn losses_of_rows_with_gaps_large_values_and_no_rows() {
    let device = device();
    let wide: Tensor<2> = ramp([10, 8], &device);
    let labels: Vec<i32> = (0..10).map(|row| row % 3).collect();
    let narrow = wide.clone().slice([0..10, 2..5]);
    let copied: Vec<f32> = values(wide).chunks(8).flat_map(|row| row[2..5].to_vec()).collect();
    let (loss, _) = expected(&copied, 3, &labels);
    check_close(&values(ops::cross_entropy(narrow, &labels)), &[loss], 1e-5);

    let large = Tensor::<2>::from_data(TensorData::from([[1e30f32, 0.0], [-1e30, -1e30]]), &device);
    let loss = values(ops::cross_entropy(large, &[0, 1]));
    check_close(&loss, &[2.0f32.ln()], TOLERANCE);

    let none = Tensor::<2>::zeros([0, 4], &device);
    assert_eq!(values(ops::cross_entropy(none, &[])), [0.0]);
}

/// Untracked losses, tracked losses and the composition of Burn's operations agree.
#[test]
fn losses_agree_with_those_of_burn() {
    let device = device();
    let x: Tensor<2> = ramp([300, 11], &device);
    let labels: Vec<i32> = (0..300).map(|row| row % 11).collect();
    let classes = Tensor::<2, Int>::from_data(TensorData::new(labels.clone(), [300, 1]), &device);
    let of_burn = values(log_softmax(x.clone(), 1).gather(1, classes).sum().neg());
    let untracked = values(ops::cross_entropy(x.clone(), &labels));
    let tracked = values(ops::cross_entropy(x.autodiff().require_grad(), &labels));
    assert_eq!(untracked, tracked);
    check_close(&[untracked[0] / of_burn[0]], &[1.0], TOLERANCE);
}

#[test]
#[should_panic(expected = "a row has class 3, but x has 3 columns")]
fn rejects_a_class_without_a_column() {
    let _ = ops::cross_entropy(ramp([2, 3], &device()), &[0, 3]);
}

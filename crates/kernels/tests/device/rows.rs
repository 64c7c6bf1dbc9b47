//! Tests of gathering rows, broadcasting rows to segments, and softmax over segments.

use burn::tensor::Tensor;
use kiln_kernels::testing::{Launches, check_close, check_gradient, device, launches_of, ramp, values};
use kiln_kernels::{DeviceRows, DeviceSegments, ops};

/// Segments of 0, 3, 0, 1, 2 and 0 rows.
const OFFSETS: [u32; 7] = [0, 0, 3, 3, 4, 6, 6];

fn six_rows() -> DeviceSegments {
    DeviceSegments::upload(&OFFSETS, &device())
}

#[test]
fn gather_rows_copies_the_indexed_rows() {
    let device = device();
    let numbers = [4, 0, 4, 2, 2, 2];
    for width in [1, 3, 100] {
        let x: Tensor<2> = ramp([5, width], &device);
        let result = ops::gather_rows(&DeviceRows::upload(&numbers, 5, &device), x.clone());
        assert_eq!(result.dims(), [6, width]);
        let x = values(x);
        let expected: Vec<f32> =
            numbers.iter().flat_map(|&row| x[row as usize * width..][..width].to_vec()).collect();
        assert_eq!(values(result), expected);
    }
}

#[test]
fn gather_rows_launches_more_than_65536_cubes() {
    // A cube has eight planes on a GPU, 256 units with planes of 32. On a CPU it has one unit per core, at most 64 here. More rows
    // would exceed the 128 MiB to which Vulkan drivers may limit a buffer.
    let on_gpu = std::env::var("KILN_DEVICE").is_ok_and(|name| !name.contains("cpu"));
    let n_rows = if on_gpu { 70_000 * 256 } else { 70_000 * 64 };
    let device = device();
    let numbers: Vec<u32> = (0..n_rows).map(|row: u32| row.wrapping_mul(2_654_435_769) >> 30).collect();
    let x = Tensor::<2>::from_data([[1.0], [2.0], [3.0], [4.0]], &device);
    let result = values(ops::gather_rows(&DeviceRows::upload(&numbers, 4, &device), x));
    assert!(result.iter().zip(&numbers).all(|(value, row)| *value == (row + 1) as f32));
}

#[test]
fn the_gradient_of_gathered_rows_sums_over_their_copies() {
    let device = device();
    let rows = DeviceRows::upload(&[4, 0, 4, 2, 2, 2], 5, &device);
    check_gradient(ramp([5, 3], &device), |x| ops::gather_rows(&rows, x));
    let x = Tensor::<2>::zeros([5, 1], &device.autodiff()).require_grad();
    let grads = ops::gather_rows(&rows, x.clone()).sum().backward();
    assert_eq!(values(x.grad(&grads).expect("the gradient should exist")), [1.0, 0.0, 3.0, 0.0, 2.0]);
}

#[test]
fn accepts_an_empty_list_of_indices_and_an_empty_matrix() {
    let device = device();
    let none = DeviceRows::upload(&[], 3, &device);
    assert!(none.is_empty());
    assert_eq!(ops::gather_rows(&none, ramp([3, 2], &device)).dims(), [0, 2]);
    let of_nothing = DeviceRows::upload(&[], 0, &device);
    assert_eq!(ops::gather_rows(&of_nothing, Tensor::zeros([0, 2], &device)).dims(), [0, 2]);
}

#[test]
#[should_panic(expected = "row index 3 at position 1 is out of range for 3 rows")]
fn rejects_a_row_index_out_of_range() {
    DeviceRows::upload(&[2, 3], 3, &device());
}

#[test]
#[should_panic(expected = "x has 4 rows, but the row indices are for 3")]
fn rejects_a_matrix_with_another_number_of_rows() {
    let device = device();
    ops::gather_rows(&DeviceRows::upload(&[2], 3, &device), ramp([4, 1], &device));
}

#[test]
fn broadcast_segments_repeats_the_row_of_each_segment() {
    let device = device();
    let x = Tensor::<2>::from_data([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]], &device);
    let result = ops::broadcast_segments(&six_rows(), x);
    assert_eq!(values(result), [2.0, 2.0, 2.0, 4.0, 5.0, 5.0]);
    check_gradient(ramp([6, 3], &device), |x| ops::broadcast_segments(&six_rows(), x));
}

#[test]
fn softmax_normalises_each_segment() {
    let device = device();
    let x: Tensor<2> = ramp([6, 3], &device) * 5.0;
    let result = values(ops::segment_softmax(&six_rows(), x.clone()));
    let x = values(x);
    let mut expected = vec![0.0; 18];
    for segment in OFFSETS.windows(2) {
        let rows = segment[0] as usize..segment[1] as usize;
        for column in 0..3 {
            let power = |row: usize| f64::from(x[3 * row + column]).exp();
            let sum: f64 = rows.clone().map(power).sum();
            rows.clone().for_each(|row| expected[3 * row + column] = (power(row) / sum) as f32);
        }
    }
    check_close(&result, &expected, 1e-6);
    check_gradient(ramp([6, 2], &device), |x| ops::segment_softmax(&six_rows(), x));
}

#[test]
fn softmax_of_large_scores_stays_finite() {
    let device = device();
    let x = Tensor::<2>::from_data([[1e30], [1e30], [-1e30], [7e8], [-3e38], [-3e38]], &device);
    assert_eq!(values(ops::segment_softmax(&six_rows(), x)), [0.5, 0.5, 0.0, 1.0, 0.5, 0.5]);
}

#[test]
fn every_device_runs_the_backend_implementation() {
    let device = device();
    let x: Tensor<2> = ramp([6, 3], &device);
    let rows = DeviceRows::upload(&[1, 1], 6, &device);
    let run = || drop(ops::gather_rows(&rows, x.clone()));
    assert_eq!(launches_of(run), Launches { direct: 1, reference: 0 });
    let run = || drop(ops::broadcast_segments(&six_rows(), x.clone()));
    assert_eq!(launches_of(run), Launches { direct: 1, reference: 0 });
    // The softmax runs four ops: the maximum, the sum, and a broadcast of each.
    let run = || drop(ops::segment_softmax(&six_rows(), x.clone()));
    assert_eq!(launches_of(run), Launches { direct: 4, reference: 0 });
}

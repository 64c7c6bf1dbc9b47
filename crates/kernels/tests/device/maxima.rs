//! Tests of maxima over segments that are split into chunks, with ties and NaN.

use burn::tensor::{Device, Tensor, TensorData};
use kiln_kernels::ops::{self, Aggregation, Reduction};
use kiln_kernels::testing::{check_close, device, ramp, reference, values};
use kiln_kernels::{DeviceBlock, DeviceSegments};

use super::common::with_hub;

/// Lengths of segments: shorter than, equal to and longer than a chunk of 512 rows, so that segments begin and end
/// within chunks and at their borders.
const LENGTHS: [usize; 9] = [3, 1500, 0, 512, 1, 513, 511, 2048, 40];

/// Returns the maxima of one column and the gradient, which is the number of maxima that came from each row.
fn maxima(rows: &[f32], lengths: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let mut offsets = vec![0];
    for length in lengths {
        offsets.push(offsets[offsets.len() - 1] + *length as u32);
    }
    let device = device().autodiff();
    let segments = DeviceSegments::upload(&offsets, &device);
    let x = Tensor::<2>::from_data(TensorData::new(rows.to_vec(), [rows.len(), 1]), &device).require_grad();
    let maxima = ops::segment_reduce(&segments, x.clone(), Reduction::Max);
    let gradient = x.grad(&maxima.clone().sum().backward()).expect("the rows should have a gradient");
    (values(maxima), values(gradient))
}

/// Returns the expected maxima and gradient, computed row by row on the host.
fn expected(rows: &[f32], lengths: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let (mut found, mut gradient, mut start) = (Vec::new(), vec![0.0; rows.len()], 0);
    for &length in lengths {
        let mut best = None;
        for row in start..start + length {
            let is_better = |best: usize| rows[best] < rows[row] || rows[row].is_nan();
            if best.is_none_or(is_better) {
                best = Some(row);
            }
        }
        found.push(best.map_or(0.0, |row| rows[row]));
        if let Some(row) = best {
            gradient[row] += 1.0;
        }
        start += length;
    }
    (found, gradient)
}

fn check(rows: &[f32]) {
    let (got, expected) = (maxima(rows, &LENGTHS), expected(rows, &LENGTHS));
    for (what, got, expected) in [("maximum", &got.0, &expected.0), ("gradient", &got.1, &expected.1)] {
        assert_eq!(got.len(), expected.len(), "{what}");
        for (place, (got, expected)) in got.iter().zip(expected).enumerate() {
            let are_no_numbers = got.is_nan() && expected.is_nan();
            assert!(are_no_numbers || got == expected, "{what} {place}: {got}, expected {expected}");
        }
    }
}

fn n_rows() -> usize {
    LENGTHS.iter().sum()
}

#[test]
fn chunked_maxima_equal_those_of_whole_segments() {
    for factor in [1_u32, 2_654_435_769, 40_503] {
        let value = |row: u32| (row.wrapping_mul(factor) >> 12) as f32 - 5e5;
        check(&(0..n_rows() as u32).map(value).collect::<Vec<_>>());
    }
}

#[test]
fn the_first_of_equal_maxima_wins_in_any_chunk() {
    check(&vec![-2.0; n_rows()]);
    check(&(0..n_rows()).map(|row| -((row % 700) as f32 / 200.0).floor()).collect::<Vec<_>>());
}

#[test]
fn nan_propagates_from_any_chunk() {
    for places in [vec![700, 1300], vec![3, 4, 5], vec![1502, 2600, 3100, n_rows() - 1]] {
        let mut rows: Vec<f32> = (0..n_rows()).map(|row| row as f32).collect();
        places.into_iter().for_each(|place| rows[place] = f32::NAN);
        check(&rows);
    }
}

/// The hub has 40 chunks.
#[test]
fn maxima_of_weighted_rows_of_a_hub_and_their_gradients_equal_the_reference() {
    type Op = fn(&DeviceBlock, Tensor<2>, Aggregation) -> Tensor<2>;
    let host = with_hub();
    let run = |device: Device, op: Op| {
        let device = device.autodiff();
        let block = DeviceBlock::upload(&host, &device);
        let x = ramp([host.n_src(), 5], &device).require_grad();
        let weights = (ramp([host.n_edges()], &device) * -0.7 + 0.05).require_grad();
        let of_edges = Some(weights.clone().into());
        let maxima = op(&block, x.clone(), Aggregation { weights: of_edges, ..Reduction::Max.into() });
        let grads = (maxima.clone() * ramp(maxima.dims(), &device)).sum().backward();
        let of_x = x.grad(&grads).expect("the rows should have a gradient");
        let of_weights = weights.grad(&grads).expect("the weights should have a gradient");
        [values(maxima), values(of_x), values(of_weights)]
    };
    let got = run(device(), ops::aggregate);
    let expected = run(Device::flex(), reference::aggregate);
    for (got, expected) in got.iter().zip(&expected) {
        check_close(got, expected, 1e-5);
    }
}

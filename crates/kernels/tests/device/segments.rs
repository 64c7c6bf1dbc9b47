//! Tests of sums, means and maxima over segments, and of graphs on a device.

// The lint asks for `to_vec_f32`, which would round the integer ids that these tests read.
#![allow(clippy::disallowed_methods)]

use burn::tensor::{Tensor, TensorData};
use kiln_graph::GraphId;
use kiln_kernels::ops::{self, Reduction};
use kiln_kernels::testing::{
    Launches, check_close, check_gradient, device, launches_of, ramp, reference, values,
};
use kiln_kernels::{DeviceGraphs, DeviceSegments};

use super::common::{block, six_nodes};

type Op = fn(&DeviceSegments, Tensor<2>) -> Tensor<2>;

/// Each op of this crate and its reference.
const OPS: [(&str, Op, Op); 3] = [
    ("sum", sum, |segments, x| reference::segment_reduce(segments, x, Reduction::Sum)),
    ("mean", mean, |segments, x| reference::segment_reduce(segments, x, Reduction::Mean)),
    ("max", max, |segments, x| reference::segment_reduce(segments, x, Reduction::Max)),
];

fn sum(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    ops::segment_reduce(segments, x, Reduction::Sum)
}

fn mean(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    ops::segment_reduce(segments, x, Reduction::Mean)
}

fn max(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    ops::segment_reduce(segments, x, Reduction::Max)
}

/// The tolerance for sums of up to 20,000 numbers that are added in different orders.
const SUM_TOLERANCE: f32 = 1e-3;

fn segments(offsets: &[u32]) -> DeviceSegments {
    DeviceSegments::upload(offsets, &device())
}

/// Segments of 0, 3, 0, 1, 2 and 0 rows.
fn six_rows() -> DeviceSegments {
    segments(&[0, 0, 3, 3, 4, 6, 6])
}

/// Segments of many sizes: the first and the last are empty, and one has 20,000 rows.
fn uneven() -> DeviceSegments {
    let n_rows = |segment: u32| if segment == 7 { 20_000 } else { segment * segment % 11 };
    let mut offsets = vec![0, 0];
    for segment in 0..300 {
        offsets.push(offsets[offsets.len() - 1] + n_rows(segment));
    }
    offsets.push(offsets[offsets.len() - 1]);
    segments(&offsets)
}

fn check_exact(op: Op, expected: &[[f32; 2]]) {
    let rows = [[1.0, -1.0], [2.0, -2.0], [4.0, 3.0], [8.0, -8.0], [16.0, 5.0], [32.0, 7.0]];
    let result = op(&six_rows(), Tensor::from_data(rows, &device()));
    assert_eq!(result.dims(), [6, 2]);
    assert_eq!(values(result), expected.concat());
}

/// The longest segment has chunks, groups of chunks and groups of groups, and begins and ends within a chunk.
#[test]
fn sums_of_very_long_segments_are_close_to_those_in_f64() {
    let offsets = [0, 37, 300_011, 300_011, 300_500, 305_000];
    let x: Tensor<2> = ramp([305_000, 1], &device()) + 1.0;
    let rows = values(x.clone());
    let sums = values(sum(&segments(&offsets), x));
    assert_eq!(sums.len(), 5);
    for (segment, sum) in sums.iter().enumerate() {
        let range = offsets[segment] as usize..offsets[segment + 1] as usize;
        let expected: f64 = rows[range].iter().map(|value| f64::from(*value)).sum();
        let error = (f64::from(*sum) - expected).abs() / expected.max(1.0);
        assert!(error < 1e-5, "segment {segment}: {sum}, expected {expected}");
    }
}

#[test]
fn sums_have_the_expected_values() {
    let none = [0.0, 0.0];
    check_exact(sum, &[none, [7.0, 0.0], none, [8.0, -8.0], [48.0, 12.0], none]);
}

#[test]
fn means_have_the_expected_values() {
    let none = [0.0, 0.0];
    check_exact(mean, &[none, [7.0 / 3.0, 0.0], none, [8.0, -8.0], [24.0, 6.0], none]);
}

#[test]
fn maxima_have_the_expected_values() {
    let none = [0.0, 0.0];
    check_exact(max, &[none, [4.0, 3.0], none, [8.0, -8.0], [32.0, 7.0], none]);
}

#[test]
fn reduces_one_segment_of_all_rows() {
    let x = Tensor::<2>::from_data([[1.0, 4.0], [3.0, -2.0]], &device());
    let expected = [[4.0, 2.0], [2.0, 1.0], [3.0, 4.0]];
    for ((name, op, _), expected) in OPS.into_iter().zip(expected) {
        assert_eq!(values(op(&segments(&[0, 2]), x.clone())), expected, "{name}");
    }
}

#[test]
fn accepts_zero_rows_and_zero_segments() {
    let device = device().autodiff();
    for (offsets, n_segments) in [(&[0][..], 0), (&[0, 0, 0], 2)] {
        let segments = segments(offsets);
        assert_eq!((segments.n_rows(), segments.n_segments()), (0, n_segments));
        for (name, op, _) in OPS {
            for width in [0, 3] {
                let x = Tensor::<2>::zeros([0, width], &device).require_grad();
                let result = op(&segments, x);
                assert_eq!(result.dims(), [n_segments, width], "{name}");
                assert!(values(result).iter().all(|value| *value == 0.0), "{name}");
            }
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    for (name, op, _) in OPS {
        println!("{name}");
        check_gradient(ramp([6, 5], &device()), |x| op(&six_rows(), x));
    }
}

#[test]
fn the_first_of_equal_maxima_gets_the_whole_gradient() {
    let device = device().autodiff();
    let x = Tensor::<2>::from_data([[5.0], [9.0], [9.0], [2.0], [2.0]], &device).require_grad();
    let grads = max(&segments(&[0, 3, 5]), x.clone()).sum().backward();
    let gradient = x.grad(&grads).expect("the gradient should exist");
    assert_eq!(values(gradient), [0.0, 1.0, 0.0, 1.0, 0.0]);
}

#[test]
fn maxima_propagate_nan() {
    let x = Tensor::<2>::from_data([[1.0], [f32::NAN], [2.0], [3.0]], &device());
    let (_, _, of_reference) = OPS[2];
    for op in [max, of_reference] {
        let got = values(op(&segments(&[0, 3, 4]), x.clone()));
        assert!(got[0].is_nan(), "got {got:?}");
        assert_eq!(got[1], 3.0);
    }
}

/// Returns the result, and the gradient of a fixed weighted sum of the result.
fn result_and_gradient(op: Op, segments: &DeviceSegments, width: usize) -> [Vec<f32>; 2] {
    let device = device().autodiff();
    let x = ramp([segments.n_rows(), width], &device).require_grad();
    let result = op(segments, x.clone());
    let factors = ramp(result.dims(), &device);
    let grads = (result.clone() * factors).sum().backward();
    [values(result), values(x.grad(&grads).expect("the gradient should exist"))]
}

#[test]
fn backend_ops_equal_the_reference() {
    for segments in [six_rows(), uneven()] {
        for width in [1, 3, 16, 100] {
            for (name, own, reference) in OPS {
                println!("{name}, width {width}");
                let [got, got_gradient] = result_and_gradient(own, &segments, width);
                let [expected, expected_gradient] = result_and_gradient(reference, &segments, width);
                if name == "max" {
                    // A maximum is one of the values, so there is no rounding.
                    assert_eq!((got, got_gradient), (expected, expected_gradient));
                    continue;
                }
                check_close(&got, &expected, SUM_TOLERANCE);
                check_close(&got_gradient, &expected_gradient, SUM_TOLERANCE);
            }
        }
    }
}

#[test]
fn forward_and_backward_run_the_backend_implementations() {
    for (name, op, _) in OPS {
        let launches = launches_of(|| drop(result_and_gradient(op, &six_rows(), 3)));
        assert_eq!(launches, Launches { direct: 2, reference: 0 }, "{name}");
    }
}

#[test]
fn results_are_bit_identical_for_any_number_of_threads() {
    for (name, op, _) in OPS {
        let run = |n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
            pool.expect("the pool should start").install(|| {
                result_and_gradient(op, &uneven(), 100)
                    .map(|all| all.into_iter().map(f32::to_bits).collect::<Vec<_>>())
            })
        };
        let one = run(1);
        assert!(one == run(2) && one == run(5), "{name}");
    }
}

#[test]
#[should_panic(expected = "x has 5 rows, but the segments have 6")]
fn rejects_a_matrix_with_too_few_rows() {
    sum(&six_rows(), ramp([5, 2], &device()));
}

#[test]
#[should_panic(expected = "there are no offsets, expected one more than the number of segments")]
fn rejects_empty_offsets() {
    segments(&[]);
}

#[test]
#[should_panic(expected = "the offsets start at 1, expected 0")]
fn rejects_offsets_that_do_not_start_at_zero() {
    segments(&[1, 2]);
}

#[test]
#[should_panic(expected = "the offsets decrease from 4 to 3 at segment 1")]
fn rejects_decreasing_offsets() {
    segments(&[0, 4, 3]);
}

#[test]
#[should_panic(expected = "2147483648 rows in a batch, expected at most 2147483647: use smaller batches")]
fn rejects_more_rows_than_an_i32_index_can_count() {
    segments(&[0, 1 << 31]);
}

#[test]
fn graphs_keep_their_edges_nodes_and_items() {
    let device = device().autodiff();
    // The batch has a graph with the edge 0 -> 1 and a graph without edges.
    let host = block(3, &[vec![], vec![0], vec![]]);
    let graphs = DeviceGraphs::upload(&host, &[0, 2, 3], &[40, 7].map(GraphId), &device);
    assert_eq!((graphs.n_graphs(), graphs.block().n_edges(), graphs.segments().n_rows()), (2, 1, 3));
    let items: TensorData = graphs.items().clone().into_data();
    assert_eq!(items.try_to_vec::<u32>().expect("items should be u32"), [40, 7]);
}

#[test]
#[should_panic(expected = "6 sources and 5 destinations, expected the same nodes")]
fn rejects_graphs_with_a_source_that_is_not_a_destination() {
    DeviceGraphs::upload(&six_nodes(), &[0, 6], &[GraphId(0)], &device());
}

#[test]
#[should_panic(expected = "the node offsets end at 2, but the block has 3 nodes")]
fn rejects_graphs_with_nodes_outside_all_graphs() {
    let host = block(3, &[vec![], vec![], vec![]]);
    DeviceGraphs::upload(&host, &[0, 2], &[GraphId(0)], &device());
}

#[test]
#[should_panic(expected = "1 ids for 2 graphs")]
fn rejects_graphs_without_an_id() {
    let host = block(3, &[vec![], vec![], vec![]]);
    DeviceGraphs::upload(&host, &[0, 2, 3], &[GraphId(0)], &device());
}

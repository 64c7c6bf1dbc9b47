//! Tests of the ops: exact results, parity with the reference, determinism, and the implementation that runs.

// The lint asks for `to_vec_f32`, which reads only floats, but these tests also read integers. On CubeCL devices, the
// data may be a view of the device's buffer; it does not change here, because nothing writes to the tensors afterwards.
#![allow(clippy::disallowed_methods)]

use burn::tensor::{DType, Device, Tensor, TensorData};
use kiln_graph::Block;
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
use kiln_kernels::testing::{Launches, check_close, device, launches_of, ramp, reference, values};

use super::common::{block, six_nodes, weighted_sum, with_hub};

type Op = fn(&DeviceBlock, Tensor<2>) -> Tensor<2>;

/// Each op of this crate and its reference.
const OPS: [(&str, Op, Op); 8] = [
    ("sum", sum, |block, x| reference::aggregate(block, x, Reduction::Sum)),
    ("mean", mean, |block, x| reference::aggregate(block, x, Reduction::Mean)),
    ("max", max, |block, x| reference::aggregate(block, x, Reduction::Max)),
    ("weighted sum", own_weighted_sum, reference_weighted_sum),
    ("destination rows", ops::take_dst, reference::take_dst),
    ("own beside mean", concat_self_mean, |block, x| reference::aggregate(block, x, beside(Reduction::Mean))),
    ("own beside sum", concat_self_sum, |block, x| reference::aggregate(block, x, beside(Reduction::Sum))),
    ("own plus sum", scaled_self_plus_sum, |block, x| reference::aggregate(block, x, plus_sum())),
];

fn sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    ops::aggregate(block, x, Reduction::Sum)
}

fn mean(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    ops::aggregate(block, x, Reduction::Mean)
}

fn max(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    ops::aggregate(block, x, Reduction::Max)
}

fn concat_self_mean(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    ops::aggregate(block, x, beside(Reduction::Mean))
}

fn concat_self_sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    ops::aggregate(block, x, beside(Reduction::Sum))
}

fn scaled_self_plus_sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    ops::aggregate(block, x, plus_sum())
}

fn own_weighted_sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    let weights = block.weights().expect("test blocks should have weights").clone();
    ops::aggregate(block, x, weighted_sum(weights))
}

fn reference_weighted_sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    let weights = block.weights().expect("test blocks should have weights").clone();
    reference::aggregate(block, x, weighted_sum(weights))
}

fn beside(reduce: Reduction) -> Aggregation {
    Aggregation { own: OwnRow::Concatenated, ..reduce.into() }
}

fn plus_sum() -> Aggregation {
    Aggregation { own: OwnRow::Scaled(1.5), ..Reduction::Sum.into() }
}

/// The tolerance for sums of up to 20,000 numbers that are added in different orders.
const SUM_TOLERANCE: f32 = 1e-3;

/// The tolerance for means of a few thousand numbers that are added in different orders.
const SHARES_TOLERANCE: f32 = 1e-4;

/// The tolerance for sums of a few dozen numbers that are added in different orders.
const SHORT_SUM_TOLERANCE: f32 = 1e-5;

fn matrix(rows: &[[f32; 2]], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(rows.concat(), [rows.len(), 2]), device)
}

fn check_exact(op: Op, expected: &[[f32; 2]]) {
    check_values(op, 2, &expected.concat());
}

fn check_beside(op: Op, left: &[[f32; 2]], right: &[[f32; 2]]) {
    let rows: Vec<f32> = left.iter().zip(right).flat_map(|(left, right)| [*left, *right].concat()).collect();
    check_values(op, 4, &rows);
}

fn check_values(op: Op, width: usize, expected: &[f32]) {
    let device = device();
    let x = matrix(&[[1.0, -1.0], [2.0, -2.0], [4.0, 3.0], [8.0, -8.0], [16.0, 5.0], [32.0, 7.0]], &device);
    let result = op(&DeviceBlock::upload(&six_nodes(), &device), x);
    assert_eq!(result.dims(), [5, width]);
    assert_eq!(values(result), expected);
}

#[test]
fn sums_have_the_expected_values() {
    let expected = [[0.0, 0.0], [1.0, -1.0], [16.0, -9.0], [48.0, 12.0], [32.0, 7.0]];
    check_exact(sum, &expected);
}

#[test]
fn weighted_sums_have_the_expected_values() {
    // The weights are 0.5 | 0.75 1 1.25 1.5 | 1.75 2 | 0.5 in block order.
    let expected = [[0.0, 0.0], [0.5, -0.5], [17.5, -8.75], [88.0, 22.25], [16.0, 3.5]];
    check_exact(own_weighted_sum, &expected);
}

#[test]
fn means_have_the_expected_values() {
    let expected = [[0.0, 0.0], [1.0, -1.0], [4.0, -2.25], [24.0, 6.0], [32.0, 7.0]];
    check_exact(mean, &expected);
}

#[test]
fn scaled_own_rows_plus_sums_have_the_expected_values() {
    let expected = [[1.5, -1.5], [4.0, -4.0], [22.0, -4.5], [60.0, 0.0], [56.0, 14.5]];
    check_exact(scaled_self_plus_sum, &expected);
}

#[test]
fn own_rows_beside_means_and_sums_have_the_expected_values() {
    let own = [[1.0, -1.0], [2.0, -2.0], [4.0, 3.0], [8.0, -8.0], [16.0, 5.0]];
    let means = [[0.0, 0.0], [1.0, -1.0], [4.0, -2.25], [24.0, 6.0], [32.0, 7.0]];
    let sums = [[0.0, 0.0], [1.0, -1.0], [16.0, -9.0], [48.0, 12.0], [32.0, 7.0]];
    check_beside(concat_self_mean, &own, &means);
    check_beside(concat_self_sum, &own, &sums);
}

#[test]
fn maxima_have_the_expected_values() {
    let expected = [[0.0, 0.0], [1.0, -1.0], [8.0, 3.0], [32.0, 7.0], [32.0, 7.0]];
    check_exact(max, &expected);
}

#[test]
fn maxima_propagate_nan() {
    let device = device();
    let block = DeviceBlock::upload(&block(3, &[vec![0, 1, 2], vec![1, 0], vec![2, 0]]), &device);
    let x = Tensor::<2>::from_data([[1.0], [f32::NAN], [2.0]], &device);
    let results = [
        ops::aggregate(&block, x.clone(), Reduction::Max),
        reference::aggregate(&block, x.clone(), Reduction::Max),
    ];
    for got in results.map(values) {
        assert!(got[0].is_nan() && got[1].is_nan(), "got {got:?}");
        assert_eq!(got[2], 2.0);
    }
}

#[test]
fn upload_keeps_edge_ids_weights_and_nodes() {
    let host = six_nodes();
    let block = DeviceBlock::upload(&host, &device().autodiff());
    let ids: Vec<i64> = block.edge_ids().clone().into_data().try_to_vec().expect("edge ids should be i64");
    assert_eq!(ids, (1000..1008).collect::<Vec<i64>>());
    assert_eq!(
        values(block.weights().expect("the device block should have weights").clone()),
        host.weights().expect("the host block should have weights")
    );
    let nodes = |nodes: &Tensor<1, burn::tensor::Int>| -> Vec<u32> {
        nodes.clone().into_data().try_to_vec().expect("nodes should be u32")
    };
    assert_eq!(nodes(block.src_nodes()), [100, 107, 114, 121, 128, 135]);
    assert_eq!(nodes(block.dst_nodes()), [100, 107, 114, 121, 128]);
    assert_eq!((block.n_src(), block.n_dst(), block.n_edges()), (6, 5, 8));
}

/// Returns the result, and the gradient of a fixed weighted sum of the result.
fn result_and_gradient(op: Op, block: &DeviceBlock, x: &Tensor<2>) -> [Vec<f32>; 2] {
    let x = x.clone().detach().require_grad();
    let result = op(block, x.clone());
    let factors = ramp(result.dims(), &result.device());
    let grads = (result.clone() * factors).sum().backward();
    let gradient = x.grad(&grads).expect("the gradient should exist");
    [values(result), values(gradient)]
}

fn check_parity(host: &Block, width: usize, tolerance: f32) {
    let device = device().autodiff();
    let block = DeviceBlock::upload(host, &device);
    let x = ramp([host.n_src(), width], &device);
    for (name, own, reference) in OPS {
        println!("{name}, width {width}");
        let [got, got_gradient] = result_and_gradient(own, &block, &x);
        let [expected, expected_gradient] = result_and_gradient(reference, &block, &x);
        check_close(&got, &expected, tolerance);
        check_close(&got_gradient, &expected_gradient, tolerance);
    }
}

#[test]
fn backend_ops_equal_the_reference_for_every_width() {
    for width in [1, 3, 4, 5, 16, 100, 128, 256, 602] {
        check_parity(&six_nodes(), width, SHORT_SUM_TOLERANCE);
    }
}

#[test]
fn backend_ops_equal_the_reference_with_a_hub() {
    for width in [1, 16, 100] {
        check_parity(&with_hub(), width, SUM_TOLERANCE);
    }
}

/// The segments are as long as a chunk of 512 edges, longer, or cross its border. The values are integers, so their
/// sums are exact.
#[test]
fn chunked_segments_equal_the_reference_forward_and_backward() {
    let device = device().autodiff();
    let degrees = [512, 513, 0, 0, 600, 700, 0, 1024, 1, 511, 512, 3000, 2];
    let forward: Vec<Vec<u32>> =
        degrees.iter().map(|degree| (0..*degree).map(|edge| edge % 13).collect()).collect();
    // In the mirrored block, sources and destinations are exchanged.
    let mut mirrored = vec![vec![]; 13];
    for (src, dsts) in forward.iter().enumerate() {
        dsts.iter().for_each(|dst| mirrored[*dst as usize].push(src as u32));
    }
    for in_srcs in [forward, mirrored] {
        let host = block(20, &in_srcs);
        let block = DeviceBlock::upload(&host, &device);
        for width in [1, 4, 6] {
            let whole = |shape: [usize; 2]| (ramp(shape, &device) * 7.0).round();
            for (name, own, reference) in OPS {
                let run = |op: Op| {
                    let x = whole([20, width]).require_grad();
                    let result = op(&block, x.clone());
                    let grads = (result.clone() * whole(result.dims())).sum().backward();
                    [values(result), values(x.grad(&grads).expect("the gradient should exist"))]
                };
                let ([got, got_gradient], [expected, gradient]) = (run(own), run(reference));
                let tolerance = if name.contains("mean") { SHARES_TOLERANCE } else { 0.0 };
                println!("{name}, width {width}");
                check_close(&got, &expected, tolerance);
                check_close(&got_gradient, &gradient, tolerance);
            }
        }
    }
}

#[test]
fn gradients_of_weights_equal_the_reference() {
    let device = device().autodiff();
    for width in [1, 3, 16, 100] {
        let block = DeviceBlock::upload(&with_hub(), &device);
        let x: Tensor<2> = ramp([block.n_src(), width], &device);
        let gradient = |op: fn(&DeviceBlock, Tensor<2>, Tensor<1>) -> Tensor<2>| {
            let weights: Tensor<1> = ramp([block.n_edges()], &device).require_grad();
            let result = op(&block, x.clone(), weights.clone());
            let factors = ramp(result.dims(), &device);
            let grads = (result * factors).sum().backward();
            values(weights.grad(&grads).expect("weights should have a gradient"))
        };
        let expected = gradient(|block, x, weights| reference::aggregate(block, x, weighted_sum(weights)));
        let got = gradient(|block, x, weights| ops::aggregate(block, x, weighted_sum(weights)));
        check_close(&got, &expected, SHORT_SUM_TOLERANCE);
    }
}

#[test]
fn accepts_blocks_without_edges_rows_or_columns() {
    let device = device().autodiff();
    let cases = [block(4, &[vec![], vec![]]), block(0, &[]), block(3, &[]), six_nodes()];
    for host in cases {
        let block = DeviceBlock::upload(&host, &device);
        for width in [0, 2] {
            for (name, op, _) in OPS {
                let x = Tensor::<2>::ones([host.n_src(), width], &device).require_grad();
                let result = op(&block, x.clone());
                let n_halves = if name.starts_with("own beside") { 2 } else { 1 };
                assert_eq!(result.dims(), [host.n_dst(), n_halves * width], "{name}");
                if host.n_edges() == 0 && !name.starts_with("own") && name != "destination rows" {
                    assert!(values(result.clone()).iter().all(|value| *value == 0.0), "{name}");
                }
                if 0 < result.shape().num_elements() {
                    let gradient = x.grad(&result.sum().backward()).expect("the gradient should exist");
                    assert_eq!(gradient.dims(), [host.n_src(), width], "{name}");
                }
            }
        }
    }
}

#[test]
fn results_are_bit_identical_for_any_number_of_threads() {
    let host = with_hub();
    for width in [5, 16, 100, 128] {
        for (name, op, _) in OPS {
            let run = |n_threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
                pool.expect("the pool should start").install(|| {
                    let device = device().autodiff();
                    let block = DeviceBlock::upload(&host, &device);
                    let x = ramp([host.n_src(), width], &device);
                    result_and_gradient(op, &block, &x)
                        .map(|all| all.into_iter().map(f32::to_bits).collect::<Vec<_>>())
                })
            };
            let one = run(1);
            assert!(one == run(2) && one == run(5), "{name}, width {width}");
        }
    }
}

#[test]
fn non_contiguous_inputs_give_identical_results() {
    let device = device().autodiff();
    let block = DeviceBlock::upload(&six_nodes(), &device);
    let wide: Tensor<2> = ramp([9, 7], &device);
    let views = [
        ("columns", wide.clone().slice([0..6, 2..5])),
        ("rows", wide.clone().slice([2..8, 0..7])),
        ("transposed", wide.swap_dims(0, 1).slice([0..6, 0..9])),
        // The columns begin and end at multiples of 512 bytes, so that devices return a view and not a copy.
        ("columns of many", ramp([9, 384], &device).slice([1..7, 128..256])),
    ];
    for (view, x) in views {
        let copy = Tensor::from_data(x.clone().into_data(), &device);
        for (name, op, _) in OPS {
            let [got, got_gradient] = result_and_gradient(op, &block, &x);
            let [expected, expected_gradient] = result_and_gradient(op, &block, &copy);
            assert_eq!((got, got_gradient), (expected, expected_gradient), "{name} of {view}");
        }
    }
}

#[test]
fn forward_and_backward_run_the_backend_implementations() {
    let device = device().autodiff();
    let block = DeviceBlock::upload(&six_nodes(), &device);
    let x = ramp([6, 3], &device);
    for (name, own, reference) in OPS {
        let launches = launches_of(|| drop(result_and_gradient(own, &block, &x)));
        assert_eq!(launches, Launches { direct: 2, reference: 0 }, "{name}");
        let launches = launches_of(|| drop(result_and_gradient(reference, &block, &x)));
        assert_eq!(launches, Launches::default(), "the reference of {name} should not be counted");
    }
}

#[test]
fn other_element_types_run_the_reference() {
    let device = device();
    let block = DeviceBlock::upload(&six_nodes(), &device);
    for (name, op, _) in
        OPS.into_iter().filter(|(name, ..)| !["weighted sum", "destination rows"].contains(name))
    {
        let x = ramp([6, 3], &device);
        let expected = values(op(&block, x.clone()));
        let launches = launches_of(|| {
            let result = op(&block, x.cast(DType::F64));
            assert_eq!(result.dtype(), DType::F64, "{name}");
            check_close(&values(result.cast(DType::F32)), &expected, SHORT_SUM_TOLERANCE);
        });
        assert_eq!(launches, Launches { direct: 0, reference: 1 }, "{name}");
    }
}

#[test]
fn no_gradient_is_computed_without_a_tracked_input() {
    for device in [device(), device().autodiff()] {
        let block = DeviceBlock::upload(&six_nodes(), &device);
        for (name, op, _) in OPS {
            let launches = launches_of(|| {
                let result = op(&block, ramp([6, 3], &device));
                assert!(!result.is_require_grad(), "{name}");
                let [_, width] = result.dims();
                let scale = Tensor::<2>::ones([1, width], &device.clone().autodiff()).require_grad();
                let grads = (result * scale.clone()).sum().backward();
                assert!(scale.grad(&grads).is_some());
            });
            assert_eq!(launches, Launches { direct: 1, reference: 0 }, "{name}");
        }
    }
}

#[test]
#[should_panic(expected = "x has 5 rows, but the block has 6 sources")]
fn rejects_a_matrix_with_too_few_rows() {
    let device = device();
    ops::aggregate(&DeviceBlock::upload(&six_nodes(), &device), ramp([5, 2], &device), Reduction::Sum);
}

#[test]
#[should_panic(expected = "3 weights for 8 edges")]
fn rejects_too_few_weights() {
    let device = device();
    let block = DeviceBlock::upload(&six_nodes(), &device);
    ops::aggregate(&block, ramp([6, 2], &device), weighted_sum(ramp([3], &device)));
}

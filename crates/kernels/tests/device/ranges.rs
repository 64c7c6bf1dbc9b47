//! Tests of the ops within rows against Burn's operations on the CPU.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Device, Tensor};
use kiln_kernels::testing::{Launches, check_close, device, launches_of, ramp, supports, values};
use kiln_kernels::{is_cpu, ops, to_vec_f32};

/// The tolerance for sums of up to 1,000 numbers that are added in different orders, and functions of them.
const TOLERANCE: f32 = 1e-4;

type Op = fn(Tensor<2>, Tensor<2>) -> Tensor<2>;

/// Rows that one unit or several read, with and without vectors of four values, and views with gaps between rows.
const SHAPES: [[usize; 2]; 6] = [[1, 4], [5, 12], [300, 8], [70, 132], [3, 1000], [2000, 20]];

/// Checks an op of a matrix and a column against the same op in Burn's operations on the CPU, with both gradients.
fn check(op: Op, of_burn: Op) {
    for [n_rows, width] in SHAPES {
        let run = |device: &Device, op: Op| {
            let x = ramp([n_rows, width], device).require_grad();
            let column = (ramp([n_rows, 1], device) * -0.6 + 0.03).require_grad();
            let result = op(x.clone(), column.clone());
            let grads = (result.clone() * ramp(result.dims(), device)).sum().backward();
            let of_column = column.grad(&grads).map(values).unwrap_or_default();
            [values(result), values(x.grad(&grads).unwrap()), of_column]
        };
        let got = run(&device().autodiff(), op);
        let expected = run(&Device::flex().autodiff(), of_burn);
        for (got, expected) in got.iter().zip(&expected) {
            check_close(got, expected, TOLERANCE);
        }
    }
}

#[test]
fn sums_and_means_of_ranges_equal_those_of_burn() {
    check(
        |x, _| ops::range_sums(x, 4),
        |x, _| {
            let [n_rows, width] = x.dims();
            x.reshape([n_rows, 4, width / 4]).sum_dim(2).squeeze_dim(2)
        },
    );
    check(|x, _| ops::range_sums(x, 1), |x, _| x.sum_dim(1));
    check(
        |x, _| ops::mean_of_ranges(x, 2),
        |x, _| {
            let [n_rows, width] = x.dims();
            x.reshape([n_rows, 2, width / 2]).mean_dim(1).squeeze_dim(1)
        },
    );
}

#[test]
fn repeated_columns_and_products_with_a_column_equal_those_of_burn() {
    check(|x, _| ops::repeat_columns(x, 3), |x, _| x.repeat_dim(1, 3));
    check(|x, _| ops::repeat_columns(x, 1), |x, _| x);
    check(ops::mul_column, |x, column| x * column);
}

/// Weights of a product, and rows below others, with both gradients.
#[test]
fn products_and_stacked_rows_equal_those_of_burn() {
    check(
        |x, column| ops::product(x.transpose(), column.repeat_dim(1, 3)),
        |x, column| x.transpose().matmul(column.repeat_dim(1, 3)),
    );
    check(
        |x, column| {
            let [_, width] = x.dims();
            ops::stack_rows(x, column.repeat_dim(1, width))
        },
        |x, column| {
            let [_, width] = x.dims();
            Tensor::cat(vec![x, column.repeat_dim(1, width)], 0)
        },
    );
}

#[test]
fn normalized_rows_and_logarithms_of_softmax_equal_those_of_burn() {
    let of_burn: Op = |x, _| {
        let [_, width] = x.dims();
        let centered = x.clone() - x.mean_dim(1);
        let rows = centered.clone() / (centered.square().mean_dim(1) + 1e-5).sqrt();
        rows * ramp([1, width], &Device::flex().autodiff()) + 0.5
    };
    let op: Op = |x, _| {
        let [_, width] = x.dims();
        let gamma = ramp([1, width], &x.device()).squeeze_dim(0);
        let beta = Tensor::ones([width], &x.device()) * 0.5;
        ops::layer_norm(x, gamma, Some(beta), 1e-5)
    };
    check(op, of_burn);
    // The maximum is subtracted: the exponential of 200 is infinite in f32.
    check(|x, _| ops::log_softmax(x * 200.0), |x, _| log_softmax(x * 200.0, 1));
}

#[test]
fn sums_of_halves_and_of_views_are_rounded_once() {
    let device = device();
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        if !supports(&device, dtype) {
            continue;
        }
        // A slice that begins at a multiple of 512 bytes is a view on CUDA, with gaps between its rows.
        let wide: Tensor<2> = ramp([64, 512], &device).cast(dtype);
        let view = wide.slice([2..62, 256..380]);
        let expected = to_vec_f32(view.clone());
        let expected: Vec<f32> = expected.chunks(31).map(|range| range.iter().sum()).collect();
        let mut sums = view.clone();
        let launches = launches_of(|| sums = ops::range_sums(view, 4));
        assert_eq!(sums.dims(), [60, 4]);
        if !is_cpu(&device) {
            assert_eq!(launches, Launches { direct: 1, reference: 0 });
        }
        check_close(&to_vec_f32(sums), &expected, if dtype == DType::F32 { 1e-5 } else { 1e-2 });
    }
    let empty = Tensor::<2>::zeros([0, 4], &device);
    assert_eq!(values(ops::range_sums(empty.clone(), 2)), [0.0; 0]);
    assert_eq!(values(ops::log_softmax(empty)), [0.0; 0]);
}

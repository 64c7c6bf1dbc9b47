//! Tests of the op that adds a bias, applies ReLU and dropout.

use burn::tensor::{DType, Tensor};
use kiln_kernels::ops::{self, relu_dropout};
use kiln_kernels::testing::{Launches, check_close, device, launches_of, ramp, supports, values};
use kiln_kernels::{is_cpu, to_vec_f32};
use kiln_sample::RngKey;

use super::common::nodes;

/// The result of `run` on rows and a bias, and the gradients of both.
fn with_gradients(
    [n_rows, width]: [usize; 2],
    run: impl Fn(Tensor<2>, Tensor<1>) -> Tensor<2>,
) -> [Option<Vec<f32>>; 3] {
    let device = device();
    let x = ramp([n_rows, width], &device).autodiff().require_grad();
    let bias = (ramp([width], &device) * 0.3).autodiff().require_grad();
    let rows = run(x.clone(), bias.clone());
    let factors = ramp([n_rows, width], &device).autodiff();
    let grads = (rows.clone() * factors).sum().backward();
    [Some(values(rows)), x.grad(&grads).map(values), bias.grad(&grads).map(values)]
}

#[test]
fn bias_dropout_equals_the_ops_that_it_joins() {
    for (n, width) in [(1u32, 1usize), (300, 7), (500, 256), (0, 3)] {
        for (p, relu) in [(0.0, false), (0.0, true), (0.3, false), (0.3, true)] {
            println!("{n} x {width}, p {p}, relu {relu}");
            let [rows, of_x, of_bias] = with_gradients([n as usize, width], |x, bias| {
                ops::bias_dropout(x, bias, relu, &nodes(n), RngKey::new(3), 2, p)
            });
            let [expected_rows, expected_of_x, expected_of_bias] =
                with_gradients([n as usize, width], |x, bias| {
                    let sum = ops::add_row(x, bias.reshape([1, width]));
                    match relu {
                        true => relu_dropout(sum, &nodes(n), RngKey::new(3), 2, p),
                        false => ops::dropout(sum, &nodes(n), RngKey::new(3), 2, p),
                    }
                });
            assert_eq!([rows, of_x], [expected_rows, expected_of_x]);
            let zeros = || vec![0.0; width];
            check_close(&of_bias.unwrap_or_else(zeros), &expected_of_bias.unwrap_or_else(zeros), 1e-4);
        }
    }
}

#[test]
fn bias_dropout_is_one_op_and_the_gradient_of_its_bias_another() {
    let launches = launches_of(|| {
        with_gradients([300, 8], |x, bias| {
            ops::bias_dropout(x, bias, true, &nodes(300), RngKey::new(3), 2, 0.3)
        });
    });
    // Forward, the gradient of the rows, and the column sums.
    let expected = if is_cpu(&device()) {
        Launches { direct: 2, reference: 1 }
    } else {
        Launches { direct: 3, reference: 0 }
    };
    assert_eq!(launches, expected);
}

#[test]
fn bias_dropout_of_halves_adds_in_f32() {
    for dtype in [DType::F16, DType::BF16] {
        if supports(&device(), dtype) {
            // Multiples of an eighth below 2 have exact sums in every float type.
            let x = ((ramp::<2>([40, 8], &device()) * 8.0).round() / 8.0).cast(dtype);
            let bias = ((ramp::<1>([8], &device()) * 8.0).round() / 8.0).cast(dtype);
            let expected = values(
                (x.clone().cast(DType::F32) + bias.clone().cast(DType::F32).unsqueeze()).clamp_min(0.0),
            );
            let got = ops::bias_dropout(x, bias, true, &nodes(40), RngKey::new(3), 2, 0.0);
            assert_eq!(to_vec_f32(got), expected, "{dtype:?}");
        }
    }
}

#[test]
#[should_panic(expected = "the element types of x and bias differ")]
fn rejects_a_bias_of_another_element_type() {
    let x = ramp::<2>([2, 3], &device());
    let bias = ramp::<1>([3], &device()).cast(DType::F16);
    let _ = ops::bias_dropout(x, bias, true, &nodes(2), RngKey::new(0), 0, 0.0);
}

#[test]
#[should_panic(expected = "the bias should have a value for each of 3 columns")]
fn rejects_a_bias_of_another_width() {
    let _ = ops::bias_dropout(
        ramp([2, 3], &device()),
        ramp([4], &device()),
        true,
        &nodes(2),
        RngKey::new(0),
        0,
        0.0,
    );
}

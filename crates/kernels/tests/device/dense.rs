//! Tests of dense layers and ReLU with dropout: parity with the reference, gradients, and shared memory.

use std::io::Write;

use burn::tensor::{Device, Tensor};
use kiln_kernels::is_cpu;
use kiln_kernels::ops::{self, MatmulPrecision, linear, relu_dropout};
use kiln_kernels::testing::{
    Launches, check_close, check_gradient, device, launches_of, on_cpu, product, ramp, reference, values,
    weight_gradient,
};
use kiln_sample::RngKey;

use super::common::{is_on_cuda, nodes};

/// The tolerance for sums of up to 600 products that are added in different orders.
const PRODUCT_TOLERANCE: f32 = 1e-4;

type Linear = fn(Tensor<2>, Tensor<2>, Tensor<2>) -> Tensor<2>;

/// Returns the result of the reference, computed on the CPU.
fn expected_linear(base: &Tensor<2>, x: &Tensor<2>, weight: &Tensor<2>) -> Vec<f32> {
    values(reference::linear(on_cpu(base), on_cpu(x), on_cpu(weight)))
}

#[test]
fn linear_equals_its_reference_for_ragged_shapes() {
    let device = device();
    for [n, d_in, d_out] in [[1, 1, 1], [3, 602, 5], [500, 128, 256], [0, 4, 3], [700, 5, 3], [2, 0, 4]] {
        for base_rows in [n, 1] {
            let (base, x) = (ramp([base_rows, d_out], &device), ramp([n, d_in], &device));
            let weight = ramp([d_in, d_out], &device);
            let expected = match n * d_in {
                0 => values(base.clone()).into_iter().cycle().take(n * d_out).collect(),
                _ => expected_linear(&base, &x, &weight),
            };
            let sum = linear(base.clone(), x, weight);
            assert_eq!(sum.dims(), [n, d_out]);
            check_close(&values(sum), &expected, PRODUCT_TOLERANCE);
            assert_eq!(
                values(base),
                values(ramp([base_rows, d_out], &device)),
                "a shared base should not change"
            );
        }
    }
}

/// TF32 has a mantissa of 10 bits. Whether a device rounds or truncates a factor to it, the relative error of the factor
/// is below 2^-10, so that of a product of two is below 2^-9 + 2^-20. Factors are rounded to bf16, whose mantissa has 7 bits,
/// with a relative error of at most 2^-8. The sum of `k` products in f32 adds at most `k` times 2^-24.
fn check_products([n, k, m]: [usize; 3]) {
    // A slice has gaps between its rows where it is a view.
    let left = ramp([n, 2 * k], &device()).slice([0..n, 0..k]);
    let right = ramp([k, m], &device());
    let (left_values, right_values) = (values(left.clone()), values(right.clone()));
    for (precision, of_factors) in [
        (MatmulPrecision::F32, 0.0),
        (MatmulPrecision::Tf32, 2.0_f64.powi(-9) + 2.0_f64.powi(-20)),
        (MatmulPrecision::Bf16, 2.0_f64.powi(-7) + 2.0_f64.powi(-16)),
    ] {
        let Some(got) = product(&left, &right, precision).map(values) else {
            let mut out = std::io::stdout();
            return writeln!(out, "kiln-skip: gpu: the precision of products: no CubeCL device")
                .expect("stdout should be open");
        };
        let mut largest = 0.0_f64;
        for (at, got) in got.into_iter().enumerate() {
            let (row, column) = (at / m, at % m);
            let products =
                (0..k).map(|i| f64::from(left_values[row * k + i]) * f64::from(right_values[i * m + column]));
            let (sum, magnitude) = products.fold((0.0, 0.0), |(sum, all), one| (sum + one, all + one.abs()));
            let error = (f64::from(got) - sum).abs();
            let bound = magnitude * (of_factors + k as f64 * 2.0_f64.powi(-24));
            assert!(
                error <= bound,
                "{precision:?}: [{row}, {column}] is {got}, expected {sum} within {bound}"
            );
            largest = largest.max(error / magnitude);
        }
        // Tensor cores were used: f32 alone would be far more accurate.
        let has_tensor_cores = is_on_cuda();
        let is_rounded = 2.0_f64.powi(-17) < largest;
        assert_eq!(
            is_rounded,
            has_tensor_cores && precision != MatmulPrecision::F32,
            "{precision:?}: {largest}"
        );
    }
}

#[test]
fn products_have_the_error_of_their_precision() {
    check_products([70, 130, 36]);
    // Few tiles and a long inner dimension, which is divided into four parts.
    check_products([70, 2048, 5]);
}

/// Returns the largest error of a weight gradient, relative to the sums of the absolute products.
fn weight_gradient_error(x: &Tensor<2>, grad: &Tensor<2>, precision: MatmulPrecision) -> Option<f64> {
    let gradient = values(weight_gradient(x, grad, precision)?);
    let [_, d_in] = x.dims();
    let [_, d_out] = grad.dims();
    let mut sums = vec![(0.0, 0.0); d_in * d_out];
    for (x, grad) in values(x.clone()).chunks(d_in).zip(values(grad.clone()).chunks(d_out)) {
        for (at, (sum, magnitude)) in sums.iter_mut().enumerate() {
            let product = f64::from(x[at / d_out]) * f64::from(grad[at % d_out]);
            *sum += product;
            *magnitude += product.abs();
        }
    }
    let errors =
        gradient.iter().zip(&sums).map(|(got, (sum, magnitude))| (f64::from(*got) - sum).abs() / magnitude);
    Some(errors.fold(0.0, f64::max))
}

/// The shapes have one part and several, with and without rows that are left over, and widths on both sides of a tile. A
/// batch of ogbn-products has 60,000 rows in its largest layer.
#[test]
fn weight_gradients_have_the_error_of_their_precision() {
    let device = device();
    for [n, d_in, d_out] in [[60_000, 20, 12], [255, 3, 5], [1024, 65, 4], [1027, 100, 47], [3001, 130, 66]] {
        // All products are positive, so the errors are relative to the sums.
        let x: Tensor<2> = ramp([n, d_in], &device) + 1.0;
        let grad: Tensor<2> = ramp([n, d_out], &device) + 1.5;
        // On other devices than CUDA, one sum adds all rows in sequence.
        let f32_bound = if is_on_cuda() { 1e-6 } else { n as f64 * 2.0_f64.powi(-24) };
        let tf32_bound = f32_bound.max(2.0_f64.powi(-9));
        let bf16_bound = f32_bound.max(2.0_f64.powi(-7));
        for (precision, bound) in [
            (MatmulPrecision::F32, f32_bound),
            (MatmulPrecision::Tf32, tf32_bound),
            (MatmulPrecision::Bf16, bf16_bound),
        ] {
            let Some(error) = weight_gradient_error(&x, &grad, precision) else {
                let mut out = std::io::stdout();
                return writeln!(out, "kiln-skip: gpu: the precision of weight gradients: no CubeCL device")
                    .expect("stdout should be open");
            };
            assert!(error <= bound, "{precision:?} of {n} x {d_in} x {d_out}: the relative error is {error}");
        }
    }
}

#[test]
fn products_accept_repeated_rows_and_matrices_without_columns() {
    let device = device().autodiff();
    let weight = ramp([5, 3], &device).require_grad();
    let x = ramp([1, 5], &device).expand([300, 5]);
    let base = Tensor::zeros([1, 3], &device);
    // The gradient of the layer's result is a repeated row, too.
    let sum = ops::column_sums(linear(base, x.clone(), weight.clone()));
    let grads = (sum * ramp([1, 3], &device)).sum().backward();
    let gradient = values(weight.grad(&grads).expect("the weight should have a gradient"));
    let row = values(ramp([1, 5], &device));
    let factors = values(ramp([1, 3], &device));
    let expected: Vec<f32> =
        row.iter().flat_map(|x| factors.iter().map(move |factor| 300.0 * x * factor)).collect();
    check_close(&gradient, &expected, PRODUCT_TOLERANCE);

    let device = device.inner();
    let none = weight_gradient(&ramp([300, 0], &device), &ramp([300, 3], &device), MatmulPrecision::F32);
    // The CPU has no CubeCL kernels.
    assert!(none.is_none_or(|gradient| gradient.dims() == [0, 3]));
}

#[test]
fn linear_accepts_views_and_keeps_them_unchanged() {
    let device = device();
    let whole = ramp([9, 6], &device);
    let kept = values(whole.clone());
    let (base, x) = (whole.clone().slice([2..5, 1..4]), whole.clone().slice([0..3, 2..6]));
    let weight = ramp([3, 4], &device).transpose();
    let expected = expected_linear(&base, &x, &weight);
    check_close(&values(linear(base, x, weight)), &expected, PRODUCT_TOLERANCE);
    // The base is a view of the first rows of a tensor that nothing else refers to.
    let base = ramp([9, 4], &device).slice([0..3, 0..4]);
    let x = ramp([3, 2], &device);
    let weight = ramp([2, 4], &device);
    let expected = expected_linear(&base, &x, &weight);
    let sum = linear(base, x, weight);
    assert_eq!(sum.dims(), [3, 4]);
    check_close(&values(sum), &expected, PRODUCT_TOLERANCE);
    assert_eq!(values(whole), kept);
}

#[test]
fn gradients_of_linear_match_finite_differences() {
    let device = device();
    for base_rows in [4, 1] {
        let base = ramp([base_rows, 3], &device);
        let (x, weight) = (ramp([4, 5], &device), ramp([5, 3], &device));
        check_gradient(base.clone(), |base| linear(base, x.clone(), weight.clone()));
        check_gradient(x.clone(), |x| linear(base.clone(), x, weight.clone()));
        check_gradient(weight.clone(), |weight| linear(base.clone(), x.clone(), weight));
    }
}

#[test]
fn gradients_of_linear_equal_those_of_the_reference_on_large_shapes() {
    let gradients = |linear: Linear, device: Device| {
        let device = device.autodiff();
        let base = ramp([1, 70], &device).require_grad();
        let x = ramp([600, 130], &device).require_grad();
        let weight = ramp([130, 70], &device).require_grad();
        let sum = linear(base.clone(), x.clone(), weight.clone());
        let grads = (sum * ramp([600, 70], &device)).sum().backward();
        let gradient = |of: &Tensor<2>| values(of.grad(&grads).expect("the gradient should exist"));
        [gradient(&base), gradient(&x), gradient(&weight)].concat()
    };
    let run = || {
        let expected = gradients(reference::linear, Device::flex());
        check_close(&gradients(linear, device()), &expected, PRODUCT_TOLERANCE);
    };
    // The forward pass has one product; the backward pass has two products and a sum of rows. The reference calls
    // Burn's ops, which are not counted.
    assert_eq!(launches_of(run), Launches { direct: 4, reference: 0 });
}

#[test]
fn no_gradient_is_computed_for_an_untracked_input() {
    let device = device().autodiff();
    let run = || {
        let weight = ramp([5, 3], &device).require_grad();
        let x = ramp([4, 5], &device.clone().inner()).autodiff();
        let base = ramp([1, 3], &device);
        linear(base, x, weight).sum().backward();
    };
    assert_eq!(launches_of(run), Launches { direct: 2, reference: 0 });
}

#[test]
fn relu_dropout_equals_relu_followed_by_dropout() {
    let device = device();
    for (n, width) in [(1u32, 1usize), (300, 7), (500, 256), (0, 3), (4, 0)] {
        for p in [0.0, 0.3] {
            let x = ramp([n as usize, width], &device);
            let relu = burn::tensor::activation::relu(x.clone());
            let expected = values(ops::dropout(relu, &nodes(n), RngKey::new(3), 2, p));
            let kept = values(x.clone());
            let got = values(relu_dropout(x.clone(), &nodes(n), RngKey::new(3), 2, p));
            assert_eq!(got, expected, "{n} x {width}, p {p}");
            assert_eq!(values(x), kept, "a shared input should not change");
        }
    }
    let x = ramp([40, 9], &device);
    let expected = values(reference::relu_dropout(x.clone(), &nodes(40), RngKey::new(3), 2, 0.5));
    assert_eq!(values(relu_dropout(x, &nodes(40), RngKey::new(3), 2, 0.5)), expected);
}

#[test]
fn relu_dropout_keeps_nan() {
    let x = Tensor::<2>::from_data([[f32::NAN, -1.0, 2.0]], &device());
    let got = values(relu_dropout(x, &nodes(1), RngKey::new(0), 0, 0.0));
    assert!(got[0].is_nan());
    assert_eq!(got[1..], [0.0, 2.0]);
}

#[test]
fn the_gradient_of_relu_dropout_matches_finite_differences() {
    // The values are farther from the kink at 0 than the step of the finite differences.
    let x = ramp([6, 10], &device());
    let x = x.clone() + x.sign() * 0.1;
    check_gradient(x, |x| relu_dropout(x, &nodes(6), RngKey::new(1), 0, 0.4));
}

#[test]
fn relu_dropout_draws_its_mask_once_per_step() {
    let device = device().autodiff();
    let x = ramp([30, 50], &device).require_grad();
    let run = || {
        let result = relu_dropout(x.clone(), &nodes(30), RngKey::new(8), 1, 0.3);
        let gradient = x.grad(&result.clone().sum().backward()).expect("the gradient should exist");
        let passes: Vec<bool> = values(gradient).iter().map(|value| *value != 0.0).collect();
        let kept: Vec<bool> = values(result).iter().map(|value| *value != 0.0).collect();
        assert_eq!(passes, kept);
    };
    assert_eq!(launches_of(run), Launches { direct: 2, reference: 0 });
}

/// The bits of a layer's outputs and gradients, for `[n_rows, d_in, d_out]`.
fn layer_bits([n_rows, d_in, d_out]: [usize; 3]) -> Vec<u32> {
    let device = device().autodiff();
    let x = ramp([n_rows, d_in], &device).require_grad();
    let weight = ramp([d_in, d_out], &device).require_grad();
    let bias = ramp([1, d_out], &device).require_grad();
    let hidden = linear(bias.clone(), x.clone(), weight.clone());
    let hidden = relu_dropout(hidden, &nodes(n_rows as u32), RngKey::new(1), 0, 0.5);
    let grads = (hidden.clone() * ramp([n_rows, d_out], &device)).sum().backward();
    let gradient = |of: &Tensor<2>| values(of.grad(&grads).expect("the gradient should exist"));
    let all = [values(hidden), gradient(&x), gradient(&weight), gradient(&bias)].concat();
    all.into_iter().map(f32::to_bits).collect()
}

/// Shapes on both sides of the limits of parallel loops. If a product were divided by the number of threads, the last rows
/// of those with a few rows more than a whole number of tasks would be summed in another order.
const SHAPES: [[usize; 3]; 6] = [
    [3000, 128, 256],
    [3073, 128, 256],
    [3074, 100, 100],
    [1025, 256, 256],
    [2708, 1433, 16],
    [650, 100, 100],
];

#[test]
fn results_are_bit_identical_for_any_number_of_threads() {
    // Threads have no effect on other devices.
    let shapes = if is_cpu(&device()) { &SHAPES[..] } else { &SHAPES[..1] };
    for &shape in shapes {
        let bits = |n_threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build();
            pool.expect("the thread pool should start").install(|| layer_bits(shape))
        };
        let one = bits(1);
        for (other, what) in [(bits(2), "2 threads"), (bits(5), "5 threads"), (layer_bits(shape), "no pool")]
        {
            assert!(one == other, "{shape:?}: {what} give other results than 1 thread");
        }
    }
}

#[test]
#[should_panic(expected = "base has 2 rows, expected 1 or 3")]
fn rejects_a_base_with_the_wrong_number_of_rows() {
    let device = device();
    let _ = linear(ramp([2, 4], &device), ramp([3, 5], &device), ramp([5, 4], &device));
}

#[test]
#[should_panic(expected = "x has 5 columns, but weight has 6 rows")]
fn rejects_a_weight_with_the_wrong_number_of_rows() {
    let device = device();
    let _ = linear(ramp([1, 4], &device), ramp([3, 5], &device), ramp([6, 4], &device));
}

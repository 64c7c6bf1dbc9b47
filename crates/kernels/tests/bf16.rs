//! Dense layers in bf16 on the CPU. The precision is a setting of the process, so these tests have their own process and
//! set it in one test function.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;

use burn::tensor::{Device, Tensor};
use kiln_kernels::ops::{
    MatmulPrecision, has_bf16_products, linear, matmul_precision_on, set_matmul_precision,
};
use kiln_kernels::testing::{ramp, values};

/// The bound of the error of a product of two values that are rounded to bf16, whose mantissa has 7 bits: each has a
/// relative error of at most 2^-8.
const PRODUCT_ERROR: f32 = 0.0079;

/// The results of a layer: its output, and the gradients of its input, its weights and its bias.
type Results = [Vec<f32>; 4];

/// Computes a layer and its gradients, for a gradient of its output that differs from element to element.
fn layer([n_rows, d_in, d_out]: [usize; 3], precision: MatmulPrecision) -> Results {
    set_matmul_precision(precision);
    let device = &Device::flex().autodiff();
    let draw = |shape: [usize; 2]| ramp(shape, device).require_grad();
    let (x, weight, bias) = (draw([n_rows, d_in]), draw([d_in, d_out]), draw([1, d_out]));
    let out = linear(bias.clone(), x.clone(), weight.clone());
    let gradients = (out.clone() * ramp([n_rows, d_out], device)).sum().backward();
    let of = |input: &Tensor<2>| values(input.grad(&gradients).unwrap());
    [values(out), of(&x), of(&weight), of(&bias)]
}

fn on_threads(n_threads: usize, shape: [usize; 3], precision: MatmulPrecision) -> Results {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
    pool.install(|| layer(shape, precision))
}

/// Checks that two products of `n_products` values each are close: factors are below 1, so the sum of the magnitudes of
/// the products is at most their number.
fn check_bf16(got: &[f32], expected: &[f32], n_products: usize) {
    let bound = PRODUCT_ERROR * n_products as f32;
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= bound, "{got}, expected {expected} within {bound}");
    }
    // Random errors mostly cancel, so the mean error of all elements is far smaller.
    let squares = got.iter().zip(expected).map(|(got, expected)| f64::from(got - expected).powi(2));
    let mean = (squares.sum::<f64>() / got.len() as f64).sqrt();
    assert!(mean < f64::from(PRODUCT_ERROR) * (n_products as f64).sqrt(), "{mean}");
}

#[test]
fn layers_in_bf16_are_close_to_f32_and_bit_identical_on_any_number_of_threads() {
    set_matmul_precision(MatmulPrecision::Bf16);
    if !has_bf16_products() {
        assert_eq!(matmul_precision_on(&Device::flex()), MatmulPrecision::F32);
        // The test harness captures the output of `println!`.
        let text = "kiln-skip: cpu: layers in bf16: a processor without AVX512-BF16";
        return writeln!(std::io::stdout(), "{text}").unwrap();
    }
    assert_eq!(matmul_precision_on(&Device::flex()), MatmulPrecision::Bf16);
    for shape @ [n_rows, d_in, d_out] in [[4700, 100, 47], [333, 129, 64], [40, 1433, 8]] {
        let f32 = layer(shape, MatmulPrecision::F32);
        let bf16 = on_threads(1, shape, MatmulPrecision::Bf16);
        for (at, n_products) in [d_in, d_out, n_rows].into_iter().enumerate() {
            assert_ne!(bf16[at], f32[at], "{shape:?}: product {at} was not computed in bf16");
            check_bf16(&bf16[at], &f32[at], n_products);
        }
        assert_eq!(bf16[3], f32[3], "the gradient of the bias is not a product");
        for n_threads in [2, 3] {
            assert_eq!(on_threads(n_threads, shape, MatmulPrecision::Bf16), bf16, "{n_threads} threads");
        }
    }
    // Small matrices of weights, and narrow ones.
    for shape in [[3000, 16, 32], [3000, 7, 200], [3000, 200, 7], [3000, 256, 1]] {
        assert_eq!(layer(shape, MatmulPrecision::Bf16), layer(shape, MatmulPrecision::F32), "{shape:?}");
    }
}

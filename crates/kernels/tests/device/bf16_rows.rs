//! Tests of rows and products in bf16 on CUDA devices. The precision is a setting of the process, so another process of this
//! program runs them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::Write;

use burn::tensor::{DType, Device, Tensor};
use kiln_kernels::ops::{self, Aggregation, MatmulPrecision, MessageWeights, OwnRow, Reduction};
use kiln_kernels::testing::{check_close, device, on_cpu, ramp, values};
use kiln_kernels::{DeviceBlock, to_vec_f32};

use super::common::{is_on_cuda, process_of, with_hub};
use super::features::gathered_rows_equal_the_source_for_any_cache_size;

/// The variable that is set in the process with the precision.
const IN_BF16: &str = "KILN_TEST_BF16";

/// The relative error of a value that is rounded to bf16, whose mantissa has 7 bits.
const ROUNDING: f32 = 1.0 / 256.0;

#[test]
fn rows_and_products_in_bf16_have_the_error_of_the_rounding() {
    if !is_on_cuda() {
        return writeln!(std::io::stdout(), "kiln-skip: gpu: rows in bf16: KILN_DEVICE names no CUDA device")
            .unwrap();
    }
    if std::env::var_os(IN_BF16).is_none() {
        let mut command = process_of("bf16_rows::rows_and_products_in_bf16_have_the_error_of_the_rounding");
        let output = command.env(IN_BF16, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    ops::set_matmul_precision(MatmulPrecision::Bf16);
    check_aggregations();
    check_gradients();
    check_products();
    // The features are integers that bf16 represents.
    gathered_rows_equal_the_source_for_any_cache_size();
}

/// Returns the values of a tensor, rounded to bf16.
fn rounded<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    x.cast(DType::BF16).cast(DType::F32)
}

/// Returns an aggregation whose weights are a ramp, rounded to bf16 on the CPU, whose sums have exact factors then.
fn aggregations(n_edges: usize, device: &Device) -> Vec<Aggregation> {
    let weights = |columns: usize| rounded(ramp::<2>([n_edges, columns], device));
    let of_edges: Tensor<1> = weights(1).flatten(0, 1);
    vec![
        Reduction::Sum.into(),
        Aggregation { own: OwnRow::Concatenated, ..Reduction::Mean.into() },
        Aggregation { own: OwnRow::Scaled(1.5), ..Reduction::Sum.into() },
        Reduction::Max.into(),
        Aggregation { weights: Some(of_edges.into()), ..Reduction::Sum.into() },
        Aggregation {
            weights: Some(MessageWeights::PerBasis(weights(2))),
            own: OwnRow::Concatenated,
            ..Reduction::Sum.into()
        },
    ]
}

/// Results are rounded once, from sums in f32 of rounded rows.
fn check_aggregations() {
    let host = with_hub();
    let block = DeviceBlock::upload(&host, &device());
    let on_host = DeviceBlock::upload(&host, &Device::flex());
    let x = ramp::<2>([host.n_src(), 33], &device());
    let got = aggregations(host.n_edges(), &device());
    let expected = aggregations(host.n_edges(), &Device::flex());
    for (got, expected) in got.into_iter().zip(expected) {
        let form = format!("{:?}, {:?}", got.reduce, got.own);
        let got = ops::aggregate_for_linear(&block, x.clone(), got);
        assert_eq!(got.dtype(), DType::BF16, "{form}");
        let expected = values(ops::aggregate(&on_host, on_cpu(&rounded(x.clone())), expected));
        check_close(&values(got.cast(DType::F32)), &expected, 1.1 * ROUNDING);
    }
    // Attention weights stay f32.
    let weights = MessageWeights::PerHead(ramp([host.n_edges(), 3], &device()));
    let heads = Aggregation { weights: Some(weights), ..Reduction::Sum.into() };
    assert_eq!(ops::aggregate_for_linear(&block, x, heads).dtype(), DType::F32);
}

/// Gradients of rows and weights in f32 are f32, and close to those of f32.
fn check_gradients() {
    let host = with_hub();
    let gradients = |device: Device| {
        let device = device.autodiff();
        let block = DeviceBlock::upload(&host, &device);
        let x = ramp::<2>([host.n_src(), 20], &device).require_grad();
        let weight = ramp::<2>([40, 12], &device).require_grad();
        let neigh = ramp::<2>([20, 12], &device).require_grad();
        let beside = Aggregation { own: OwnRow::Concatenated, ..Reduction::Mean.into() };
        let rows = ops::aggregate_for_linear(&block, x.clone(), beside);
        let layer = ops::linear(Tensor::zeros([1, 12], &device), rows, weight.clone());
        let projected = ops::aggregate_f32(&block, ops::product(x.clone(), neigh.clone()), Reduction::Mean);
        let loss = ((layer + projected) * ramp([host.n_dst(), 12], &device)).sum();
        let grads = loss.backward();
        [&x, &weight, &neigh].map(|input| {
            let gradient = input.grad(&grads).expect("the input should have a gradient");
            assert_eq!(gradient.dtype(), DType::F32);
            to_vec_f32(gradient)
        })
    };
    for (got, expected) in gradients(device()).iter().zip(&gradients(Device::flex())) {
        // Three factors are rounded, and the rows' gradient once more.
        let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        assert!(0.0 < largest && got != expected);
        let scaled = |values: &[f32]| values.iter().map(|value| value / largest).collect::<Vec<_>>();
        check_close(&scaled(got), &scaled(expected), 4.0 * ROUNDING);
    }
}

/// Products of bf16 rows and f32 weights are f32, also without rows.
fn check_products() {
    let device = device();
    for n_rows in [70, 0] {
        let x = ramp::<2>([n_rows, 24], &device).cast(DType::BF16);
        let weight = rounded(ramp::<2>([24, 10], &device));
        let got = ops::product(x.clone(), weight.clone());
        assert_eq!(got.dtype(), DType::F32, "{n_rows} rows");
        let expected = on_cpu(&x.clone().cast(DType::F32)).matmul(on_cpu(&weight));
        check_close(&values(got), &values(expected), 1e-5);
        let base = Tensor::<2>::zeros([1, 10], &device);
        assert_eq!(ops::linear(base, x, weight).dtype(), DType::F32, "{n_rows} rows");
    }
}

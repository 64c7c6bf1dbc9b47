//! Ops of messages that are rows of edges: results and gradients against products with the matrices of the edges' ends.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::tensor::activation::leaky_relu;
use burn::tensor::{DType, Device, Tensor, TensorData};
use kiln_graph::Block;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, Reduction};
use kiln_kernels::testing::{check_close, device, ramp, values};
use kiln_kernels::{DeviceBlock, to_vec_f32};

use super::common::{six_nodes, with_hub};

const TOLERANCE: f32 = 1e-5;
const HUB_TOLERANCE: f32 = 1e-3;
const SLOPE: f32 = 0.2;

/// The matrix `[n_edges, n]` that is 1 for each edge and its node at one end.
fn ends(host: &Block, n: usize, node_of: impl Fn(usize) -> usize, device: &Device) -> Tensor<2> {
    let n_edges = host.n_edges();
    let mut ones = vec![0.0_f32; n_edges * n];
    for edge in 0..n_edges {
        ones[edge * n + node_of(edge)] = 1.0;
    }
    Tensor::from_data(TensorData::new(ones, [n_edges, n]), device)
}

fn sources(host: &Block, device: &Device) -> Tensor<2> {
    ends(host, host.n_src(), |edge| host.indices()[edge].0 as usize, device)
}

fn dsts(host: &Block, device: &Device) -> Tensor<2> {
    let dst_of = |edge: usize| host.indptr().partition_point(|&first| first as usize <= edge) - 1;
    ends(host, host.n_dst(), dst_of, device)
}

/// The sum of each of `n` equal ranges of columns.
fn range_sums(x: Tensor<2>, n: usize) -> Tensor<2> {
    let [n_rows, width] = x.dims();
    x.reshape([n_rows, n, width / n]).sum_dim(2).reshape([n_rows, n])
}

type Op<'a> = &'a dyn Fn(&[Tensor<2>]) -> Tensor<2>;

/// Checks the result of an op and the gradients of its inputs of these shapes. The definition runs on the CPU, because Burn's
/// products on CUDA round their inputs.
fn check(host: &Block, shapes: &[[usize; 2]], op: Op<'_>, definition: Op<'_>) {
    let run = |device: &Device, op: Op<'_>| {
        let of_input = |(i, shape): (usize, &[usize; 2])| {
            (ramp(*shape, device) * (0.9 - 0.4 * i as f32) + 0.03).require_grad()
        };
        let inputs: Vec<_> = shapes.iter().enumerate().map(of_input).collect();
        let result = op(&inputs);
        let grads = (result.clone() * ramp(result.dims(), device)).sum().backward();
        let of_inputs = inputs.iter().map(|input| values(input.grad(&grads).unwrap()));
        std::iter::once(values(result)).chain(of_inputs).collect::<Vec<_>>()
    };
    let tolerance = if host.n_edges() < 100 { TOLERANCE } else { HUB_TOLERANCE };
    let got = run(&device().autodiff(), op);
    for (got, expected) in got.iter().zip(run(&Device::flex().autodiff(), definition)) {
        assert!(expected.iter().any(|value| *value != 0.0));
        check_close(got, &expected, tolerance);
    }
}

#[test]
fn rows_of_sources_and_sums_of_edges_equal_the_definition() {
    let cpu = Device::flex().autodiff();
    for (host, width) in [(six_nodes(), 3), (six_nodes(), 16), (with_hub(), 4)] {
        let block = DeviceBlock::upload(&host, &device());
        let (n_src, n_edges) = (host.n_src(), host.n_edges());
        let of_sources = |x: &[Tensor<2>]| sources(&host, &cpu).matmul(x[0].clone());
        check(&host, &[[n_src, width]], &|x| ops::source_rows(&block, x[0].clone()), &of_sources);
        let into = dsts(&host, &cpu).transpose();
        let sum = |x: &[Tensor<2>]| ops::aggregate_edges(&block, x[0].clone(), Reduction::Sum);
        check(&host, &[[n_edges, width]], &sum, &|x| into.clone().matmul(x[0].clone()));
        let per_basis = |x: &[Tensor<2>]| {
            let weights = Some(MessageWeights::PerBasis(x[1].clone()));
            ops::aggregate_edges(&block, x[0].clone(), Aggregation { weights, ..Reduction::Sum.into() })
        };
        let definition = |x: &[Tensor<2>]| {
            let of_basis = |basis| {
                into.clone().matmul(x[0].clone() * x[1].clone().narrow(1, basis, 1).expand([n_edges, width]))
            };
            Tensor::cat(vec![of_basis(0), of_basis(1)], 1)
        };
        check(&host, &[[n_edges, width], [n_edges, 2]], &per_basis, &definition);
    }
}

#[test]
fn dots_and_scores_of_edges_equal_the_definition() {
    let cpu = Device::flex().autodiff();
    for (host, n_heads, d) in [(six_nodes(), 1, 1), (six_nodes(), 3, 5), (with_hub(), 2, 4)] {
        let block = DeviceBlock::upload(&host, &device());
        let (n_dst, n_edges, width) = (host.n_dst(), host.n_edges(), n_heads * d);
        let of_dsts = |x: &Tensor<2>| dsts(&host, &cpu).matmul(x.clone());
        check(
            &host,
            &[[n_edges, width], [n_dst, width]],
            &|x| ops::edge_row_dots(&block, x[0].clone(), x[1].clone(), n_heads),
            &|x| range_sums(x[0].clone() * of_dsts(&x[1]), n_heads),
        );
        check(
            &host,
            &[[n_edges, width], [n_dst, width], [n_heads, d]],
            &|x| ops::edge_row_scores(&block, x[0].clone(), x[1].clone(), x[2].clone(), SLOPE),
            &|x| {
                let sums = leaky_relu(x[0].clone() + of_dsts(&x[1]), f64::from(SLOPE));
                range_sums(sums * x[2].clone().reshape([1, width]).expand([n_edges, width]), n_heads)
            },
        );
    }
}

/// Features of half precision are widened before they are added.
#[test]
fn sums_of_half_precision_rows_are_f32() {
    let host = six_nodes();
    let block = DeviceBlock::upload(&host, &device());
    let rows = ramp([host.n_edges(), 3], &device()).cast(DType::BF16);
    let expected = ops::aggregate_edges(&block, rows.clone().cast(DType::F32), Reduction::Mean);
    let got = ops::aggregate_edges(&block, rows, Reduction::Mean);
    assert_eq!((got.dtype(), to_vec_f32(got)), (DType::F32, to_vec_f32(expected)));
}

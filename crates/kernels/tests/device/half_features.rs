//! Tests of the ops that read features of half precision in a model of f32 weights: their results and gradients are
//! f32 and bit-identical to those of rows that were widened before.

use burn::tensor::{DType, Device, Tensor};
use kiln_graph::Block;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, OwnRow, Reduction};
use kiln_kernels::testing::{Launches, device, launches_of, ramp, supports, values};
use kiln_kernels::{DeviceBlock, is_cpu};

use super::common::{block, six_nodes, with_hub};

const HALF: [DType; 2] = [DType::F16, DType::BF16];

fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    assert_eq!(tensor.dtype(), DType::F32);
    values(tensor).into_iter().map(f32::to_bits).collect()
}

/// Returns a block whose aggregations run in several threads.
fn large() -> Block {
    block(
        3000,
        &(0..2500).map(|dst| (0..dst % 9).map(|k| (dst * 7 + k * 411) % 3000).collect()).collect::<Vec<_>>(),
    )
}

/// Returns all aggregations of rows whose width is a multiple of 4, with the weights that they use.
fn aggregations(block: &DeviceBlock, device: &Device) -> Vec<(Aggregation, Option<Tensor<2>>)> {
    let weights = |n| ramp([block.n_edges(), n], device).require_grad();
    let mut all = Vec::new();
    for own in [OwnRow::Excluded, OwnRow::Concatenated, OwnRow::Scaled(0.5)] {
        for reduce in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
            all.push((Aggregation { own, ..reduce.into() }, None));
            let (of_edges, per_edge) =
                (weights(1), |weights: &Tensor<2>| weights.clone().squeeze_dim::<1>(1).into());
            // The reference of the maximum with weights is slow for many edges.
            if reduce != Reduction::Max || block.n_edges() < 100 {
                all.push((Aggregation { reduce, weights: Some(per_edge(&of_edges)), own }, Some(of_edges)));
            }
            if reduce == Reduction::Max {
                continue;
            }
            let of_heads = weights(4);
            let per_head = Some(MessageWeights::PerHead(of_heads.clone()));
            all.push((Aggregation { reduce, weights: per_head, own }, Some(of_heads)));
            if !matches!(own, OwnRow::Scaled(_)) {
                let of_bases = weights(2);
                let per_basis = Some(MessageWeights::PerBasis(of_bases.clone()));
                all.push((Aggregation { reduce, weights: per_basis, own }, Some(of_bases)));
            }
        }
    }
    all
}

/// Returns the result of an aggregation and the gradient of its weights, if it has weights.
fn aggregated(
    block: &DeviceBlock,
    x: &Tensor<2>,
    (aggregation, weights): &(Aggregation, Option<Tensor<2>>),
) -> Vec<Vec<u32>> {
    let result = ops::aggregate_f32(block, x.clone(), aggregation.clone());
    let Some(weights) = weights else { return vec![bits(result)] };
    let factors = ramp(result.dims(), &result.device());
    let gradients = (result.clone() * factors).sum().backward();
    let of_weights = weights.grad(&gradients).expect("the weights should have a gradient");
    vec![bits(result), bits(of_weights)]
}

#[test]
fn aggregations_of_half_precision_rows_are_those_of_widened_rows() {
    let device = device().autodiff();
    for host in [six_nodes(), with_hub(), large()] {
        let block = DeviceBlock::upload(&host, &device);
        for dtype in HALF.into_iter().filter(|dtype| supports(&device, *dtype)) {
            for width in if host.n_src() < 10 { vec![4, 36, 128] } else { vec![36] } {
                let x = ramp([host.n_src(), width], &device).cast(dtype);
                let widened = x.clone().cast(DType::F32);
                // A tape runs backward once, so both runs have their own weights.
                for (case, same) in
                    aggregations(&block, &device).into_iter().zip(aggregations(&block, &device))
                {
                    let (got, expected) =
                        (aggregated(&block, &x, &case), aggregated(&block, &widened, &same));
                    let Aggregation { reduce, own, .. } = case.0;
                    assert!(got == expected, "{reduce:?}, {own:?}, {dtype:?}, width {width}");
                }
            }
        }
    }
}

#[test]
fn half_precision_rows_need_not_be_contiguous() {
    let device = device();
    let block = DeviceBlock::upload(&six_nodes(), &device);
    for dtype in HALF.into_iter().filter(|dtype| supports(&device, *dtype)) {
        let x = ramp([6, 20], &device).cast(dtype).narrow(1, 3, 16);
        let beside = Aggregation { own: OwnRow::Concatenated, ..Reduction::Mean.into() };
        let sum = |x| bits(ops::aggregate_f32(&block, x, beside.clone()));
        assert_eq!(sum(x.clone()), sum(x.clone().cast(DType::F32)));
        let weight = ramp([16, 3], &device);
        let product = |x| bits(ops::linear(Tensor::zeros([1, 3], &device), x, weight.clone()));
        assert_eq!(product(x.clone()), product(x.cast(DType::F32)));
    }
}

#[test]
fn linear_layers_of_half_precision_rows_are_those_of_widened_rows() {
    let device = device().autodiff();
    for dtype in HALF.into_iter().filter(|dtype| supports(&device, *dtype)) {
        for [n_rows, d_in, d_out] in [[1, 1, 1], [5, 3, 4], [300, 40, 33], [4500, 100, 64]] {
            let x = ramp([n_rows, d_in], &device).cast(dtype);
            for base_rows in [1, n_rows] {
                let run = |x: Tensor<2>| {
                    let weight = ramp([d_in, d_out], &device).require_grad();
                    let base = ramp([base_rows, d_out], &device).require_grad();
                    let result = ops::linear(base.clone(), x, weight.clone());
                    let gradients = (result.clone() * ramp([n_rows, d_out], &device)).sum().backward();
                    let gradient = |of: &Tensor<2>| of.grad(&gradients).expect("there should be a gradient");
                    [bits(result), bits(gradient(&weight)), bits(gradient(&base))]
                };
                let what = format!("{n_rows} x {d_in} x {d_out}, base of {base_rows}, {dtype:?}");
                assert!(run(x.clone()) == run(x.clone().cast(DType::F32)), "{what}");
            }
        }
    }
}

/// A gradient of half-precision rows is that of the widened rows, rounded once.
#[test]
fn gradients_of_half_precision_rows_are_rounded_once() {
    let device = device().autodiff();
    let block = DeviceBlock::upload(&large(), &device);
    type Op = fn(&DeviceBlock, Tensor<2>) -> Tensor<2>;
    let of_ops: [Op; 3] = [
        |block, x| ops::aggregate_f32(block, x, Reduction::Mean),
        |block, x| ops::aggregate_f32(block, x, Reduction::Max),
        |_, x| {
            let device = x.device();
            ops::linear(Tensor::zeros([1, 5], &device), x, ramp([8, 5], &device).require_grad())
        },
    ];
    for dtype in HALF.into_iter().filter(|dtype| supports(&device, *dtype)) {
        for op in of_ops {
            let gradient = |x: Tensor<2>| {
                let x = x.require_grad();
                let result = op(&block, x.clone());
                let factors = ramp(result.dims(), &device);
                let gradients = (result * factors).sum().backward();
                x.grad(&gradients).expect("the rows should have a gradient")
            };
            let x = ramp([3000, 8], &device).cast(dtype);
            let got = gradient(x.clone());
            assert_eq!(got.dtype(), dtype);
            let rounded = gradient(x.cast(DType::F32)).cast(dtype).cast(DType::F32);
            assert!(bits(got.cast(DType::F32)) == bits(rounded), "{dtype:?}");
        }
    }
}

#[test]
fn features_of_half_precision_do_not_run_the_reference_on_the_cpu() {
    let device = device().autodiff();
    if !is_cpu(&device) {
        return;
    }
    let block = DeviceBlock::upload(&six_nodes(), &device);
    for dtype in HALF {
        let launches = launches_of(|| {
            let x = ramp([6, 8], &device).cast(dtype);
            let weight = ramp([8, 3], &device).require_grad();
            let rows = ops::aggregate_f32(&block, x.clone(), Reduction::Mean);
            let out = ops::linear(
                ops::linear(Tensor::zeros([1, 3], &device), rows, weight.clone()),
                ops::take_dst(&block, x),
                weight,
            );
            out.sum().backward();
        });
        assert_eq!(launches.reference, 0, "{dtype:?}");
        assert!(Launches::default() != launches);
    }
}

#[test]
#[should_panic(expected = "the weights are BF16, expected F32: cast them")]
fn rejects_weights_of_half_precision() {
    let device = Device::flex();
    let block = DeviceBlock::upload(&six_nodes(), &device);
    let weights = Tensor::<1>::ones([block.n_edges()], (&device, DType::BF16));
    let sum = Aggregation { weights: Some(weights.into()), ..Reduction::Sum.into() };
    ops::aggregate_f32(&block, Tensor::ones([6, 4], (&device, DType::BF16)), sum);
}

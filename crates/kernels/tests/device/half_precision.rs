//! Tests of half precision: rows are stored in f16 or bf16, added in f32, and rounded once.

use burn::tensor::{DType, Int, Tensor, TensorData};
use kiln_kernels::ops::{self, Aggregation, MessageWeights, OwnRow, Reduction};
use kiln_kernels::testing::{check_close, device, ramp, supports, values};
use kiln_kernels::{DeviceBlock, is_cpu};
use kiln_sample::RngKey;

use super::common::{block, six_nodes, weighted_sum, with_hub};

/// An op on a block and rows.
type Op = fn(&DeviceBlock, Tensor<2>) -> Tensor<2>;

const OPS: [(&str, Op); 9] = [
    ("sum", |block, x| ops::aggregate(block, x, Reduction::Sum)),
    ("mean", |block, x| ops::aggregate(block, x, Reduction::Mean)),
    ("max", |block, x| ops::aggregate(block, x, Reduction::Max)),
    ("own beside mean", |block, x| {
        ops::aggregate(block, x, Aggregation { own: OwnRow::Concatenated, ..Reduction::Mean.into() })
    }),
    ("own beside sum", |block, x| {
        ops::aggregate(block, x, Aggregation { own: OwnRow::Concatenated, ..Reduction::Sum.into() })
    }),
    ("own plus sum", |block, x| {
        ops::aggregate(block, x, Aggregation { own: OwnRow::Scaled(0.5), ..Reduction::Sum.into() })
    }),
    ("destination rows", ops::take_dst),
    ("messages", |block, x| {
        let rows: Tensor<2> = ramp([block.n_edges(), x.dims()[1]], &x.device()) * -8.0;
        // Multiples of an eighth are values of every float type.
        let rows = (rows.round() / 8.0).cast(x.dtype());
        ops::edge_relu_sum(block, x, rows)
    }),
    ("weighted max", |block, x| {
        let weights: Tensor<1> = ramp([block.n_edges()], &x.device()) * -8.0;
        let weights = (weights.round() / 8.0).cast(x.dtype());
        ops::aggregate(block, x, Aggregation { weights: Some(weights.into()), ..Reduction::Max.into() })
    }),
];

/// Returns the gradient of a weighted sum of all results. The weights are small integers, which every float type
/// represents.
fn gradient(op: Op, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    let x = x.require_grad();
    let result = op(block, x.clone());
    let [n_rows, width] = result.dims();
    let factors = (ramp([n_rows, width], &result.device()) * 4.0).round().cast(result.dtype());
    let gradients = (result * factors).sum().backward();
    x.grad(&gradients).expect("the rows should have a gradient")
}

#[test]
fn gradients_in_half_precision_are_summed_in_f32() {
    let device = device().autodiff();
    // Source 3 has 1,500 edges, so a sum in half precision would be off by more than the tolerance.
    let mut in_srcs: Vec<Vec<u32>> = (0..1500).map(|dst| vec![3, dst % 40]).collect();
    in_srcs.push((0..40).cycle().take(900).collect());
    let block = DeviceBlock::upload(&block(1600, &in_srcs), &device);
    let has = |(dtype, _): &(DType, f32)| supports(&device, *dtype);
    for (dtype, tolerance) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)].into_iter().filter(has) {
        for (name, op) in OPS {
            // The runs in half precision and in f32 get inputs with identical values.
            let x = ramp([1600, 5], &device).cast(dtype);
            let got = gradient(op, &block, x.clone());
            assert_eq!(got.dtype(), dtype, "{name}");
            if is_cpu(&device) {
                continue; // The CPU runs the reference, which adds in half precision.
            }
            let expected = values(gradient(op, &block, x.cast(DType::F32)));
            println!("{name} in {dtype:?}");
            check_close(&values(got.cast(DType::F32)), &expected, tolerance);
        }
    }
}

/// The results must equal those of f32 inputs with the same values, rounded once to half precision.
#[test]
fn dropout_and_gradients_of_weights_run_in_half_precision() {
    let device = device().autodiff();
    let has = |(dtype, _): &(DType, f32)| supports(&device, *dtype);
    let ids = TensorData::new((0..6).collect::<Vec<u32>>(), [6]);
    let nodes = Tensor::<1, Int>::from_data(ids, (&device, DType::U32));
    let block = DeviceBlock::upload(&six_nodes(), &device);
    let run = |dtype: DType, rounded_to: DType| {
        // The run in half precision and the run in f32 get inputs with identical values.
        let half = |x: Tensor<2>| x.cast(rounded_to).cast(dtype);
        let x = half(ramp([6, 4], &device)).require_grad();
        let dropped = ops::dropout(x.clone(), &nodes, RngKey::new(5), 0, 0.5);
        let rectified = ops::relu_dropout(x.clone(), &nodes, RngKey::new(5), 1, 0.5);
        let of_rectified =
            x.grad(&rectified.clone().sum().backward()).expect("the rows should have a gradient");
        let weights = half(ramp([1, block.n_edges()], &device)).reshape([block.n_edges()]).require_grad();
        let sum = ops::aggregate(&block, x.clone().detach(), weighted_sum(weights.clone()));
        let of_weights = weights.grad(&sum.sum().backward()).expect("the weights should have a gradient");
        assert!([dropped.dtype(), rectified.dtype(), of_rectified.dtype(), of_weights.dtype()] == [dtype; 4]);
        let of_weights = of_weights.reshape([1, block.n_edges()]);
        [dropped, rectified, of_rectified, of_weights].map(|result| values(result.cast(DType::F32)))
    };
    for (dtype, tolerance) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)].into_iter().filter(has) {
        let got = run(dtype, dtype);
        if is_cpu(&device) {
            continue; // The CPU runs the reference, which computes in half precision.
        }
        for (got, expected) in got.iter().zip(&run(DType::F32, dtype)) {
            check_close(got, expected, tolerance);
        }
    }
}

/// The tolerances correspond to one rounding of the result: f16 has 11 significant bits, bf16 has 8. The run in half
/// precision and the run in f32 get the same inputs, which are already rounded.
#[test]
fn aggregations_in_half_precision_are_summed_in_f32() {
    let device = device().autodiff();
    let host = with_hub();
    let block = DeviceBlock::upload(&host, &device);
    let has = |(dtype, _): &(DType, f32)| supports(&device, *dtype);
    for (dtype, tolerance) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)].into_iter().filter(has) {
        for width in [3, 16] {
            let x = ramp([host.n_src(), width], &device).cast(dtype).cast(DType::F32);
            for (name, op) in OPS {
                println!("{name} in {dtype:?}, width {width}");
                let result = op(&block, x.clone().cast(dtype));
                assert_eq!(result.dtype(), dtype, "{name}");
                if is_cpu(&device) {
                    continue; // The CPU runs the reference, which adds in half precision.
                }
                check_close(&values(result.cast(DType::F32)), &values(op(&block, x.clone())), tolerance);
            }
        }
    }
}

/// Scores, their softmax and its masks are rounded to half precision one after the other, so the tolerances are larger
/// than those of a single op.
#[test]
fn attention_and_sums_per_head_and_basis_run_in_half_precision() {
    let device = device().autodiff();
    let has = |(dtype, _): &(DType, f32)| supports(&device, *dtype);
    let block = DeviceBlock::upload(&six_nodes(), &device);
    let run = |dtype: DType, rounded_to: DType| {
        let half = |x: Tensor<2>| x.cast(rounded_to).cast(dtype).require_grad();
        let inputs = [ramp([6, 4], &device), ramp([5, 4], &device), ramp([2, 2], &device)].map(half);
        let [src, dst, vectors] = inputs.clone();
        let weights =
            ops::edge_softmax(&block, ops::attention_scores(&block, src.clone(), dst, vectors, 0.2));
        let weights = ops::edge_dropout(&block, weights, RngKey::new(5), 0, 0.25);
        let sum = |weights| Aggregation { weights: Some(weights), ..Reduction::Mean.into() };
        let heads = ops::aggregate(&block, src.clone(), sum(MessageWeights::PerHead(weights.clone())));
        let bases = ops::aggregate(&block, src, sum(MessageWeights::PerBasis(weights)));
        let grads = (heads.clone().sum() + bases.clone().sum()).backward();
        let of_inputs = inputs.map(|input| input.grad(&grads).expect("an input should have a gradient"));
        let results = [vec![heads, bases], of_inputs.to_vec()].concat();
        assert!(results.iter().all(|result| result.dtype() == dtype));
        results.into_iter().map(|result| values(result.cast(DType::F32))).collect::<Vec<_>>()
    };
    for (dtype, tolerance) in [(DType::F16, 5e-3), (DType::BF16, 4e-2)].into_iter().filter(has) {
        let got = run(dtype, dtype);
        if is_cpu(&device) {
            continue; // The CPU runs the reference, which adds in half precision.
        }
        for (got, expected) in got.iter().zip(&run(DType::F32, dtype)) {
            println!("{dtype:?}");
            check_close(got, expected, tolerance);
        }
    }
}

/// Results and gradients of ops whose f32 runs have their own tests equal those of f32 inputs with the same values, rounded.
#[test]
fn softmax_of_hubs_messages_and_ops_within_rows_run_in_half_precision() {
    type Run = fn(&DeviceBlock, Tensor<2>) -> Tensor<2>;
    let device = device().autodiff();
    let host = with_hub();
    let block = DeviceBlock::upload(&host, &device);
    let ops: [(&str, Run); 4] = [
        ("softmax", ops::edge_softmax),
        ("messages", |block, rows| {
            let [_, width] = rows.dims();
            let x = (ramp([301, width], &rows.device()) * 8.0).round() / 8.0;
            ops::edge_relu_sum(block, x.cast(rows.dtype()), rows)
        }),
        ("means", |_, x| ops::mean_of_ranges(x, 2)),
        ("logarithms of softmax", |_, x| ops::log_softmax(x)),
    ];
    let has = |(dtype, _): &(DType, f32)| supports(&device, *dtype);
    for (dtype, tolerance) in [(DType::F16, 5e-3), (DType::BF16, 4e-2)].into_iter().filter(has) {
        for (name, op) in ops {
            let run = |dtype: DType| {
                let x = (ramp([host.n_edges(), 4], &device) * 8.0).round() / 8.0;
                let x = x.cast(dtype).require_grad();
                let result = op(&block, x.clone());
                assert_eq!(result.dtype(), dtype, "{name}");
                let factors = (ramp(result.dims(), &device) * 4.0).round().cast(dtype);
                let gradients = (result.clone() * factors).sum().backward();
                let gradient = x.grad(&gradients).expect("the rows should have a gradient");
                [result, gradient].map(|rows: Tensor<2>| values(rows.cast(DType::F32)))
            };
            let got = run(dtype);
            if is_cpu(&device) {
                continue; // The CPU runs the reference, which adds in half precision.
            }
            println!("{name} in {dtype:?}");
            for (got, expected) in got.iter().zip(&run(DType::F32)) {
                check_close(got, expected, tolerance);
            }
        }
    }
}

//! Tests of aggregations with own rows: on blocks of any shape, the results equal those of two separate ops, bit for
//! bit on the CPU and up to rounding on other devices.

use burn::tensor::{Device, Tensor};
use kiln_graph::Block;
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
use kiln_kernels::testing::{check_close, device, ramp, reference, values};
use proptest::prelude::*;

use super::common::{block, six_nodes};

type Op = fn(&DeviceBlock, Tensor<2>) -> Tensor<2>;

/// Each aggregation with own rows, the same computation as two ops, and its reference.
const OPS: [(&str, [Op; 3]); 3] = [
    (
        "own beside mean",
        [
            |block, x| ops::aggregate(block, x, beside(Reduction::Mean)),
            |block, x| beside_apart(block, x, Reduction::Mean),
            |block, x| reference::aggregate(block, x, beside(Reduction::Mean)),
        ],
    ),
    (
        "own beside sum",
        [
            |block, x| ops::aggregate(block, x, beside(Reduction::Sum)),
            |block, x| beside_apart(block, x, Reduction::Sum),
            |block, x| reference::aggregate(block, x, beside(Reduction::Sum)),
        ],
    ),
    (
        "own plus sum",
        [
            |block, x| ops::aggregate(block, x, plus_sum()),
            plus_apart,
            |block, x| reference::aggregate(block, x, plus_sum()),
        ],
    ),
];

const OWN_WEIGHT: f32 = 1.25;

/// The tolerance for a difference of one rounding in each of a few hundred additions.
const FUSED_TOLERANCE: f32 = 1e-5;

/// The tolerance for sums of a few hundred numbers that are added in different orders.
const SUM_TOLERANCE: f32 = 1e-4;

fn beside(reduce: Reduction) -> Aggregation {
    Aggregation { own: OwnRow::Concatenated, ..reduce.into() }
}

fn plus_sum() -> Aggregation {
    Aggregation { own: OwnRow::Scaled(OWN_WEIGHT), ..Reduction::Sum.into() }
}

fn beside_apart(block: &DeviceBlock, x: Tensor<2>, reduce: Reduction) -> Tensor<2> {
    Tensor::cat(vec![ops::take_dst(block, x.clone()), ops::aggregate(block, x, reduce)], 1)
}

fn plus_apart(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    ops::take_dst(block, x.clone()) * OWN_WEIGHT + ops::aggregate(block, x, Reduction::Sum)
}

/// Returns the result, and the gradient of a fixed weighted sum of the result.
fn run(op: Op, block: &DeviceBlock, width: usize) -> [Vec<f32>; 2] {
    let x = ramp([block.n_src(), width], &device().autodiff()).require_grad();
    let result = op(block, x.clone());
    let factors = ramp(result.dims(), &result.device());
    let grads = (result.clone() * factors).sum().backward();
    [values(result), values(x.grad(&grads).expect("the gradient should exist"))]
}

fn check(host: &Block, width: usize) {
    for (name, [together, apart, reference]) in OPS {
        let block = DeviceBlock::upload(host, &device().autodiff());
        let got = run(together, &block, width);
        let apart = run(apart, &block, width);
        if device() == Device::flex() {
            assert!(got == apart, "{name}, width {width}");
        } else {
            // A single kernel may fuse a multiplication with an addition and then rounds once, whereas two launches
            // round twice.
            got.iter().zip(&apart).for_each(|(got, apart)| check_close(got, apart, FUSED_TOLERANCE));
        }
        let [result, gradient] = run(reference, &block, width);
        check_close(&got[0], &result, SUM_TOLERANCE);
        check_close(&got[1], &gradient, SUM_TOLERANCE);
    }
}

#[test]
fn hubs_and_empty_destinations_equal_separate_ops() {
    let hub: Vec<u32> = (0..3000).map(|edge| edge * edge % 61).collect();
    let in_srcs: Vec<Vec<u32>> =
        (0..50).map(|dst| if dst == 20 { hub.clone() } else { vec![dst; dst as usize % 3] }).collect();
    for width in [16, 128, 300] {
        check(&block(61, &in_srcs), width);
    }
}

#[test]
fn small_blocks_equal_separate_ops() {
    for width in [1, 16, 130] {
        check(&six_nodes(), width);
        check(&block(5, &[vec![], vec![]]), width);
        check(&block(2, &[vec![1, 1], vec![0]]), width);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn fused_own_rows_are_bit_identical_to_separate_ops(
        in_srcs in prop::collection::vec(prop::collection::vec(0_u32..30, 0..20), 1..30),
        n_more in 0_usize..40,
        width in prop_oneof![1_usize..40, Just(64), Just(100), Just(128), Just(256), Just(602)],
    ) {
        check(&block(30 + n_more, &in_srcs), width);
    }
}

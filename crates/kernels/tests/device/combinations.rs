//! Tests of all combinations of reduction, edge weights and own row against the reference, which Burn differentiates.

use burn::tensor::Tensor;
use kiln_graph::Block;
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
use kiln_kernels::testing::{
    Launches, check_close, check_gradient, device, launches_of, ramp, reference, values,
};

use crate::common::{block, six_nodes, with_hub};

/// The tolerance for sums of up to 20,000 numbers that are added in different orders.
const SUM_TOLERANCE: f32 = 1e-3;

/// The tolerance for sums of a few dozen numbers that are added in different orders.
const SHORT_SUM_TOLERANCE: f32 = 1e-5;

type Op = fn(&DeviceBlock, Tensor<2>, Aggregation) -> Tensor<2>;

/// Calls `check` with each combination.
fn for_each(check: impl Fn(Reduction, bool, OwnRow)) {
    for reduce in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
        for own in [OwnRow::Excluded, OwnRow::Concatenated, OwnRow::Scaled(-0.75)] {
            for is_weighted in [false, true] {
                check(reduce, is_weighted, own);
            }
        }
    }
}

/// Returns weights of both signs, so that the maximum of weighted rows differs from that of unweighted ones.
fn weights(block: &DeviceBlock) -> Tensor<1> {
    ramp([block.n_edges()], &device().autodiff())
}

/// Returns the result, the gradient of the rows, and the gradient of the weights if there are weights.
fn run(
    op: Op,
    host: &Block,
    width: usize,
    reduce: Reduction,
    is_weighted: bool,
    own: OwnRow,
) -> Vec<Vec<f32>> {
    let device = device().autodiff();
    let block = DeviceBlock::upload(host, &device);
    let x = ramp([block.n_src(), width], &device).require_grad();
    let weights = is_weighted.then(|| weights(&block).require_grad());
    let result = op(&block, x.clone(), Aggregation { reduce, weights: weights.clone(), own });
    let factors = ramp(result.dims(), &device);
    let grads = (result.clone() * factors).sum().backward();
    let mut all = vec![values(result), values(x.grad(&grads).expect("the rows should have a gradient"))];
    all.extend(weights.map(|weights| values(weights.grad(&grads).expect("weights should have a gradient"))));
    all
}

fn check(host: &Block, width: usize, tolerance: f32) {
    for_each(|reduce, is_weighted, own| {
        println!("{reduce:?}, weights {is_weighted}, own row {own:?}, width {width}");
        let got = run(ops::aggregate, host, width, reduce, is_weighted, own);
        let expected = run(reference::aggregate, host, width, reduce, is_weighted, own);
        for (got, expected) in got.iter().zip(&expected) {
            check_close(got, expected, tolerance);
        }
    });
}

#[test]
fn every_combination_of_aggregation_options_equals_the_reference() {
    for width in [1, 3, 16, 130] {
        check(&six_nodes(), width, SHORT_SUM_TOLERANCE);
    }
    check(&with_hub(), 5, SUM_TOLERANCE);
}

#[test]
fn blocks_without_edges_give_own_rows_and_zeros() {
    let device = device().autodiff();
    let block = DeviceBlock::upload(&block(4, &[vec![], vec![]]), &device);
    for_each(|reduce, is_weighted, own| {
        println!("{reduce:?}, weights {is_weighted}, own row {own:?}");
        let x = ramp([4, 3], &device).require_grad();
        let weights = is_weighted.then(|| weights(&block));
        let result = ops::aggregate(&block, x.clone(), Aggregation { reduce, weights, own });
        let gradient = x.grad(&result.clone().sum().backward()).expect("the rows should have a gradient");
        let own_rows = &values(x)[..6];
        let (expected, of_own_rows): (Vec<f32>, f32) = match own {
            OwnRow::Excluded => (vec![0.0; 6], 0.0),
            OwnRow::Concatenated => {
                (own_rows.chunks(3).flat_map(|row| [row, &[0.0; 3]].concat()).collect(), 1.0)
            }
            OwnRow::Scaled(factor) => (own_rows.iter().map(|value| value * factor).collect(), factor),
        };
        assert_eq!(values(result), expected);
        assert_eq!(values(gradient), [[of_own_rows; 6], [0.0; 6]].concat());
    });
}

#[test]
fn gradients_of_every_combination_match_finite_differences() {
    let device = device();
    let block = DeviceBlock::upload(&six_nodes(), &device.clone().autodiff());
    for_each(|reduce, is_weighted, own| {
        println!("{reduce:?}, weights {is_weighted}, own row {own:?}");
        let with = |weights| Aggregation { reduce, weights, own };
        let fixed = is_weighted.then(|| weights(&block));
        check_gradient(ramp([6, 3], &device), |x| ops::aggregate(&block, x, with(fixed.clone())));
        if is_weighted {
            let x = ramp([6, 3], &device);
            let of_weights = |weights| ops::aggregate(&block, x.clone(), with(Some(weights)));
            check_gradient(ramp([block.n_edges()], &device), of_weights);
        }
    });
}

/// Each run has two or three ops: the forward pass, the gradient of the rows, and that of the weights if there are
/// weights.
#[test]
fn only_maxima_of_weighted_rows_run_the_reference() {
    for_each(|reduce, is_weighted, own| {
        let launches = launches_of(|| drop(run(ops::aggregate, &six_nodes(), 3, reduce, is_weighted, own)));
        let n_ops = if is_weighted { 3 } else { 2 };
        let expected = match (reduce, is_weighted) {
            (Reduction::Max, true) => Launches { direct: 0, reference: n_ops },
            _ => Launches { direct: n_ops, reference: 0 },
        };
        assert_eq!(launches, expected, "{reduce:?}, weights {is_weighted}, own row {own:?}");
    });
}

//! Tests of gradients against finite differences.

use burn::tensor::Tensor;
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, OwnRow, Reduction};
use kiln_kernels::testing::{check_gradient, device, ramp, values};
use kiln_sample::RngKey;

use super::common::{block, six_nodes, weighted_sum};

fn check(width: usize, op: impl Fn(&DeviceBlock, Tensor<2>) -> Tensor<2>) {
    let device = device();
    for host in [six_nodes(), block(9, &[vec![1, 8, 8, 3, 4, 5, 6, 7, 2, 0], vec![], vec![8]])] {
        let block = DeviceBlock::upload(&host, &device);
        check_gradient(ramp([host.n_src(), width], &device), |x| op(&block, x));
    }
}

#[test]
fn the_gradient_of_a_sum_matches_finite_differences() {
    check(3, |block, x| ops::aggregate(block, x, Reduction::Sum));
}

#[test]
fn the_gradient_of_a_mean_matches_finite_differences() {
    check(3, |block, x| ops::aggregate(block, x, Reduction::Mean));
}

#[test]
fn the_gradients_of_own_rows_with_neighbors_match_finite_differences() {
    let with = |reduce: Reduction, own| {
        check(3, |block, x| ops::aggregate(block, x, Aggregation { own, ..reduce.into() }));
    };
    with(Reduction::Mean, OwnRow::Concatenated);
    with(Reduction::Sum, OwnRow::Concatenated);
    with(Reduction::Sum, OwnRow::Scaled(-0.75));
}

#[test]
fn the_gradient_of_a_maximum_matches_finite_differences() {
    check(5, |block, x| ops::aggregate(block, x, Reduction::Max));
}

#[test]
fn the_gradient_of_destination_rows_matches_finite_differences() {
    check(2, ops::take_dst);
}

#[test]
fn the_gradient_of_dropout_matches_finite_differences() {
    check(6, |block, x| ops::dropout(x, block.src_nodes(), RngKey::new(3), 1, 0.4));
}

#[test]
fn both_gradients_of_a_weighted_sum_match_finite_differences() {
    let device = device();
    let host = six_nodes();
    let block = DeviceBlock::upload(&host, &device);
    let weights = block.weights().expect("test blocks should have weights").clone();
    check_gradient(ramp([6, 3], &device), |x| ops::aggregate(&block, x, weighted_sum(weights.clone())));
    let x = ramp([6, 3], &device);
    check_gradient(weights, |weights| ops::aggregate(&block, x.clone(), weighted_sum(weights)));
}

#[test]
fn the_first_of_equal_maxima_gets_the_whole_gradient() {
    let device = device().autodiff();
    let block = DeviceBlock::upload(&block(4, &[vec![2, 3, 1, 2], vec![]]), &device);
    let x = Tensor::<2>::from_data([[9.0], [5.0], [5.0], [5.0]], &device).require_grad();
    let grads = ops::aggregate(&block, x.clone(), Reduction::Max).sum().backward();
    let gradient = x.grad(&grads).expect("the gradient should exist");
    assert_eq!(values(gradient), [0.0, 0.0, 1.0, 0.0]);
}

#[test]
#[should_panic(expected = "value 0")]
fn check_gradient_detects_a_wrong_gradient() {
    // The detached factor of the square does not contribute to the gradient.
    check_gradient(ramp([2, 2], &device()) + 2.0, |x: Tensor<2>| x.clone() * x.detach());
}

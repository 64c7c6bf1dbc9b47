//! Tests of all combinations of reduction, edge weights and own row against the reference, which Burn differentiates.

use burn::tensor::Tensor;
use kiln_graph::Block;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, OwnRow, Reduction};
use kiln_kernels::testing::{
    Launches, check_close, check_gradient, device, launches_of, ramp, reference, values,
};
use kiln_kernels::{DeviceBlock, is_cpu};

use super::common::{block, six_nodes, with_hub};

/// The tolerance for sums of up to 20,000 numbers that are added in different orders.
const SUM_TOLERANCE: f32 = 1e-3;

/// The tolerance for sums of a few dozen numbers that are added in different orders.
const SHORT_SUM_TOLERANCE: f32 = 1e-5;

type Op = fn(&DeviceBlock, Tensor<2>, Aggregation) -> Tensor<2>;

/// The weights of the edges.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Weights {
    None,
    PerEdge,
    PerHead(usize),
    PerBasis(usize),
}

/// Calls `check` with each combination that the op accepts.
fn for_each(check: impl Fn(Reduction, Weights, OwnRow)) {
    for reduce in [Reduction::Sum, Reduction::Mean, Reduction::Max] {
        for own in [OwnRow::Excluded, OwnRow::Concatenated, OwnRow::Scaled(-0.75)] {
            for weights in [
                Weights::None,
                Weights::PerEdge,
                Weights::PerHead(1),
                Weights::PerHead(3),
                Weights::PerBasis(2),
            ] {
                let is_matrix = matches!(weights, Weights::PerHead(_) | Weights::PerBasis(_));
                let is_matrix_max = is_matrix && reduce == Reduction::Max;
                let adds_own = matches!((weights, own), (Weights::PerBasis(_), OwnRow::Scaled(_)));
                if !is_matrix_max && !adds_own {
                    check(reduce, weights, own);
                }
            }
        }
    }
}

/// Returns weights of both signs, so that the maximum of weighted rows differs from that of unweighted ones.
fn weights(block: &DeviceBlock, kind: Weights) -> Option<Tensor<2>> {
    let n_columns = match kind {
        Weights::None => return None,
        Weights::PerEdge => 1,
        Weights::PerHead(n) | Weights::PerBasis(n) => n,
    };
    Some(ramp([block.n_edges(), n_columns], &device().autodiff()))
}

/// Returns the aggregation with these weights, `[n_edges, k]`.
fn aggregation(reduce: Reduction, kind: Weights, weights: Option<Tensor<2>>, own: OwnRow) -> Aggregation {
    let weights = weights.map(|weights| match kind {
        Weights::None | Weights::PerEdge => MessageWeights::PerEdge(weights.squeeze_dim(1)),
        Weights::PerHead(_) => MessageWeights::PerHead(weights),
        Weights::PerBasis(_) => MessageWeights::PerBasis(weights),
    });
    Aggregation { reduce, weights, own }
}

/// Returns the result, the gradient of the rows, and the gradient of the weights if there are weights.
fn run(op: Op, host: &Block, width: usize, reduce: Reduction, kind: Weights, own: OwnRow) -> Vec<Vec<f32>> {
    let device = device().autodiff();
    let block = DeviceBlock::upload(host, &device);
    let x = ramp([block.n_src(), width], &device).require_grad();
    let weights = weights(&block, kind).map(Tensor::require_grad);
    let result = op(&block, x.clone(), aggregation(reduce, kind, weights.clone(), own));
    let factors = ramp(result.dims(), &device);
    let grads = (result.clone() * factors).sum().backward();
    let mut all = vec![values(result), values(x.grad(&grads).expect("the rows should have a gradient"))];
    all.extend(weights.map(|weights| values(weights.grad(&grads).expect("weights should have a gradient"))));
    all
}

fn check(host: &Block, width: usize, tolerance: f32) {
    for_each(|reduce, kind, own| {
        if matches!(kind, Weights::PerHead(n) if !width.is_multiple_of(n)) {
            return;
        }
        println!("{reduce:?}, weights {kind:?}, own row {own:?}, width {width}");
        let got = run(ops::aggregate, host, width, reduce, kind, own);
        let expected = run(reference::aggregate, host, width, reduce, kind, own);
        for (got, expected) in got.iter().zip(&expected) {
            check_close(got, expected, tolerance);
        }
    });
}

#[test]
fn every_combination_of_aggregation_options_equals_the_reference() {
    for width in [1, 3, 16, 48, 102, 130] {
        check(&six_nodes(), width, SHORT_SUM_TOLERANCE);
    }
    check(&with_hub(), 6, SUM_TOLERANCE);
}

#[test]
fn blocks_without_edges_give_own_rows_and_zeros() {
    let device = device().autodiff();
    let block = DeviceBlock::upload(&block(4, &[vec![], vec![]]), &device);
    for_each(|reduce, kind, own| {
        println!("{reduce:?}, weights {kind:?}, own row {own:?}");
        let x = ramp([4, 3], &device).require_grad();
        let result = ops::aggregate(&block, x.clone(), aggregation(reduce, kind, weights(&block, kind), own));
        let gradient = x.grad(&result.clone().sum().backward()).expect("the rows should have a gradient");
        let own_rows = &values(x)[..6];
        let width = if let Weights::PerBasis(n) = kind { 3 * n } else { 3 };
        let (expected, of_own_rows): (Vec<f32>, f32) = match own {
            OwnRow::Excluded => (vec![0.0; 2 * width], 0.0),
            OwnRow::Concatenated => {
                (own_rows.chunks(3).flat_map(|row| [row, &vec![0.0; width]].concat()).collect(), 1.0)
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
    for_each(|reduce, kind, own| {
        println!("{reduce:?}, weights {kind:?}, own row {own:?}");
        let with = |weights| aggregation(reduce, kind, weights, own);
        let fixed = weights(&block, kind);
        check_gradient(ramp([6, 3], &device), |x| ops::aggregate(&block, x, with(fixed.clone())));
        if let Some(weights) = fixed {
            let x = ramp([6, 3], &device);
            let of_weights = |weights| ops::aggregate(&block, x.clone(), with(Some(weights)));
            check_gradient(ramp(weights.dims(), &device), of_weights);
        }
    });
}

/// Each run has two or three ops: the forward pass, the gradient of the rows, and that of the weights if there are
/// weights.
#[test]
fn only_maxima_of_weighted_rows_run_the_reference_and_only_on_the_cpu() {
    for_each(|reduce, kind, own| {
        let launches = launches_of(|| drop(run(ops::aggregate, &six_nodes(), 3, reduce, kind, own)));
        let n_ops = if kind == Weights::None { 2 } else { 3 };
        let expected = match (reduce, kind) {
            (Reduction::Max, Weights::PerEdge) if is_cpu(&device()) => {
                Launches { direct: 0, reference: n_ops }
            }
            _ => Launches { direct: n_ops, reference: 0 },
        };
        assert_eq!(launches, expected, "{reduce:?}, weights {kind:?}, own row {own:?}");
    });
}

#[test]
#[should_panic(expected = "x has 4 columns, expected a multiple of the 3 heads")]
fn the_columns_of_heads_must_have_equal_width() {
    let block = DeviceBlock::upload(&six_nodes(), &device());
    let weights = MessageWeights::PerHead(ramp([block.n_edges(), 3], &device()));
    ops::aggregate(
        &block,
        ramp([6, 4], &device()),
        Aggregation { weights: Some(weights), ..Reduction::Sum.into() },
    );
}

#[test]
#[should_panic(expected = "got 3 weights for 8 edges, expected one per edge")]
fn every_edge_must_have_weights() {
    let block = DeviceBlock::upload(&six_nodes(), &device());
    let weights = MessageWeights::PerBasis(ramp([3, 2], &device()));
    ops::aggregate(
        &block,
        ramp([6, 4], &device()),
        Aggregation { weights: Some(weights), ..Reduction::Sum.into() },
    );
}

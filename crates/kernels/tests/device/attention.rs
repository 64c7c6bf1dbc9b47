//! Tests of the ops of attention layers against their references, which Burn differentiates.

use burn::tensor::{Device, Tensor};
use kiln_graph::{Block, BlockParts, EdgeId};
use kiln_kernels::testing::{
    Launches, check_close, check_gradient, device, launches_of, ramp, reference, values,
};
use kiln_kernels::{DeviceBlock, ops};
use kiln_sample::{KeyDomain, RngKey};

use super::common::{block, six_nodes, with_hub};

const SLOPE: f32 = 0.2;
const TOLERANCE: f32 = 1e-5;

/// The tolerance for sums of up to 20,000 numbers that are added in different orders.
const HUB_TOLERANCE: f32 = 1e-3;

type Scores = fn(&DeviceBlock, Tensor<2>, Tensor<2>, Tensor<2>, f32) -> Tensor<2>;
type Softmax = fn(&DeviceBlock, Tensor<2>) -> Tensor<2>;

/// Returns the result and the gradients of all inputs for fixed gradients of the result.
fn run(inputs: Vec<Tensor<2>>, op: impl Fn(&[Tensor<2>]) -> Tensor<2>) -> Vec<Vec<f32>> {
    let inputs: Vec<_> = inputs.into_iter().map(Tensor::require_grad).collect();
    let result = op(&inputs);
    let factors = ramp(result.dims(), &device().autodiff());
    let grads = (result.clone() * factors).sum().backward();
    let of_inputs = inputs.iter().map(|input| values(input.grad(&grads).expect("an input has a gradient")));
    std::iter::once(values(result)).chain(of_inputs).collect()
}

/// Returns rows of sources and destinations and weights, of both signs.
fn score_inputs(host: &Block, n_heads: usize, d: usize, device: &Device) -> Vec<Tensor<2>> {
    let width = n_heads * d;
    let dst = ramp([host.n_dst(), width], device) * -0.7 + 0.05;
    vec![ramp([host.n_src(), width], device), dst, ramp([n_heads, d], device)]
}

fn check_scores(host: &Block, n_heads: usize, d: usize, tolerance: f32) {
    let device = device().autodiff();
    let block = DeviceBlock::upload(host, &device);
    let with = |op: Scores| {
        run(score_inputs(host, n_heads, d, &device), |inputs| {
            op(&block, inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), SLOPE)
        })
    };
    for (got, expected) in with(ops::attention_scores).iter().zip(&with(reference::attention_scores)) {
        check_close(got, expected, tolerance);
    }
}

#[test]
fn scores_and_their_gradients_equal_the_reference() {
    for (n_heads, d) in [(1, 1), (4, 1), (3, 5), (2, 16), (4, 33), (1, 64)] {
        check_scores(&six_nodes(), n_heads, d, TOLERANCE);
    }
    check_scores(&with_hub(), 2, 8, HUB_TOLERANCE);
}

#[test]
fn gradients_of_scores_match_finite_differences() {
    let host = six_nodes();
    let block = DeviceBlock::upload(&host, &device().autodiff());
    // The sums of the rows stay away from 0, where the leaky ReLU has no derivative.
    let signs: Vec<f32> = (0..host.n_dst() * 6).map(|i| if i % 2 == 0 { 3.0 } else { -3.0 }).collect();
    let dst = Tensor::<1>::from_data(&signs[..], &device()).reshape([host.n_dst(), 6]);
    let inputs = || vec![ramp([6, 6], &device()), dst.clone(), ramp([2, 3], &device())];
    for k in 0..3 {
        check_gradient(inputs().swap_remove(k), |input| {
            let mut all = inputs();
            all[k] = input;
            let [src, dst, weights] = <[_; 3]>::try_from(all).expect("there are three inputs");
            ops::attention_scores(&block, src, dst, weights, SLOPE)
        });
    }
}

/// Returns rows of sources and destinations, of both signs.
fn dot_inputs(host: &Block, width: usize, device: &Device) -> Vec<Tensor<2>> {
    vec![ramp([host.n_src(), width], device), ramp([host.n_dst(), width], device) * -0.7 + 0.05]
}

/// Checks the dot products, and the gradients: the sums of the other rows over the edges of a node, with the gradients of the
/// dot products as weights.
fn check_dots(host: &Block, n_heads: usize, d: usize, tolerance: f32) {
    let device = device().autodiff();
    let block = DeviceBlock::upload(host, &device);
    let width = n_heads * d;
    let got = run(dot_inputs(host, width, &device), |inputs| {
        ops::edge_dots(&block, inputs[0].clone(), inputs[1].clone(), n_heads)
    });
    let inputs = dot_inputs(host, width, &device).into_iter().map(values).collect::<Vec<_>>();
    let factors = values(ramp([host.n_edges(), n_heads], &device));
    let mut expected = vec![Vec::new(), vec![0.0; inputs[0].len()], vec![0.0; inputs[1].len()]];
    for (dst, ends) in host.indptr().windows(2).enumerate() {
        for edge in ends[0] as usize..ends[1] as usize {
            let src = host.indices()[edge].index();
            for head in 0..n_heads {
                let columns = head * d..(head + 1) * d;
                let products =
                    columns.clone().map(|k| inputs[0][src * width + k] * inputs[1][dst * width + k]);
                expected[0].push(products.sum::<f32>());
                for k in columns {
                    let factor = factors[edge * n_heads + head];
                    expected[1][src * width + k] += factor * inputs[1][dst * width + k];
                    expected[2][dst * width + k] += factor * inputs[0][src * width + k];
                }
            }
        }
    }
    for (got, expected) in got.iter().zip(&expected) {
        check_close(got, expected, tolerance);
    }
}

#[test]
fn dot_products_of_edges_and_their_gradients_equal_the_formula() {
    for (n_heads, d) in [(1, 1), (4, 1), (3, 5), (2, 16), (4, 33), (1, 64)] {
        check_dots(&six_nodes(), n_heads, d, TOLERANCE);
    }
    check_dots(&with_hub(), 2, 8, HUB_TOLERANCE);
    check_dots(&block(3, &[vec![], vec![]]), 2, 3, TOLERANCE);
}

#[test]
fn gradients_of_dot_products_of_edges_match_finite_differences() {
    let host = six_nodes();
    let block = DeviceBlock::upload(&host, &device().autodiff());
    let inputs = || dot_inputs(&host, 6, &device());
    for k in 0..2 {
        check_gradient(inputs().swap_remove(k), |input| {
            let mut all = inputs();
            all[k] = input;
            let [srcs, dsts] = <[_; 2]>::try_from(all).expect("there are two inputs");
            ops::edge_dots(&block, srcs, dsts, 2)
        });
    }
}

fn check_softmax(host: &Block, n_heads: usize, tolerance: f32) {
    let device = device().autodiff();
    let block = DeviceBlock::upload(host, &device);
    let with = |op: Softmax| {
        run(vec![ramp([host.n_edges(), n_heads], &device) * 9.0], |inputs| op(&block, inputs[0].clone()))
    };
    for (got, expected) in with(ops::edge_softmax).iter().zip(&with(reference::edge_softmax)) {
        check_close(got, expected, tolerance);
    }
}

#[test]
fn the_softmax_and_its_gradient_equal_the_reference() {
    for n_heads in [1, 3, 4] {
        check_softmax(&six_nodes(), n_heads, TOLERANCE);
    }
    check_softmax(&with_hub(), 2, TOLERANCE);
}

#[test]
fn gradients_of_the_softmax_match_finite_differences() {
    let block = DeviceBlock::upload(&six_nodes(), &device().autodiff());
    check_gradient(ramp([block.n_edges(), 2], &device()), |scores| ops::edge_softmax(&block, scores));
}

#[test]
fn the_softmax_of_scores_of_any_size_is_finite_and_sums_to_one() {
    let host = block(3, &[vec![], vec![0], vec![1, 2, 0]]);
    let hub = block(3, &[vec![], vec![0], vec![1; 20_000]]);
    for host in [host, hub] {
        let scores: Vec<f32> = (0..host.n_edges()).map(|edge| 1e4 * ((edge % 7) as f32 - 3.0)).collect();
        let scores = Tensor::<1>::from_data(&scores[..], &device()).unsqueeze_dim(1);
        let block = DeviceBlock::upload(&host, &device());
        let weights = values(ops::edge_softmax(&block, scores));
        for ends in host.indptr().windows(2).filter(|ends| ends[0] < ends[1]) {
            let sum: f32 = weights[ends[0] as usize..ends[1] as usize].iter().sum();
            assert!((sum - 1.0).abs() < 1e-3, "the weights of {ends:?} add up to {sum}");
        }
    }
}

#[test]
fn blocks_without_edges_have_no_scores_and_gradients_of_zeros() {
    let device = device().autodiff();
    let host = block(3, &[vec![], vec![]]);
    let block = DeviceBlock::upload(&host, &device);
    let results = run(score_inputs(&host, 2, 3, &device), |inputs| {
        let scores =
            ops::attention_scores(&block, inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), SLOPE);
        ops::edge_softmax(&block, scores)
    });
    assert!(results[0].is_empty());
    assert!(results[1..].iter().flatten().all(|value| *value == 0.0), "{results:?}");
}

/// The ids of the edges exceed 32 bits; the masks of two edges whose ids differ by 2^32 differ.
#[test]
fn edge_dropout_draws_by_edge_id() {
    let ids = [5, 5 + (1 << 32), 7, (1 << 40) + 9];
    let parts = block(2, &[vec![0, 1, 0, 1]]).into_parts();
    let host = Block::new(BlockParts { edge_ids: ids.map(EdgeId).to_vec(), ..parts });
    let block = DeviceBlock::upload(&host, &device().autodiff());
    let (key, n_columns, p) = (RngKey::new(11), 12, 0.5);
    let x = Tensor::<2>::ones([4, n_columns], &device().autodiff()).require_grad();
    let masked = ops::edge_dropout(&block, x.clone(), key, 3, p);
    let grads = (masked.clone() * ramp([4, n_columns], &device().autodiff())).sum().backward();
    let draws = key.fold_in(KeyDomain::EdgeDropout, 3);
    let expected: Vec<f32> = ids
        .iter()
        .flat_map(|&id| (0..n_columns as u32).map(move |column| (id, column)))
        .map(|(id, column)| {
            let words = draws.draw4((id >> 32) as u32, id as u32, column / 4);
            if words[column as usize % 4] >= 1 << 31 { 2.0 } else { 0.0 }
        })
        .collect();
    assert_eq!(values(masked), expected);
    assert_ne!(expected[..n_columns], expected[n_columns..2 * n_columns]);
    let factors = values(ramp([4, n_columns], &device()));
    let of_x: Vec<f32> = expected.iter().zip(factors).map(|(mask, factor)| mask * factor).collect();
    assert_eq!(values(x.grad(&grads).expect("x has a gradient")), of_x);
}

#[test]
fn elu_and_its_gradient_equal_the_formula() {
    let device = device().autodiff();
    let inputs = [-30.0, -2.0, -1e-4, -0.0, 0.0, 0.5, 3.0, f32::NAN];
    let x = Tensor::<1>::from_data(inputs, &device).reshape([2, 4]).require_grad();
    let y = ops::elu(x.clone());
    let factors = ramp([2, 4], &device);
    let grads = (y.clone() * factors.clone()).sum().backward();
    let elu = |x: f32| if x < 0.0 { x.exp_m1() } else { x };
    let got = values(y);
    check_close(&got[..7], &inputs.map(elu)[..7], 1e-6);
    assert!(got[7].is_nan());
    let slopes = inputs.map(|x: f32| if x < 0.0 { x.exp() } else { 1.0 });
    let expected: Vec<f32> =
        slopes.iter().zip(values(factors)).map(|(slope, factor)| slope * factor).collect();
    check_close(&values(x.grad(&grads).expect("x has a gradient"))[..7], &expected[..7], 1e-6);
}

#[test]
fn no_op_of_attention_runs_the_reference() {
    let device = device().autodiff();
    let host = six_nodes();
    let block = DeviceBlock::upload(&host, &device);
    let launches = launches_of(|| {
        run(score_inputs(&host, 4, 2, &device), |inputs| {
            let [src, dst, weights] = [0, 1, 2].map(|k: usize| inputs[k].clone());
            let scores = ops::attention_scores(&block, src, dst, weights, SLOPE);
            ops::edge_dropout(&block, ops::edge_softmax(&block, scores), RngKey::new(0), 0, 0.5)
        });
    });
    assert_eq!(launches, Launches { direct: 3 + 2 + 3, reference: 0 });
    let launches = launches_of(|| {
        run(dot_inputs(&host, 8, &device), |inputs| {
            ops::edge_dots(&block, inputs[0].clone(), inputs[1].clone(), 4)
        });
    });
    assert_eq!(launches, Launches { direct: 3, reference: 0 });
}

#[test]
#[should_panic(expected = "dst has 4 columns, expected 3 for each of 2 heads")]
fn rows_of_another_width_are_rejected() {
    let block = DeviceBlock::upload(&six_nodes(), &device());
    let (src, dst) = (ramp([6, 6], &device()), ramp([5, 4], &device()));
    ops::attention_scores(&block, src, dst, ramp([2, 3], &device()), SLOPE);
}

#[test]
#[should_panic(expected = "should be [n_dst, 6], as wide as those of sources")]
fn dot_products_of_rows_of_another_width_are_rejected() {
    let block = DeviceBlock::upload(&six_nodes(), &device());
    ops::edge_dots(&block, ramp([6, 6], &device()), ramp([block.n_dst(), 4], &device()), 2);
}

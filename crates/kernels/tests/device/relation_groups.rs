//! Tests of the ops on blocks whose edges are grouped by relation, against loops over destinations, relations and edges.

use burn::tensor::{DType, Tensor};
use kiln_graph::{Block, BlockParts, Metagraph, NodeId, NodeTypes, RelationGroups};
use kiln_kernels::ops::{self, Aggregation, Reduction};
use kiln_kernels::testing::{Launches, check_close, check_gradient, device, launches_of, ramp, values};
use kiln_kernels::{DeviceBlock, DeviceRelationGroups};

use super::common;

/// A product of up to three rows, and sums of a few numbers of about 1, in another order.
const TOLERANCE: f32 = 1e-5;

/// The nodes 0 to 2 have type 0, the nodes 3 to 6 type 2, the nodes 7 and 8 type 3; type 1 has no nodes.
fn types() -> NodeTypes {
    NodeTypes::new([("a", 3), ("none", 0), ("b", 4), ("c", 2)]).expect("the types should be valid")
}

/// Relations 1 and 3 are into type 0, relation 0 into type 1, relation 2 into type 2; none is into type 3.
fn metagraph() -> Metagraph {
    Metagraph::new(4, vec![[0, 1], [2, 0], [0, 2], [0, 0]]).expect("the relations should be valid")
}

/// The sources 4, 0, 7, 1, 5, 2, 3 of which the first four are destinations, with edge weights.
fn block() -> Block {
    let in_srcs = [vec![1, 3, 3, 5], vec![0, 4, 6, 3], vec![], vec![0]];
    let edge_types = Some(vec![2, 2, 2, 2, 1, 1, 1, 3, 1]);
    let srcs = [4, 0, 7, 1, 5, 2, 3].map(NodeId).to_vec();
    Block::new(BlockParts { srcs, edge_types, ..common::block(7, &in_srcs).into_parts() })
}

fn groups() -> RelationGroups {
    RelationGroups::new(&block(), &types(), &metagraph()).expect("the block should fit the types")
}

fn uploaded() -> DeviceRelationGroups {
    DeviceRelationGroups::new(groups(), &device())
}

/// Computes the aggregate of each segment.
fn expected_rows(groups: &RelationGroups, x: &[f32], width: usize, mean: bool, weighted: bool) -> Vec<f32> {
    let parts = groups.parts();
    let mut rows = Vec::new();
    for ends in parts.indptr.windows(2) {
        let entries = ends[0] as usize..ends[1] as usize;
        for column in 0..width {
            let weight = |entry: usize| parts.weights.as_ref().map_or(1.0, |weights| weights[entry]);
            let term = |entry: usize| {
                x[parts.indices[entry].index() * width + column] * if weighted { weight(entry) } else { 1.0 }
            };
            let sum: f32 = entries.clone().map(term).sum();
            rows.push(if mean && !entries.is_empty() { sum / entries.len() as f32 } else { sum });
        }
    }
    rows
}

#[test]
fn segments_are_aggregated_by_relation() {
    let (device, groups) = (device(), groups());
    for width in [1, 5, 64] {
        let x: Tensor<2> = ramp([7, width], &device);
        let of_x = values(x.clone());
        for (reduce, mean) in [(Reduction::Sum, false), (Reduction::Mean, true)] {
            let got = ops::aggregate_groups(&uploaded(), x.clone(), reduce);
            assert_eq!(got.dims(), [groups.n_segments(), width]);
            check_close(&values(got), &expected_rows(&groups, &of_x, width, mean, false), TOLERANCE);
            let weights = uploaded().weights().cloned().expect("the block should have weights");
            let weighted = Aggregation { weights: Some(weights.into()), ..reduce.into() };
            let got = ops::aggregate_groups(&uploaded(), x.clone(), weighted);
            check_close(&values(got), &expected_rows(&groups, &of_x, width, mean, true), TOLERANCE);
        }
    }
}

#[test]
fn rows_of_half_precision_are_widened() {
    let device = device();
    let x: Tensor<2> = ramp([7, 4], &device);
    let half = x.cast(DType::F16);
    let of_half = ops::aggregate_groups(&uploaded(), half.clone(), Reduction::Mean);
    let of_wide = ops::aggregate_groups(&uploaded(), half.cast(DType::F32), Reduction::Mean);
    assert_eq!(values(of_half), values(of_wide));
}

/// Computes the products in the order of the block, for matrices one below the other.
fn expected_products(bias: &[f32], rows: &[f32], weight: &[f32], d_in: usize, d_out: usize) -> Vec<f32> {
    let groups = groups();
    let order = groups.parts().order.clone().expect("the types of the destinations should be mixed");
    let (mut by_type, mut segment, mut matrix) = (Vec::new(), 0, 0);
    for (node_type, group) in groups.parts().types.iter().enumerate() {
        for _ in 0..group.n_dst {
            for column in 0..d_out {
                let of = |k: usize| rows[segment * d_in + k] * weight[(matrix * d_in + k) * d_out + column];
                let sum: f32 = (0..group.n_segments * d_in).map(of).sum();
                by_type.push(bias[node_type * d_out + column] + sum);
            }
            segment += group.n_segments;
        }
        matrix += group.n_segments;
    }
    order.iter().flat_map(|&row| by_type[row as usize * d_out..][..d_out].to_vec()).collect()
}

#[test]
fn each_type_has_its_matrices_and_bias() {
    let device = device();
    // The matrices are those of 3 + 2 + 2 + 1 segments.
    for (d_in, d_out) in [(3, 2), (16, 33)] {
        let (bias, x) = (ramp([4, d_out], &device), ramp([groups().n_segments(), d_in], &device));
        let weight: Tensor<2> = ramp([8 * d_in, d_out], &device);
        let got = ops::grouped_linear(&uploaded(), bias.clone(), x.clone(), weight.clone());
        assert_eq!(got.dims(), [4, d_out]);
        let expected = expected_products(&values(bias), &values(x), &values(weight), d_in, d_out);
        check_close(&values(got), &expected, 1e-4);
    }
}

#[test]
fn gradients_match_finite_differences() {
    let device = device().autodiff();
    let (d_in, d_out, n_segments) = (3, 2, groups().n_segments());
    let mut groups = groups();
    for transposed in [false, true] {
        if transposed {
            groups.transpose();
        }
        let groups = DeviceRelationGroups::new(groups.clone(), &device);
        let (bias, x) = (ramp([4, d_out], &device), ramp([n_segments, d_in], &device));
        let weight: Tensor<2> = ramp([8 * d_in, d_out], &device);
        let op = |bias: &Tensor<2>, x: &Tensor<2>, weight: &Tensor<2>| {
            ops::grouped_linear(&groups, bias.clone(), x.clone(), weight.clone())
        };
        check_gradient(bias.clone(), |bias| op(&bias, &x, &weight));
        check_gradient(x.clone(), |x| op(&bias, &x, &weight));
        check_gradient(weight.clone(), |weight| op(&bias, &x, &weight));
        for reduce in [Reduction::Sum, Reduction::Mean] {
            check_gradient(ramp([7, 2], &device), |x| ops::aggregate_groups(&groups, x, reduce));
        }
    }
}

#[test]
fn a_type_without_destinations_has_gradients_of_zero() {
    let device = device().autodiff();
    let bias = Tensor::<2>::ones([4, 2], &device).require_grad();
    let weight = Tensor::<2>::ones([8, 2], &device).require_grad();
    let x = Tensor::ones([groups().n_segments(), 1], &device);
    let grads = ops::grouped_linear(&uploaded(), bias.clone(), x, weight.clone()).sum().backward();
    let of = |tensor: &Tensor<2>| values(tensor.grad(&grads).expect("the gradient should exist"));
    // Two destinations have type 0, one has type 2, one type 3.
    assert_eq!(of(&bias), [2.0, 2.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
    assert_eq!(of(&weight), [2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1].map(|n: i32| n as f32));
}

#[test]
fn a_block_without_destinations_has_no_rows() {
    let device = device().autodiff();
    let none = BlockParts { indptr: vec![0], edge_types: Some(Vec::new()), ..BlockParts::default() };
    let groups = RelationGroups::new(&Block::new(none), &types(), &metagraph()).expect("it should fit");
    let groups = DeviceRelationGroups::new(groups, &device);
    let x = Tensor::<2>::zeros([0, 3], &device).require_grad();
    let rows = ops::aggregate_groups(&groups, x.clone(), Reduction::Mean);
    let weight = Tensor::<2>::ones([24, 2], &device).require_grad();
    let result = ops::grouped_linear(&groups, Tensor::zeros([4, 2], &device), rows, weight.clone());
    assert_eq!(result.dims(), [0, 2]);
    let grads = result.sum().backward();
    assert_eq!(values(weight.grad(&grads).expect("the gradient should exist")), [0.0; 48]);
}

#[test]
fn a_block_with_groups_counts_their_bytes() {
    let device = device();
    let without = DeviceBlock::upload(&block(), &device);
    assert!(without.relation_groups().is_none());
    let with = without.clone().with_relation_groups(groups(), &device);
    let groups = with.relation_groups().expect("the block should have groups");
    assert_eq!((groups.n_dst(), groups.n_src(), groups.n_entries()), (4, 7, 13));
    // 9 offsets of segments, 13 entries with weights, 5 offsets and 4 rows of the order.
    assert_eq!(groups.n_segments(), 9);
    assert!(4 * (10 + 2 * 13 + 5 + 4) <= groups.n_bytes());
    assert_eq!(with.n_bytes(), without.n_bytes() + groups.n_bytes());
}

#[test]
fn every_device_runs_the_backend_implementation() {
    let (device, groups) = (device(), with_nodes());
    let (bias, weight) = (ramp([4, 2], &device), ramp([24, 2], &device));
    let x: Tensor<2> = ramp([7, 3], &device);
    let run = || {
        let rows = ops::aggregate_groups(&groups, x.clone(), Reduction::Mean);
        drop(ops::grouped_linear(&groups, bias.clone(), rows, weight.clone()));
    };
    // The aggregation, a product for each of three types, and the order of the destinations.
    assert_eq!(launches_of(run), Launches { direct: 5, reference: 0 });
    let run = || {
        let segments = ops::grouped_transposed(&groups, ramp([4, 2], &device), ramp([24, 2], &device));
        let scores = ops::group_dots(&groups, x.clone(), segments, 1);
        drop(ops::group_softmax(&groups, scores));
    };
    // A product for each of three types, the dot products, and the softmax.
    assert_eq!(launches_of(run), Launches { direct: 5, reference: 0 });
}

fn with_nodes() -> DeviceRelationGroups {
    let groups = groups().with_nodes(&block(), &types()).expect("the nodes should have types");
    DeviceRelationGroups::new(groups, &device())
}

#[test]
fn transposed_products_have_a_row_per_segment() {
    let (device, groups) = (device(), groups());
    let (d, d_out) = (5, 3);
    // The destinations are in the order by type: two of type 0, one of type 2, one of type 3.
    let (x, weight): (Tensor<2>, Tensor<2>) = (ramp([4, d], &device), ramp([8 * d_out, d], &device));
    let got = ops::grouped_transposed(&uploaded(), x.clone(), weight.clone());
    assert_eq!(got.dims(), [groups.n_segments(), d_out]);
    let (x, weight, mut expected) = (values(x), values(weight), Vec::new());
    // The first matrix of each destination's type, and their number.
    for (dst, (first, n)) in [(0, 3), (0, 3), (5, 2), (7, 1)].into_iter().enumerate() {
        for row in first * d_out..(first + n) * d_out {
            expected.push((0..d).map(|k| x[dst * d + k] * weight[row * d + k]).sum());
        }
    }
    check_close(&values(got), &expected, TOLERANCE);
}

#[test]
fn dot_products_are_those_of_sources_and_segments() {
    let (device, groups, n_heads) = (device(), groups(), 2);
    let srcs: Tensor<2> = ramp([7, 6], &device);
    let segments: Tensor<2> = ramp([groups.n_segments(), 6], &device) * 2.0;
    let got = ops::group_dots(&uploaded(), srcs.clone(), segments.clone(), n_heads);
    assert_eq!(got.dims(), [13, n_heads]);
    let (srcs, segments, mut expected) = (values(srcs), values(segments), Vec::new());
    for (segment, ends) in groups.parts().indptr.windows(2).enumerate() {
        for entry in ends[0] as usize..ends[1] as usize {
            let src = groups.parts().indices[entry].index();
            let of = |head: usize| {
                (3 * head..3 * head + 3).map(|k| srcs[src * 6 + k] * segments[segment * 6 + k]).sum::<f32>()
            };
            expected.extend([of(0), of(1)]);
        }
    }
    check_close(&values(got), &expected, TOLERANCE);
}

#[test]
fn softmax_is_over_all_relations_and_leaves_out_own_rows() {
    let device = device();
    let scores: Tensor<2> = ramp([13, 2], &device) * 3.0;
    let got = values(ops::group_softmax(&with_nodes(), scores.clone()));
    let (scores, mut expected) = (values(scores), Vec::new());
    // The entries of each destination in the order by type, beginning with the own row.
    for (first, n) in [(0, 5), (5, 2), (7, 5), (12, 1)] {
        let power = |entry: usize, head: usize| scores[2 * entry + head].exp();
        let sum = |head| (first + 1..first + n).map(|entry| power(entry, head)).sum::<f32>();
        let own = if n == 1 { 1.0 } else { 0.0 };
        expected.extend([own, own]);
        for entry in first + 1..first + n {
            expected.extend([power(entry, 0) / sum(0), power(entry, 1) / sum(1)]);
        }
    }
    check_close(&got, &expected, TOLERANCE);
}

#[test]
fn gradients_of_attention_ops_match_finite_differences() {
    let device = device().autodiff();
    let groups = with_nodes();
    let (x, weight): (Tensor<2>, Tensor<2>) = (ramp([4, 3], &device), ramp([16, 3], &device));
    check_gradient(x.clone(), |x| ops::grouped_transposed(&groups, x, weight.clone()));
    check_gradient(weight.clone(), |weight| ops::grouped_transposed(&groups, x.clone(), weight));
    let (srcs, segments): (Tensor<2>, Tensor<2>) = (ramp([7, 4], &device), ramp([9, 4], &device));
    check_gradient(srcs.clone(), |srcs| ops::group_dots(&groups, srcs, segments.clone(), 2));
    check_gradient(segments.clone(), |segments| ops::group_dots(&groups, srcs.clone(), segments, 2));
    check_gradient(ramp([13, 2], &device), |scores| ops::group_softmax(&groups, scores));
}

#[test]
#[should_panic(expected = "the groups lack those of nodes")]
fn softmax_needs_the_groups_of_nodes() {
    ops::group_softmax(&uploaded(), ramp([13, 2], &device()));
}

#[test]
#[should_panic(expected = "the sources, destinations and edges of the groups and of the block differ")]
fn rejects_the_groups_of_another_block() {
    let device = device();
    let _ = DeviceBlock::upload(&common::six_nodes(), &device).with_relation_groups(groups(), &device);
}

#[test]
#[should_panic(expected = "x has 6 rows, but the groups have 7 sources")]
fn rejects_another_number_of_sources() {
    ops::aggregate_groups(&uploaded(), ramp([6, 3], &device()), Reduction::Sum);
}

#[test]
#[should_panic(expected = "weight has 7 rows, expected 1 for each matrix: 8")]
fn rejects_another_number_of_matrices() {
    let device = device();
    let x = ramp([9, 1], &device);
    ops::grouped_linear(&uploaded(), ramp([4, 2], &device), x, ramp([7, 2], &device));
}

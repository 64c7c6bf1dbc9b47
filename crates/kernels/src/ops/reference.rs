//! The references of all ops except the aggregation, in Burn's tensor operations for any backend. They are the default
//! for backends without their own implementation, and the oracle for the gradients.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{FloatDType, IndexingUpdateOp, Shape, Slice, TensorData, read_sync};
use kiln_graph::NodeId;
use kiln_sample::RngKey;

use crate::device::block::Adjacency;
use crate::ops::adam::{AdamState, AdamStep};
use crate::ops::aggregation::Weights;
use crate::ops::cross_entropy::CrossEntropy;
use crate::ops::edges::{INDEX, edge_dsts, zero_rows};
use crate::ops::keep::Keep;

pub(crate) fn add_linear<B: Backend>(
    base: FloatTensor<B>,
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
) -> FloatTensor<B> {
    B::float_add(B::float_matmul(x, weight), base)
}

pub(crate) fn linear_x_adjoint<B: Backend>(grad: FloatTensor<B>, weight: FloatTensor<B>) -> FloatTensor<B> {
    B::float_matmul(grad, B::float_transpose(weight))
}

pub(crate) fn linear_weight_adjoint<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    B::float_matmul(B::float_transpose(x), grad)
}

pub(crate) fn column_sums<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_sum_dim(x, 0)
}

pub(crate) fn expand_row<B: Backend>(row: FloatTensor<B>, n_rows: usize) -> FloatTensor<B> {
    let width = row.shape()[1];
    B::float_expand(row, Shape::new([n_rows, width]))
}

pub(crate) fn bias_dropout<B: Backend>(
    x: FloatTensor<B>,
    bias: FloatTensor<B>,
    nodes: IntTensor<B>,
    key: RngKey,
    keep: Keep,
    has_relu: bool,
) -> FloatTensor<B> {
    let width = bias.shape()[0];
    let sum = B::float_add(x, B::float_reshape(bias, Shape::new([1, width])));
    match has_relu {
        true => relu_dropout::<B>(sum, nodes, key, keep),
        false if keep.is_everything() => sum,
        false => dropout::<B>(sum, nodes, key, keep),
    }
}

pub(crate) fn relu_dropout<B: Backend>(
    x: FloatTensor<B>,
    nodes: IntTensor<B>,
    key: RngKey,
    keep: Keep,
) -> FloatTensor<B> {
    let x = B::relu(x);
    if keep.is_everything() { x } else { dropout::<B>(x, nodes, key, keep) }
}

pub(crate) fn relu_dropout_adjoint<B: Backend>(
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
    keep: Keep,
) -> FloatTensor<B> {
    let bool_dtype = get_or_init_device_settings::<B>(&output.device()).bool_dtype;
    let dropped = B::float_lower_equal_elem(output, 0.into(), bool_dtype);
    let grad = B::float_mul_scalar(grad, f64::from(keep.scale()).into());
    B::float_mask_fill(grad, dropped, 0.into())
}

pub(crate) fn elu<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let below = B::float_sub_scalar(B::float_exp(B::float_clamp_max(x.clone(), 0.into())), 1.into());
    B::float_add(B::float_clamp_min(x, 0.into()), below)
}

pub(crate) fn elu_adjoint<B: Backend>(output: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    B::float_mul(grad, B::float_add_scalar(B::float_clamp_max(output, 0.into()), 1.into()))
}

pub(crate) fn cross_entropy<B: Backend>(x: FloatTensor<B>, labels: IntTensor<B>) -> CrossEntropy<B> {
    let n_rows = x.shape()[0];
    let largest = B::float_max_dim(x.clone(), 1);
    let x = B::float_sub(x, largest.clone());
    let log_sums = B::float_log(B::float_sum_dim(B::float_exp(x.clone()), 1));
    let picked = B::float_gather(1, x, B::int_reshape(labels, Shape::new([n_rows, 1])));
    let loss = B::float_reshape(B::float_sum(B::float_sub(log_sums.clone(), picked)), Shape::new([1]));
    let [maxima, log_sums] = [largest, log_sums].map(|column| B::float_reshape(column, Shape::new([n_rows])));
    CrossEntropy { loss, maxima, log_sums }
}

pub(crate) fn cross_entropy_adjoint<B: Backend>(
    x: FloatTensor<B>,
    labels: IntTensor<B>,
    of_loss: CrossEntropy<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let column = Shape::new([x.shape()[0], 1]);
    let CrossEntropy { maxima, log_sums, .. } = of_loss;
    let [maxima, log_sums] = [maxima, log_sums].map(|row| B::float_reshape(row, column.clone()));
    let probabilities = B::float_exp(B::float_sub(B::float_sub(x, maxima), log_sums));
    let minus_one = B::float_full(column.clone(), (-1.0).into(), &grad.device(), grad.dtype().into());
    let labels = B::int_reshape(labels, column);
    let slopes = B::float_scatter(1, probabilities, labels, minus_one, IndexingUpdateOp::Add);
    B::float_mul(slopes, B::float_reshape(grad, Shape::new([1, 1])))
}

pub(crate) fn adam<B: Backend>(
    state: AdamState<B>,
    gradient: FloatTensor<B>,
    step: &AdamStep,
) -> AdamState<B> {
    let decayed_mean = |means, values, decay: f32| {
        let kept = B::float_mul_scalar(means, decay.into());
        B::float_add(kept, B::float_mul_scalar(values, (1.0 - decay).into()))
    };
    let AdamState { values, means, mean_squares } = state;
    let means = decayed_mean(means, gradient.clone(), step.betas[0]);
    let mean_squares = decayed_mean(mean_squares, B::float_mul(gradient.clone(), gradient), step.betas[1]);
    let roots = B::float_add_scalar(B::float_sqrt(mean_squares.clone()), step.scaled_epsilon().into());
    let moves = B::float_div(B::float_mul_scalar(means.clone(), step.scale().into()), roots);
    let kept = B::float_mul_scalar(values, step.kept().into());
    let values = B::float_sub(kept, B::float_mul_scalar(moves, step.rate().into()));
    AdamState { values, means, mean_squares }
}

pub(crate) fn take_dst<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_slice(x, &[Slice::from(0..block.n_dst)])
}

pub(crate) fn dropout<B: Backend>(
    x: FloatTensor<B>,
    nodes: IntTensor<B>,
    key: RngKey,
    keep: Keep,
) -> FloatTensor<B> {
    let nodes = read_sync(B::int_into_data(nodes)).expect("the device should return the node ids");
    let shape = x.shape();
    let mut mask = Vec::with_capacity(shape.num_elements());
    for node in nodes.iter::<u32>().take(shape[0]) {
        mask.extend((0..shape[1] as u32).map(|column| keep.factor(key, NodeId(node), column)));
    }
    let mask = TensorData::new(mask, shape).convert_dtype(x.dtype());
    let mask = B::float_from_data(mask, &x.device());
    B::float_mul(x, mask)
}

pub(crate) fn take_dst_adjoint<B: Backend>(block: &Adjacency<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let zeros = zero_rows::<B>(block.n_src, &grad);
    B::float_slice_assign(zeros, &[Slice::from(0..block.n_dst)], grad)
}

/// The reference of [`BlockOps::relation_shares`](crate::ops::backend::BlockOps::relation_shares).
pub(crate) fn relation_shares<B: Backend>(
    block: &Adjacency<B>,
    types: IntTensor<B>,
    n_types: usize,
    weights: Weights<B>,
) -> FloatTensor<B> {
    let device = types.device();
    let n_edges = block.n_edges;
    let shape = Shape::new([n_edges]);
    if n_edges == 0 {
        return B::float_zeros(shape, &device, FloatDType::F32);
    }
    let dsts = edge_dsts(block);
    let pairs = match n_types {
        1 => dsts,
        _ => B::int_add(B::int_mul_scalar(dsts, (n_types as i64).into()), types),
    };
    let of_pairs = Shape::new([block.n_dst * n_types]);
    match weights {
        Weights::Ones => {
            let zeros = B::int_zeros(of_pairs, &device, INDEX);
            let ones = B::int_ones(shape, &device, INDEX);
            let counts = B::int_select_assign(zeros, 0, pairs.clone(), ones, IndexingUpdateOp::Add);
            let counts = B::int_into_float(B::int_select(counts, 0, pairs), FloatDType::F32);
            B::float_recip(counts)
        }
        Weights::Tensor(weights) => {
            // The values of an index are added in the order of the edges.
            let zeros = B::float_zeros(of_pairs, &device, FloatDType::F32);
            let sizes = B::float_abs(weights.clone());
            let sums = B::float_select_assign(zeros, 0, pairs.clone(), sizes, IndexingUpdateOp::Add);
            // A sum of 0 is that of weights of 0, whose quotients are 0.
            let sums = B::float_clamp_min(B::float_select(sums, 0, pairs), f32::MIN_POSITIVE.into());
            B::float_div(weights, sums)
        }
    }
}

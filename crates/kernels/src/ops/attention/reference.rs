//! The references of the ops of attention layers, in Burn's tensor operations for any backend.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{IndexingUpdateOp, Shape, TensorData, read_sync};
use kiln_sample::RngKey;

use super::inputs::{Attention, AttentionInput};
use crate::device::block::Adjacency;
use crate::ops::aggregation::{self, Form, OwnRow, Reduction, Sums, Weights};
use crate::ops::edges::{INDEX, edge_dsts};
use crate::ops::keep::Keep;

/// The reference of [`crate::ops::attention_scores`]. It creates `[n_edges, n_heads * d]` tensors.
pub(crate) fn scores<B: Backend>(inputs: &Attention<B>) -> FloatTensor<B> {
    let Attention { block, weights, slope, .. } = inputs;
    let [n_heads, width] = weights.shape().dims();
    if block.n_edges == 0 {
        return B::float_zeros(Shape::new([0, n_heads]), &weights.device(), weights.dtype().into());
    }
    let sums = edge_sums(inputs);
    let bools = get_or_init_device_settings::<B>(&sums.device()).bool_dtype;
    let is_below = B::float_lower_equal_elem(sums.clone(), 0.into(), bools);
    let values = B::float_mask_where(sums.clone(), is_below, B::float_mul_scalar(sums, (*slope).into()));
    let values = B::float_reshape(values, Shape::new([block.n_edges, n_heads, width]));
    let weights = B::float_reshape(weights.clone(), Shape::new([1, n_heads, width]));
    let sums = B::float_sum_dim(B::float_mul(values, weights), 2);
    B::float_reshape(sums, Shape::new([block.n_edges, n_heads]))
}

/// The reference of the gradient of one input of the scores.
pub(crate) fn scores_adjoint<B: Backend>(
    inputs: &Attention<B>,
    grad: FloatTensor<B>,
    input: AttentionInput,
) -> FloatTensor<B> {
    let Attention { block, src, dst, weights, slope } = inputs;
    let [n_heads, width] = weights.shape().dims();
    let like = match input {
        AttentionInput::Src => src,
        AttentionInput::Dst => dst,
        AttentionInput::Weights => weights,
    };
    if block.n_edges == 0 {
        return B::float_zeros(like.shape(), &like.device(), like.dtype().into());
    }
    let sums = edge_sums(inputs);
    let bools = get_or_init_device_settings::<B>(&sums.device()).bool_dtype;
    let is_below = B::float_lower_equal_elem(sums.clone(), 0.into(), bools);
    let ranges = Shape::new([block.n_edges, n_heads, width]);
    let grad = B::float_reshape(grad, Shape::new([block.n_edges, n_heads, 1]));
    if input == AttentionInput::Weights {
        let values = B::float_mask_where(sums.clone(), is_below, B::float_mul_scalar(sums, (*slope).into()));
        let products = B::float_mul(B::float_reshape(values, ranges), grad);
        return B::float_reshape(B::float_sum_dim(products, 0), weights.shape());
    }
    let ones = B::float_ones(sums.shape(), &sums.device(), sums.dtype().into());
    let slopes = B::float_mask_fill(ones, is_below, (*slope).into());
    let weights = B::float_reshape(weights.clone(), Shape::new([1, n_heads, width]));
    let products = B::float_mul(B::float_mul(B::float_reshape(slopes, ranges), weights), grad);
    let products = B::float_reshape(products, sums.shape());
    let items = if input == AttentionInput::Src { block.indices.clone() } else { edge_dsts(block) };
    let zeros = B::float_zeros(like.shape(), &like.device(), like.dtype().into());
    B::float_select_assign(zeros, 0, items, products, IndexingUpdateOp::Add)
}

/// For each edge, its source's row plus its destination's row.
fn edge_sums<B: Backend>(inputs: &Attention<B>) -> FloatTensor<B> {
    let Attention { block, src, dst, .. } = inputs;
    let srcs = B::float_select(src.clone(), 0, block.indices.clone());
    B::float_add(srcs, B::float_select(dst.clone(), 0, edge_dsts(block)))
}

/// The reference of [`crate::ops::edge_softmax`].
pub(crate) fn softmax<B: Backend>(block: &Adjacency<B>, scores: FloatTensor<B>) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return scores;
    }
    let largest = reduced(block, B::float_detach(scores.clone()), Reduction::Max);
    let powers = B::float_exp(B::float_sub(scores, spread(block, largest)));
    let sums = reduced(block, powers.clone(), Reduction::Sum);
    B::float_div(powers, spread(block, sums))
}

/// The reference of the gradient of the softmax, given its result.
pub(crate) fn softmax_adjoint<B: Backend>(
    block: &Adjacency<B>,
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return grad;
    }
    let products = B::float_mul(output.clone(), grad.clone());
    let means = reduced(block, products, Reduction::Sum);
    B::float_mul(output, B::float_sub(grad, spread(block, means)))
}

/// `[n_edges, d] -> [n_dst, d]`: reduces the rows of each destination's edges.
fn reduced<B: Backend>(block: &Adjacency<B>, rows: FloatTensor<B>, reduce: Reduction) -> FloatTensor<B> {
    let indices = B::int_arange(0..block.n_edges as i64, &rows.device(), INDEX);
    let edges = Adjacency { indices, n_src: block.n_edges, by_source: Default::default(), ..block.clone() };
    let form = Form { reduce, own: OwnRow::Excluded, sums: Sums::One, to_f32: false };
    aggregation::aggregate(&edges, rows, &Weights::Ones, form)
}

/// `[n_dst, d] -> [n_edges, d]`: repeats the row of each destination for its edges.
fn spread<B: Backend>(block: &Adjacency<B>, rows: FloatTensor<B>) -> FloatTensor<B> {
    B::float_select(rows, 0, edge_dsts(block))
}

/// The reference of [`crate::ops::edge_dropout`].
pub(crate) fn edge_dropout<B: Backend>(
    x: FloatTensor<B>,
    edge_ids: IntTensor<B>,
    key: RngKey,
    keep: Keep,
) -> FloatTensor<B> {
    let ids = read_sync(B::int_into_data(edge_ids)).expect("the device should return the edge ids");
    let shape = x.shape();
    let mut mask = Vec::with_capacity(shape.num_elements());
    for id in ids.iter::<i64>().take(shape[0]) {
        mask.extend((0..shape[1] as u32).map(|column| keep.edge_factor(key, id, column)));
    }
    let mask = TensorData::new(mask, shape).convert_dtype(x.dtype());
    let mask = B::float_from_data(mask, &x.device());
    B::float_mul(x, mask)
}

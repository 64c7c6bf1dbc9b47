//! What each op means, in stock tensor operations of any backend. It makes `[n_edges, d]` tensors: slow,
//! and only as good as the backend's scatter, but it needs no kernel, and automatic differentiation of
//! it is the oracle for our own gradients.

use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{IndexingUpdateOp, IntDType, Shape, Slice, TensorData, read_sync};
use kiln_graph::NodeId;
use kiln_sample::RngKey;

use crate::device::block::Adjacency;
use crate::ops::adjoint::ArgMax;
use crate::ops::{AdamStep, Keep, Reduce};

const INDEX: IntDType = IntDType::I32;

pub(crate) fn neighbor_sum<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_dst, &x);
    }
    let rows = B::float_select(x, 0, block.indices.clone());
    scatter_rows::<B>(rows, edge_dsts(block), block.n_dst)
}

pub(crate) fn neighbor_weighted_sum<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    weights: FloatTensor<B>,
) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_dst, &x);
    }
    let rows = B::float_select(x, 0, block.indices.clone());
    let weights = B::float_reshape(weights, Shape::new([block.n_edges, 1]));
    scatter_rows::<B>(B::float_mul(rows, weights), edge_dsts(block), block.n_dst)
}

pub(crate) fn neighbor_mean<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>) -> FloatTensor<B> {
    let degrees = degrees(block, &x);
    B::float_div(neighbor_sum(block, x), degrees)
}

pub(crate) fn own_beside<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    reduce: Reduce,
) -> FloatTensor<B> {
    let neighbors = match reduce {
        Reduce::Sum => neighbor_sum(block, x.clone()),
        Reduce::Mean => neighbor_mean(block, x.clone()),
    };
    B::float_cat(vec![dst_rows(block, x), neighbors], 1)
}

pub(crate) fn own_plus_sum<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    own_weight: f32,
) -> FloatTensor<B> {
    let sum = neighbor_sum(block, x.clone());
    B::float_add(B::float_mul_scalar(dst_rows(block, x), own_weight.into()), sum)
}

pub(crate) fn neighbor_max<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_dst, &x);
    }
    let edges = largest_edges::<B>(block, B::float_detach(x.clone()));
    let width = x.shape()[1];
    let none = lower::<B>(edges.clone(), 0);
    let flat = B::int_reshape(B::int_clamp_min(edges, 0.into()), Shape::new([block.n_dst * width]));
    let srcs = B::int_select(block.indices.clone(), 0, flat);
    let srcs = B::int_reshape(srcs, Shape::new([block.n_dst, width]));
    B::float_mask_fill(B::float_gather(0, x, srcs), none, 0.into())
}

pub(crate) fn neighbor_argmax<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>) -> ArgMax<B> {
    let shape = Shape::new([block.n_dst, x.shape()[1]]);
    let edges = match block.n_edges {
        0 => B::int_full(shape, (-1).into(), &x.device(), INDEX),
        _ => largest_edges::<B>(block, x.clone()),
    };
    ArgMax { values: neighbor_max(block, x), edges }
}

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

pub(crate) fn row_sum<B: Backend>(grad: FloatTensor<B>) -> FloatTensor<B> {
    B::float_sum_dim(grad, 0)
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

pub(crate) fn decayed_mean<B: Backend>(
    means: FloatTensor<B>,
    values: FloatTensor<B>,
    decay: f32,
) -> FloatTensor<B> {
    let kept = B::float_mul_scalar(means, decay.into());
    B::float_add(kept, B::float_mul_scalar(values, (1.0 - decay).into()))
}

pub(crate) fn decayed_mean_square<B: Backend>(
    means: FloatTensor<B>,
    values: FloatTensor<B>,
    decay: f32,
) -> FloatTensor<B> {
    decayed_mean::<B>(means, B::float_mul(values.clone(), values), decay)
}

pub(crate) fn adam_parameters<B: Backend>(
    values: FloatTensor<B>,
    means: FloatTensor<B>,
    mean_squares: FloatTensor<B>,
    step: AdamStep,
) -> FloatTensor<B> {
    let roots = B::float_add_scalar(B::float_sqrt(mean_squares), step.scaled_epsilon().into());
    let moves = B::float_div(B::float_mul_scalar(means, step.scale().into()), roots);
    let kept = B::float_mul_scalar(values, step.kept().into());
    B::float_sub(kept, B::float_mul_scalar(moves, step.rate().into()))
}

pub(crate) fn dst_rows<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_slice(x, &[Slice::from(0..block.n_dst)])
}

pub(crate) fn dropout<B: Backend>(
    x: FloatTensor<B>,
    nodes: IntTensor<B>,
    key: RngKey,
    keep: Keep,
) -> FloatTensor<B> {
    let nodes = read_sync(B::int_into_data(nodes)).expect("node ids should be readable");
    let shape = x.shape();
    let mut mask = Vec::with_capacity(shape.num_elements());
    for node in nodes.iter::<u32>().take(shape[0]) {
        mask.extend((0..shape[1] as u32).map(|column| keep.factor(key, NodeId(node), column)));
    }
    let mask = TensorData::new(mask, shape).convert_dtype(x.dtype());
    let mask = B::float_from_data(mask, &x.device());
    B::float_mul(x, mask)
}

pub(crate) fn neighbor_sum_adjoint<B: Backend>(block: &Adjacency<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_src, &grad);
    }
    let rows = B::float_select(grad, 0, edge_dsts(block));
    scatter_rows::<B>(rows, block.indices.clone(), block.n_src)
}

pub(crate) fn neighbor_weighted_sum_adjoint<B: Backend>(
    block: &Adjacency<B>,
    grad: FloatTensor<B>,
    weights: FloatTensor<B>,
) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_src, &grad);
    }
    let rows = B::float_select(grad, 0, edge_dsts(block));
    let weights = B::float_reshape(weights, Shape::new([block.n_edges, 1]));
    scatter_rows::<B>(B::float_mul(rows, weights), block.indices.clone(), block.n_src)
}

pub(crate) fn edge_dots<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return B::float_zeros(Shape::new([0]), &x.device(), x.dtype().into());
    }
    let srcs = B::float_select(x, 0, block.indices.clone());
    let dsts = B::float_select(grad, 0, edge_dsts(block));
    B::float_reshape(B::float_sum_dim(B::float_mul(srcs, dsts), 1), Shape::new([block.n_edges]))
}

pub(crate) fn neighbor_mean_adjoint<B: Backend>(
    block: &Adjacency<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let degrees = degrees(block, &grad);
    neighbor_sum_adjoint(block, B::float_div(grad, degrees))
}

pub(crate) fn own_beside_adjoint<B: Backend>(
    block: &Adjacency<B>,
    grad: FloatTensor<B>,
    reduce: Reduce,
) -> FloatTensor<B> {
    let width = grad.shape()[1] / 2;
    let half = |columns| B::float_slice(grad.clone(), &[Slice::from(0..block.n_dst), Slice::from(columns)]);
    let (own, neighbors) = (half(0..width), half(width..2 * width));
    let neighbors = match reduce {
        Reduce::Sum => neighbor_sum_adjoint(block, neighbors),
        Reduce::Mean => neighbor_mean_adjoint(block, neighbors),
    };
    B::float_add(dst_rows_adjoint(block, own), neighbors)
}

pub(crate) fn own_plus_sum_adjoint<B: Backend>(
    block: &Adjacency<B>,
    grad: FloatTensor<B>,
    own_weight: f32,
) -> FloatTensor<B> {
    let own = dst_rows_adjoint(block, B::float_mul_scalar(grad.clone(), own_weight.into()));
    B::float_add(own, neighbor_sum_adjoint(block, grad))
}

pub(crate) fn neighbor_max_adjoint<B: Backend>(
    block: &Adjacency<B>,
    edges: IntTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let zeros = zero_rows::<B>(block.n_src, &grad);
    if block.n_edges == 0 {
        return zeros;
    }
    let shape = grad.shape();
    let grad = B::float_mask_fill(grad, lower::<B>(edges.clone(), 0), 0.into());
    let flat = B::int_reshape(B::int_clamp_min(edges, 0.into()), Shape::new([shape.num_elements()]));
    let srcs = B::int_reshape(B::int_select(block.indices.clone(), 0, flat), shape);
    B::float_scatter(0, zeros, srcs, grad, IndexingUpdateOp::Add)
}

pub(crate) fn dst_rows_adjoint<B: Backend>(block: &Adjacency<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let zeros = zero_rows::<B>(block.n_src, &grad);
    B::float_slice_assign(zeros, &[Slice::from(0..block.n_dst)], grad)
}

/// Each edge's destination, in block order, `[n_edges]`.
fn edge_dsts<B: Backend>(block: &Adjacency<B>) -> IntTensor<B> {
    // It is the number of destinations whose edges end there or before, one place being behind all edges.
    let device = block.indices.device();
    let ends = B::int_slice(block.indptr.clone(), &[Slice::from(1..block.n_dst + 1)]);
    let ones = B::int_ones(Shape::new([block.n_dst]), &device, INDEX);
    let zeros = B::int_zeros(Shape::new([block.n_edges + 1]), &device, INDEX);
    let ended = B::int_cumsum(B::int_select_assign(zeros, 0, ends, ones, IndexingUpdateOp::Add), 0);
    B::int_slice(ended, &[Slice::from(0..block.n_edges)])
}

/// In-degrees as numbers of the given tensor's type, 1 where there is no edge, `[n_dst, 1]`.
fn degrees<B: Backend>(block: &Adjacency<B>, like: &FloatTensor<B>) -> FloatTensor<B> {
    let starts = B::int_slice(block.indptr.clone(), &[Slice::from(0..block.n_dst)]);
    let ends = B::int_slice(block.indptr.clone(), &[Slice::from(1..block.n_dst + 1)]);
    let degrees = B::int_clamp_min(B::int_sub(ends, starts), 1.into());
    let degrees = B::int_into_float(degrees, like.dtype().into());
    B::float_reshape(degrees, Shape::new([block.n_dst, 1]))
}

fn zero_rows<B: Backend>(n_rows: usize, like: &FloatTensor<B>) -> FloatTensor<B> {
    B::float_zeros(Shape::new([n_rows, like.shape()[1]]), &like.device(), like.dtype().into())
}

fn scatter_rows<B: Backend>(rows: FloatTensor<B>, to: IntTensor<B>, n_rows: usize) -> FloatTensor<B> {
    let zeros = zero_rows::<B>(n_rows, &rows);
    B::float_select_assign(zeros, 0, to, rows, IndexingUpdateOp::Add)
}

fn lower<B: Backend>(numbers: IntTensor<B>, limit: i32) -> BoolTensor<B> {
    let dtype = get_or_init_device_settings::<B>(&numbers.device()).bool_dtype;
    B::int_lower_elem(numbers, limit.into(), dtype)
}

/// For each destination and column the first edge with the largest value, -1 where there is no edge,
/// `[n_dst, d]`. By doubling (Hillis and Steele 1986): after the round with distance `s` each edge knows
/// the best of itself and the next `2 s - 1` edges of its destination.
fn largest_edges<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>) -> IntTensor<B> {
    let device = x.device();
    let bools = get_or_init_device_settings::<B>(&device).bool_dtype;
    let (n_edges, width) = (block.n_edges, x.shape()[1]);
    let rows = B::float_select(x, 0, block.indices.clone());
    let dsts = edge_dsts(block);
    let positions = B::int_arange(0..n_edges as i64, &device, INDEX);
    let column = B::int_reshape(positions.clone(), Shape::new([n_edges, 1]));
    let mut best = B::int_expand(column, Shape::new([n_edges, width]));
    let mut distance = 1;
    while distance < n_edges {
        let shifted = B::int_add_scalar(positions.clone(), (distance as i64).into());
        let other = B::int_clamp_max(shifted, (n_edges as i64 - 1).into());
        let same = B::int_equal(B::int_select(dsts.clone(), 0, other.clone()), dsts.clone(), bools);
        let same =
            B::bool_expand(B::bool_reshape(same, Shape::new([n_edges, 1])), Shape::new([n_edges, width]));
        let candidate = B::int_select(best.clone(), 0, other);
        let old = B::float_gather(0, rows.clone(), best.clone());
        let new = B::float_gather(0, rows.clone(), candidate.clone());
        let better = B::bool_or(B::float_greater(new.clone(), old, bools), B::float_is_nan(new, bools));
        best = B::int_mask_where(best, B::bool_and(better, same), candidate);
        distance *= 2;
    }
    let starts = B::int_slice(block.indptr.clone(), &[Slice::from(0..block.n_dst)]);
    let ends = B::int_slice(block.indptr.clone(), &[Slice::from(1..block.n_dst + 1)]);
    let none = B::int_equal(starts.clone(), ends, bools);
    let none =
        B::bool_expand(B::bool_reshape(none, Shape::new([block.n_dst, 1])), Shape::new([block.n_dst, width]));
    let firsts = B::int_select(best, 0, B::int_clamp_max(starts, (n_edges as i64 - 1).into()));
    B::int_mask_fill(firsts, none, (-1).into())
}

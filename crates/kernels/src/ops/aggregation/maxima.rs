//! The reference of maxima, in Burn's tensor operations for any backend.

use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{IndexingUpdateOp, Shape};

use super::messages::edge_rows;
use super::{Saved, Sums, Weights};
use crate::device::block::Adjacency;
use crate::ops::edges::{INDEX, bounds, edge_dsts, zero_rows};

pub(super) fn max<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    weights: &Weights<B>,
) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_dst, &x);
    }
    let rows = edge_rows(block, x, weights, Sums::One);
    let edges = largest_edges(block, B::float_detach(rows.clone()));
    let none = lower::<B>(edges.clone(), 0);
    B::float_mask_fill(B::float_gather(0, rows, B::int_clamp_min(edges, 0.into())), none, 0.into())
}

pub(super) fn max_adjoint<B: Backend>(saved: &Saved<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let block = &saved.block;
    let zeros = zero_rows::<B>(block.n_src, &grad);
    if block.n_edges == 0 {
        return zeros;
    }
    let shape = grad.shape();
    let edges = saved.max_edges();
    let grad = B::float_mask_fill(grad, lower::<B>(edges.clone(), 0), 0.into());
    let grad = match &saved.weights {
        Weights::Ones => grad,
        Weights::Tensor(weights) => {
            let weights = B::float_select(weights.clone(), 0, flat_edges::<B>(edges.clone()));
            B::float_mul(grad, B::float_reshape(weights, shape.clone()))
        }
    };
    B::float_scatter(0, zeros, edge_srcs(block, edges, shape), grad, IndexingUpdateOp::Add)
}

/// `[n_dst, d] -> [n_edges]`: for each edge, the sum over the maxima that came from it. A term is the gradient of the
/// maximum times the value of the edge's source.
pub(super) fn max_weights_adjoint<B: Backend>(saved: &Saved<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let block = &saved.block;
    let x = saved.rows();
    let zeros = B::float_zeros(Shape::new([block.n_edges]), &x.device(), x.dtype().into());
    if block.n_edges == 0 {
        return zeros;
    }
    let shape = grad.shape();
    let edges = saved.max_edges();
    let values = B::float_gather(0, x, edge_srcs(block, edges.clone(), shape.clone()));
    let products = B::float_mask_fill(B::float_mul(grad, values), lower::<B>(edges.clone(), 0), 0.into());
    let products = B::float_reshape(products, Shape::new([shape.num_elements()]));
    B::float_select_assign(zeros, 0, flat_edges::<B>(edges), products, IndexingUpdateOp::Add)
}

/// The sources of the edges at the given positions in the block. A position of -1 stands for the block's first edge.
fn edge_srcs<B: Backend>(block: &Adjacency<B>, edges: IntTensor<B>, shape: Shape) -> IntTensor<B> {
    B::int_reshape(B::int_select(block.indices.clone(), 0, flat_edges::<B>(edges)), shape)
}

/// The edge positions as a flat list, with -1 replaced by 0, the position of the block's first edge.
fn flat_edges<B: Backend>(edges: IntTensor<B>) -> IntTensor<B> {
    let n_values = edges.shape().num_elements();
    B::int_reshape(B::int_clamp_min(edges, 0.into()), Shape::new([n_values]))
}

fn lower<B: Backend>(numbers: IntTensor<B>, limit: i32) -> BoolTensor<B> {
    let dtype = get_or_init_device_settings::<B>(&numbers.device()).bool_dtype;
    B::int_lower_elem(numbers, limit.into(), dtype)
}

/// `[n_dst, d]`: for each destination and column, the position of the first of the destination's edges whose row has
/// the largest value in this column, or -1 if the destination has no edges. `rows` has one row per edge. Uses doubling
/// (Hillis and Steele 1986): after the round with distance `s`, each edge has the best edge among itself and the next
/// `2 s - 1` edges of its destination.
pub(super) fn largest_edges<B: Backend>(block: &Adjacency<B>, rows: FloatTensor<B>) -> IntTensor<B> {
    let device = rows.device();
    let bools = get_or_init_device_settings::<B>(&device).bool_dtype;
    let n_edges = block.n_edges;
    let width = rows.shape()[1];
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
    let [starts, ends] = bounds(block);
    let none = B::int_equal(starts.clone(), ends, bools);
    let none =
        B::bool_expand(B::bool_reshape(none, Shape::new([block.n_dst, 1])), Shape::new([block.n_dst, width]));
    let firsts = B::int_select(best, 0, B::int_clamp_max(starts, (n_edges as i64 - 1).into()));
    B::int_mask_fill(firsts, none, (-1).into())
}

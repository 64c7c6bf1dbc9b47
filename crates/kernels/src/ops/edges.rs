//! The edges of a block as Burn's tensors, for the references of ops.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{IndexingUpdateOp, IntDType, Shape, Slice};

use crate::device::block::Adjacency;

/// The element type of index tensors.
pub(crate) const INDEX: IntDType = IntDType::I32;

pub(crate) fn zero_rows<B: Backend>(n_rows: usize, like: &FloatTensor<B>) -> FloatTensor<B> {
    B::float_zeros(Shape::new([n_rows, like.shape()[1]]), &like.device(), like.dtype().into())
}

/// The destination of each edge in block order, `[n_edges]`.
pub(crate) fn edge_dsts<B: Backend>(block: &Adjacency<B>) -> IntTensor<B> {
    // The destination of an edge is the number of destinations whose edges end at or before its position. The array has
    // one element more than there are edges: it counts the destinations whose edges end with the last edge.
    let device = block.indices.device();
    let [_, ends] = bounds(block);
    let ones = B::int_ones(Shape::new([block.n_dst]), &device, INDEX);
    let zeros = B::int_zeros(Shape::new([block.n_edges + 1]), &device, INDEX);
    let ended = B::int_cumsum(B::int_select_assign(zeros, 0, ends, ones, IndexingUpdateOp::Add), 0);
    B::int_slice(ended, &[Slice::from(0..block.n_edges)])
}

/// The in-degrees in the element type of `like`, 1 for destinations without edges, `[n_dst, 1]`.
pub(crate) fn degrees<B: Backend>(block: &Adjacency<B>, like: &FloatTensor<B>) -> FloatTensor<B> {
    let [starts, ends] = bounds(block);
    let degrees = B::int_clamp_min(B::int_sub(ends, starts), 1.into());
    let degrees = B::int_into_float(degrees, like.dtype().into());
    B::float_reshape(degrees, Shape::new([block.n_dst, 1]))
}

/// The first edge of each destination and the end of its edges, `[n_dst]` each.
pub(crate) fn bounds<B: Backend>(block: &Adjacency<B>) -> [IntTensor<B>; 2] {
    [0, 1].map(|first| B::int_slice(block.indptr.clone(), &[Slice::from(first..first + block.n_dst)]))
}

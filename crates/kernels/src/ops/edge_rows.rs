//! The inputs and the reference of the sum of messages with one row per edge.

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, TensorMetadata, get_or_init_device_settings};
use burn::tensor::IndexingUpdateOp;

use crate::device::block::Adjacency;
use crate::ops::edges::{edge_dsts, zero_rows};

/// The inputs of [`crate::ops::edge_relu_sum`], as tensors of a backend.
#[derive(Debug, Clone)]
pub(crate) struct Messages<B: Backend> {
    pub(crate) block: Adjacency<B>,
    /// The rows of the sources, `[n_src, d]`.
    pub(crate) x: FloatTensor<B>,
    /// The rows of the edges, `[n_edges, d]`.
    pub(crate) edge_rows: FloatTensor<B>,
}

/// The input of [`crate::ops::edge_relu_sum`] that a gradient is computed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeRowsInput {
    Nodes,
    Edges,
}

/// The reference of [`crate::ops::edge_relu_sum`].
pub(crate) fn relu_sum<B: Backend>(messages: &Messages<B>) -> FloatTensor<B> {
    let zeros = zero_rows::<B>(messages.block.n_dst, &messages.x);
    if messages.block.n_edges == 0 {
        return zeros;
    }
    let sums = before_relu(messages);
    let is_below = is_below::<B>(&sums);
    let values = B::float_mask_fill(sums, is_below, 0.into());
    B::float_select_assign(zeros, 0, edge_dsts(&messages.block), values, IndexingUpdateOp::Add)
}

/// The reference of the gradient of one input of [`crate::ops::edge_relu_sum`].
pub(crate) fn relu_sum_adjoint<B: Backend>(
    messages: &Messages<B>,
    grad: FloatTensor<B>,
    input: EdgeRowsInput,
) -> FloatTensor<B> {
    let Messages { block, x, .. } = messages;
    if block.n_edges == 0 {
        let n_rows = if input == EdgeRowsInput::Nodes { block.n_src } else { 0 };
        return zero_rows::<B>(n_rows, x);
    }
    let is_below = is_below::<B>(&before_relu(messages));
    let of_edges = B::float_mask_fill(B::float_select(grad, 0, edge_dsts(block)), is_below, 0.into());
    match input {
        EdgeRowsInput::Edges => of_edges,
        EdgeRowsInput::Nodes => {
            let zeros = zero_rows::<B>(block.n_src, x);
            B::float_select_assign(zeros, 0, block.indices.clone(), of_edges, IndexingUpdateOp::Add)
        }
    }
}

fn before_relu<B: Backend>(messages: &Messages<B>) -> FloatTensor<B> {
    let srcs = B::float_select(messages.x.clone(), 0, messages.block.indices.clone());
    B::float_add(srcs, messages.edge_rows.clone())
}

fn is_below<B: Backend>(sums: &FloatTensor<B>) -> BoolTensor<B> {
    let bools = get_or_init_device_settings::<B>(&sums.device()).bool_dtype;
    B::float_lower_equal_elem(sums.clone(), 0.into(), bools)
}

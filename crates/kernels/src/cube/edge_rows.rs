//! Sums of messages with a row per edge, and their gradients.
//!
//! ```text
//! out[v] = sum over the edges e into v of relu(x[src(e)] + rows[e])
//! ```
//!
//! The sums and the gradient of `x` are [segment sums](crate::cube::segment_sum), which store no message. The gradient of
//! `rows` is a kernel of its own:
//!
//! ```text
//! out[e, c] = grad[dst(e), c] if x[src(e), c] + rows[e, c] > 0, else 0
//! ```
//!
//! * *Contract.* `out` is overwritten. The sum before the ReLU is in f32. A NaN passes the gradient.
//! * *Work distribution.* One unit per edge and vector of columns, which finds its destination by binary search in `indptr`.
//! * *Cost.* `4 F b + 4` bytes per edge for `F` columns of `b` bytes.

use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::aggregate::{by_dst, by_src};
use crate::cube::launch::{self, Rows, launch_units};
use crate::cube::segment_sum::SegmentSum;
use crate::cube::segments::segment_of;
use crate::cube::sum_term::Term;
use crate::ops::edge_rows::{EdgeRowsInput, Messages};

/// The strides are in vectors.
#[cube(launch, address_type = "dynamic")]
fn edge_relu_adjoint_kernel<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    x: &[Vector<F, N>],
    edge_rows: &[Vector<F, N>],
    grad: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    width: usize,
    x_stride: usize,
    edge_stride: usize,
    grad_stride: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let edge = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let row = Vector::<f32, N>::cast_from(x[items[edge] as usize * x_stride + column]);
    let sum = row + Vector::<f32, N>::cast_from(edge_rows[edge * edge_stride + column]);
    let zero = Vector::<f32, N>::zeroed();
    let dst = segment_of(indptr, edge as u32);
    let of_dst = Vector::<f32, N>::cast_from(grad[dst * grad_stride + column]);
    out[ABSOLUTE_POS] = Vector::cast_from(select_many(sum.less_equal(&zero), zero, of_dst));
}

/// Computes the sums, `[n_src, d], [n_edges, d] -> [n_dst, d]`.
pub(super) fn relu_sum(messages: Messages<CubeBackend>) -> CubeTensor {
    let Messages { block, x, edge_rows } = messages;
    let term = Term::ReluOfEdge { edge_rows: Rows::of(edge_rows) };
    SegmentSum { term, ..by_dst(&block).sum_of(x) }.launch()
}

/// Computes the gradient of one input of the sums.
pub(super) fn relu_sum_adjoint(
    messages: &Messages<CubeBackend>,
    grad: CubeTensor,
    input: EdgeRowsInput,
) -> CubeTensor {
    let Messages { block, x, edge_rows } = messages;
    let x = Rows::of(x.clone());
    let edge_rows = Rows::of(edge_rows.clone());
    match input {
        EdgeRowsInput::Nodes => {
            let term = Term::WhereAboveZero { own: x, edge_rows };
            SegmentSum { term, ..by_src(block).sum_of(grad) }.launch()
        }
        EdgeRowsInput::Edges => edges_adjoint(messages, &x, &edge_rows, &Rows::of(grad)),
    }
}

fn edges_adjoint(messages: &Messages<CubeBackend>, x: &Rows, edge_rows: &Rows, grad: &Rows) -> CubeTensor {
    let block = &messages.block;
    let tensor = grad.tensor();
    let width = grad.width();
    let out = Rows::new(tensor, block.n_edges, width, tensor.dtype);
    if block.n_edges * width == 0 {
        return out.into_tensor();
    }
    let sizes = [x, edge_rows, grad, &out].map(|rows| rows.vector_size(&[width]));
    let vector_size = sizes.into_iter().min().unwrap_or(1);
    launch_units!(
        edge_relu_adjoint_kernel,
        tensor,
        block.n_edges * width / vector_size,
        vector_size,
        launch::buffer(&block.indptr),
        launch::buffer(&block.indices),
        x.buffer(vector_size),
        edge_rows.buffer(vector_size),
        grad.buffer(vector_size),
        out.buffer(vector_size),
        width / vector_size,
        x.stride / vector_size,
        edge_rows.stride / vector_size,
        grad.stride / vector_size,
        launch::element(tensor)
    );
    out.into_tensor()
}

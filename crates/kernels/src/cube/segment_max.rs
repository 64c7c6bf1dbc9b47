//! The largest values of rows, segment by segment and column by column, and the gradient.
//!
//! ```text
//! out[s, c] = max over the positions p of segment s of rows[items[p], c]       edges[s, c] = the first such p
//! ```
//!
//! * *Contract.* `out` is overwritten. A segment without positions has 0 and the edge -1. Of equal values the first
//!   position counts; the first value that is not a number is larger than all others.
//! * *Who computes what.* A unit has one vector of columns of one segment and walks through its positions. The gradient
//!   walks the edges by source: a unit has one vector of columns of one source and adds, in their order, what those
//!   destinations got back whose maximum came over this edge. No atomics.
//! * *Cost.* Bound by memory: `F b + 4` bytes a position; the gradient reads `F (b + 4) + 8`. A long segment is not split,
//!   so that it takes as long as its positions one after the other.

use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows};
use crate::cube::segment_sum::Segments;

#[cube(launch, address_type = "dynamic")]
fn segment_max_kernel<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    rows: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    edges: &mut [Vector<i32, N>],
    width: usize,
    stride: usize,
    #[comptime] gives_edges: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let segment = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let start = indptr[segment];
    let end = indptr[segment + 1];
    let mut best = Vector::<f32, N>::zeroed();
    let mut best_edge = Vector::<i32, N>::new(-1i32);
    if start < end {
        best = Vector::cast_from(rows[items[start as usize] as usize * stride + column]);
        best_edge = Vector::new(start as i32);
        for position in start + 1..end {
            let row = items[position as usize] as usize;
            let value = Vector::<f32, N>::cast_from(rows[row * stride + column]);
            let larger = value.greater_than(&best).or(value.is_nan());
            let edge = select_many(larger, Vector::new(position as i32), best_edge);
            best_edge = select_many(best.is_nan(), best_edge, edge);
            best = select_many(best.is_nan(), best, select_many(larger, value, best));
        }
    }
    out[ABSOLUTE_POS] = Vector::cast_from(best);
    if comptime!(gives_edges) {
        edges[ABSOLUTE_POS] = best_edge;
    }
}

#[cube(launch, address_type = "dynamic")]
fn segment_max_adjoint_kernel<F: Float, N: Size>(
    indptr: &[u32],
    dsts: &[u32],
    edges: &[u32],
    max_edges: &[Vector<i32, N>],
    grad: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    width: usize,
    stride: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let src = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let mut sum = Vector::<f32, N>::zeroed();
    for position in indptr[src]..indptr[src + 1] {
        let dst = dsts[position as usize] as usize;
        let came_from = max_edges[dst * width + column];
        let is_this = came_from.equal(&Vector::new(edges[position as usize] as i32));
        let row = Vector::<f32, N>::cast_from(grad[dst * stride + column]);
        sum += select_many(is_this, row, Vector::zeroed());
    }
    out[ABSOLUTE_POS] = Vector::cast_from(sum);
}

/// The maxima, `[n_segments, d]`, and the positions that they came from if they are asked for.
pub(super) fn segment_max(segments: &Segments, x: CubeTensor, gives_edges: bool) -> (CubeTensor, CubeTensor) {
    let rows = Rows::of(x);
    let (width, tensor) = (rows.width(), rows.tensor());
    let out = Rows::new(tensor, segments.n_segments, width, tensor.dtype);
    let edges = Rows::new(tensor, if gives_edges { segments.n_segments } else { 1 }, width, DType::I32);
    if segments.n_segments * width > 0 {
        let vector_size = rows.vector_size(&[width]).min(edges.vector_size(&[width]));
        let (count, dim) = launch::units(tensor, segments.n_segments * width / vector_size);
        segment_max_kernel::launch(
            &tensor.client,
            count,
            dim,
            launch::address(&[tensor, out.tensor(), edges.tensor()]),
            vector_size,
            launch::buffer(&segments.indptr),
            launch::buffer(&segments.items),
            rows.buffer(vector_size),
            out.buffer(vector_size),
            edges.buffer(vector_size),
            width / vector_size,
            rows.stride / vector_size,
            gives_edges,
            launch::element(tensor),
        );
    }
    (out.into_tensor(), edges.into_tensor())
}

/// `[n_dst, d] -> [n_src, d]`: each number goes to the source of its edge. `by_src` are the edges by source, `edges` the
/// position in the block of each, `max_edges` what [`segment_max`] gave.
pub(super) fn segment_max_adjoint(
    by_src: &Segments,
    edges: &CubeTensor,
    max_edges: CubeTensor,
    grad: CubeTensor,
) -> CubeTensor {
    let (grad, max_edges) = (Rows::of(grad), Rows::of(into_contiguous(max_edges)));
    let (width, tensor) = (grad.width(), grad.tensor());
    let out = Rows::new(tensor, by_src.n_segments, width, tensor.dtype);
    if by_src.n_segments * width == 0 {
        return out.into_tensor();
    }
    let vector_size = grad.vector_size(&[width]).min(max_edges.vector_size(&[width]));
    let (count, dim) = launch::units(tensor, by_src.n_segments * width / vector_size);
    segment_max_adjoint_kernel::launch(
        &tensor.client,
        count,
        dim,
        launch::address(&[tensor, out.tensor(), max_edges.tensor()]),
        vector_size,
        launch::buffer(&by_src.indptr),
        launch::buffer(&by_src.items),
        launch::buffer(edges),
        max_edges.buffer(vector_size),
        grad.buffer(vector_size),
        out.buffer(vector_size),
        width / vector_size,
        grad.stride / vector_size,
        launch::element(tensor),
    );
    out.into_tensor()
}

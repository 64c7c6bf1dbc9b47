//! Dot products of the source row and the destination row of each edge: the gradient of the weights of a weighted sum.
//!
//! ```text
//! out[e, k] = sum over the columns c of range k of x[src(e), c] * grad[dst(e), c]
//! ```
//!
//! With maxima, only the columns whose maximum came from the edge count: the gradient of the weights of a weighted maximum.
//!
//! An edge has one weight for all columns, one per head, or one per basis. The ranges of columns are those of `grad`; with
//! bases, all of them are multiplied by the whole row of `x`.
//!
//! * *Contract.* `out` is overwritten. Products are added in f32: first per lane of the vectors, then over the lanes in
//!   order.
//! * *Work distribution.* One unit per edge and weight, which finds its destination by binary search in `indptr`.
//! * *Cost.* `2 F b + 8` bytes per edge for `F` columns of `b` bytes, and `log2(n_dst)` reads of `indptr`. The
//!   destination's row stays in the caches for its other edges.

use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::lanes::sum_of_lanes;
use crate::cube::launch::{self, Rows, launch_long_units};
use crate::cube::segments::{Segments, segment_of};
use crate::ops::aggregation::Sums;

/// The columns of `x` that a weight belongs to, as a compile-time parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DotColumns {
    One,
    PerHead,
    PerBasis,
}

#[cube(launch, address_type = "dynamic")]
fn edge_dots_kernel<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    x: &[Vector<F, N>],
    grad: &[Vector<F, N>],
    max_edges: &[Vector<i32, N>],
    out: &mut [F],
    width: usize,
    x_stride: usize,
    grad_stride: usize,
    grad_first: usize,
    n_weights: usize,
    #[comptime] kind: DotColumns,
    #[comptime] is_of_maxima: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let mut edge = ABSOLUTE_POS;
    let mut of_grad = 0usize;
    let mut of_x = 0usize;
    if comptime!(kind != DotColumns::One) {
        edge = ABSOLUTE_POS / n_weights;
        of_grad = (ABSOLUTE_POS - edge * n_weights) * width;
        if comptime!(kind == DotColumns::PerHead) {
            of_x = of_grad;
        }
    }
    of_x += items[edge] as usize * x_stride;
    let dst = segment_of(indptr, edge as u32);
    of_grad += dst * grad_stride + grad_first;
    let mut sums = Vector::<f32, N>::zeroed();
    for column in 0..width {
        let value = Vector::<f32, N>::cast_from(x[of_x + column]);
        let mut product = value * Vector::cast_from(grad[of_grad + column]);
        if comptime!(is_of_maxima) {
            let is_own = max_edges[dst * width + column].equal(&Vector::new(edge as i32));
            product = select_many(is_own, product, Vector::zeroed());
        }
        sums += product;
    }
    out[ABSOLUTE_POS] = F::cast_from(sum_of_lanes::<N>(sums));
}

/// Returns the gradient of the weights of the edges, `[n_edges]` or one column per head or basis. Of `grad`, the columns from
/// `grad_first` on are read. `max_edges` are the edges that maxima came from, `[n_dst, d]`; `None` for sums.
pub(super) fn edge_dots(
    by_dst: &Segments,
    x: CubeTensor,
    grad: CubeTensor,
    grad_first: usize,
    of: Sums,
    max_edges: Option<CubeTensor>,
) -> CubeTensor {
    let x = Rows::of(x);
    let grad = Rows::of(grad);
    let tensor = x.tensor();
    let out = launch::new_tensor(tensor, of.weights_shape(by_dst.n_positions), tensor.dtype);
    if by_dst.n_positions == 0 {
        return out;
    }
    let n_weights = of.n_weights();
    let kind = match of {
        Sums::One => DotColumns::One,
        Sums::PerHead(_) => DotColumns::PerHead,
        Sums::PerBasis(_) => DotColumns::PerBasis,
    };
    let width = (grad.width() - grad_first) / n_weights;
    let max_edges = max_edges.map(|edges| Rows::of(into_contiguous(edges)));
    let of_rows = [Some(&x), Some(&grad), max_edges.as_ref()].into_iter().flatten();
    let vector_size = of_rows.map(|rows| rows.vector_size(&[width, grad_first])).min().unwrap_or(1);
    launch_long_units!(
        edge_dots_kernel,
        tensor,
        by_dst.n_positions * n_weights,
        vector_size,
        launch::buffer(&by_dst.indptr),
        launch::buffer(&by_dst.items),
        x.buffer(vector_size),
        grad.buffer(vector_size),
        max_edges
            .as_ref()
            .map_or_else(|| launch::vectors(&by_dst.items, vector_size), |edges| edges.buffer(vector_size)),
        launch::buffer(&out),
        width / vector_size,
        x.stride / vector_size,
        grad.stride / vector_size,
        grad_first / vector_size,
        n_weights,
        kind,
        max_edges.is_some(),
        launch::element(tensor)
    );
    out
}

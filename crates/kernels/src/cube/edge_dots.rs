//! Dot products of the source row and the destination row of each edge: the gradient of the weights of a weighted sum.
//!
//! ```text
//! out[e] = sum over the columns c of x[src(e), c] * grad[dst(e), c]
//! ```
//!
//! * *Contract.* `out` is overwritten. Products are added in f32: first per lane of the vectors, then over the lanes in
//!   order.
//! * *Work distribution.* One unit per edge, which finds its destination by binary search in `indptr`.
//! * *Cost.* `2 F b + 8` bytes per edge for `F` columns of `b` bytes, and `log2(n_dst)` reads of `indptr`. The
//!   destination's row stays in the caches for its other edges.

use burn::tensor::Shape;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows, launch_units};
use crate::cube::segments::{Segments, segment_of};

#[cube(launch, address_type = "dynamic")]
fn edge_dots_kernel<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    x: &[Vector<F, N>],
    grad: &[Vector<F, N>],
    out: &mut [F],
    width: usize,
    x_stride: usize,
    grad_stride: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let src = items[ABSOLUTE_POS] as usize;
    let dst = segment_of(indptr, ABSOLUTE_POS as u32);
    let mut sums = Vector::<f32, N>::zeroed();
    for column in 0..width {
        let value = Vector::<f32, N>::cast_from(x[src * x_stride + column]);
        sums += value * Vector::cast_from(grad[dst * grad_stride + column]);
    }
    let mut sum = f32::new(0.0);
    #[unroll]
    for lane in 0..N::value() {
        sum += sums.extract(lane);
    }
    out[ABSOLUTE_POS] = F::cast_from(sum);
}

/// The dot product of the two rows of each edge, `[n_src, d], [n_dst, d] -> [n_edges]`.
pub(super) fn edge_dots(by_dst: &Segments, x: CubeTensor, grad: CubeTensor) -> CubeTensor {
    let (x, grad) = (Rows::of(x), Rows::of(grad));
    let tensor = x.tensor();
    let out = launch::new_tensor(tensor, Shape::new([by_dst.n_positions]), tensor.dtype);
    if by_dst.n_positions == 0 {
        return out;
    }
    let width = x.width();
    let vector_size = x.vector_size(&[width]).min(grad.vector_size(&[width]));
    launch_units!(
        edge_dots_kernel,
        tensor,
        by_dst.n_positions,
        launch::address(&[tensor, grad.tensor(), &out]),
        vector_size,
        launch::buffer(&by_dst.indptr),
        launch::buffer(&by_dst.items),
        x.buffer(vector_size),
        grad.buffer(vector_size),
        launch::buffer(&out),
        width / vector_size,
        x.stride / vector_size,
        grad.stride / vector_size,
        launch::element(tensor)
    );
    out
}

//! Attention scores of edges, their softmax, and the gradients of both.
//!
//! ```text
//! scores[e, h] = sum over the columns c of head h of weights[c] * leaky(src[src(e), c] + dst[dst(e), c])
//! softmax[e, h] = exp(scores[e, h] - m) / (sum of exp(scores[f, h] - m) over the edges f of dst(e)), m their maximum
//! ```
//!
//! * *Contract.* Outputs are overwritten. Sums are f32, in the order of the edges or columns, and rounded once.
//! * *Work distribution.* One unit per edge and head for the scores; one per segment and vector of columns for the gradients
//!   of rows, with the edges by destination or by source; one per destination and head for the softmax. No list is split,
//!   so the edges of a hub are added by one unit per vector of columns.
//! * *Cost.* `2 F b + 8` bytes per edge for `F` columns of `b` bytes, in the scores and in each gradient.

#![allow(clippy::eq_op, reason = "a comparison of a value with itself finds NaN in kernels")]

use burn::backend::ops::FloatTensorOps;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::aggregate::{by_dst, by_src, transposed};
use crate::cube::column_sums::column_sums;
use crate::cube::launch::{self, Rows, launch_long_units, launch_units};
use crate::cube::segments::{Segments, segment_of};
use crate::device::block::Adjacency;
use crate::ops::attention::{Attention, AttentionInput};

#[cube]
fn leaky<N: Size>(sum: Vector<f32, N>, slope: f32) -> Vector<f32, N> {
    let zero = Vector::<f32, N>::zeroed();
    select_many(sum.less_equal(&zero), sum * Vector::new(slope), sum)
}

#[cube(launch, address_type = "dynamic")]
fn attention_scores_kernel<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    src: &[Vector<F, N>],
    dst: &[Vector<F, N>],
    weights: &[Vector<F, N>],
    out: &mut [F],
    width: usize,
    n_heads: usize,
    src_stride: usize,
    dst_stride: usize,
    slope: f32,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let edge = ABSOLUTE_POS / n_heads;
    let first = (ABSOLUTE_POS - edge * n_heads) * width;
    let of_src = items[edge] as usize * src_stride + first;
    let of_dst = segment_of(indptr, edge as u32) * dst_stride + first;
    let mut sums = Vector::<f32, N>::zeroed();
    for column in 0..width {
        let sum = Vector::<f32, N>::cast_from(src[of_src + column]) + Vector::cast_from(dst[of_dst + column]);
        sums += Vector::<f32, N>::cast_from(weights[first + column]) * leaky::<N>(sum, slope);
    }
    let mut sum = f32::new(0.0);
    #[unroll]
    for lane in 0..N::value() {
        sum += sums.extract(lane);
    }
    out[ABSOLUTE_POS] = F::cast_from(sum);
}

/// The numbers that the kernel of the gradients reads at run time, in vectors of values.
#[derive(CubeType, CubeLaunch)]
struct AttentionSizes {
    width: usize,
    head_width: usize,
    n_heads: usize,
    own_stride: usize,
    other_stride: usize,
    slope: f32,
}

/// Computes the sum over the positions of a segment of the gradient of the score times the leaky ReLU, or with
/// `is_derivative` its derivative, of the segment's own row plus the row of the item.
#[cube(launch, address_type = "dynamic")]
fn attention_sums<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    edges: &[u32],
    grad: &[F],
    own: &[Vector<F, N>],
    other: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    sizes: &AttentionSizes,
    #[comptime] is_derivative: bool,
    #[comptime] by_source: bool,
    #[define(F)] _dtype: ElemType,
) {
    let segment = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    if segment + 1 >= indptr.len() {
        terminate!();
    }
    let head = column / sizes.head_width;
    let own = Vector::<f32, N>::cast_from(own[segment * sizes.own_stride + column]);
    let mut total = Vector::<f32, N>::zeroed();
    for position in indptr[segment]..indptr[segment + 1] {
        let position = position as usize;
        let item = items[position] as usize;
        let mut edge = position;
        if comptime!(by_source) {
            edge = edges[position] as usize;
        }
        let sum = own + Vector::cast_from(other[item * sizes.other_stride + column]);
        let mut value = leaky::<N>(sum, sizes.slope);
        if comptime!(is_derivative) {
            let zero = Vector::<f32, N>::zeroed();
            value = select_many(sum.less_equal(&zero), Vector::new(sizes.slope), Vector::new(f32::new(1.0)));
        }
        total += value * Vector::new(f32::cast_from(grad[edge * sizes.n_heads + head]));
    }
    out[ABSOLUTE_POS] = Vector::cast_from(total);
}

#[cube(launch, address_type = "dynamic")]
fn edge_softmax_kernel<F: Float>(
    indptr: &[u32],
    scores: &[F],
    out: &mut [F],
    n_heads: usize,
    #[define(F)] _dtype: ElemType,
) {
    let dst = ABSOLUTE_POS / n_heads;
    let head = ABSOLUTE_POS % n_heads;
    if dst + 1 >= indptr.len() {
        terminate!();
    }
    let start = indptr[dst];
    let end = indptr[dst + 1];
    if start == end {
        terminate!();
    }
    let mut largest = f32::cast_from(scores[start as usize * n_heads + head]);
    for position in start + 1..end {
        let score = f32::cast_from(scores[position as usize * n_heads + head]);
        // The comparison of a value with itself is false for NaN, which must reach the result.
        largest = select(largest < score || score != score, score, largest);
    }
    let mut sum = f32::new(0.0);
    for position in start..end {
        let place = position as usize * n_heads + head;
        sum += (f32::cast_from(scores[place]) - largest).exp();
    }
    for position in start..end {
        let place = position as usize * n_heads + head;
        out[place] = F::cast_from((f32::cast_from(scores[place]) - largest).exp() / sum);
    }
}

#[cube(launch, address_type = "dynamic")]
fn edge_softmax_adjoint_kernel<F: Float>(
    indptr: &[u32],
    output: &[F],
    grad: &[F],
    out: &mut [F],
    n_heads: usize,
    #[define(F)] _dtype: ElemType,
) {
    let dst = ABSOLUTE_POS / n_heads;
    let head = ABSOLUTE_POS % n_heads;
    if dst + 1 >= indptr.len() {
        terminate!();
    }
    let start = indptr[dst];
    let end = indptr[dst + 1];
    let mut mean = f32::new(0.0);
    for position in start..end {
        let place = position as usize * n_heads + head;
        mean += f32::cast_from(output[place]) * f32::cast_from(grad[place]);
    }
    for position in start..end {
        let place = position as usize * n_heads + head;
        let value = f32::cast_from(output[place]) * (f32::cast_from(grad[place]) - mean);
        out[place] = F::cast_from(value);
    }
}

/// Computes the scores, `[n_edges, n_heads]`.
pub(super) fn scores(inputs: Attention<CubeBackend>) -> CubeTensor {
    let Attention { block, src, dst, weights, slope } = inputs;
    let [n_heads, width] = weights.meta.shape().dims();
    let src = Rows::of(src);
    let dst = Rows::of(dst);
    let weights = Rows::of(into_contiguous(weights));
    let tensor = src.tensor();
    let out = launch::new_tensor(tensor, Shape::new([block.n_edges, n_heads]), tensor.dtype);
    if block.n_edges * n_heads == 0 {
        return out;
    }
    let sizes = [&src, &dst, &weights].map(|rows| rows.vector_size(&[width]));
    let vector_size = sizes[0].min(sizes[1]).min(sizes[2]);
    let segments = by_dst(&block);
    launch_long_units!(
        attention_scores_kernel,
        tensor,
        block.n_edges * n_heads,
        launch::address(&[tensor, dst.tensor(), &out]),
        vector_size,
        launch::buffer(&segments.indptr),
        launch::buffer(&segments.items),
        src.buffer(vector_size),
        dst.buffer(vector_size),
        weights.buffer(vector_size),
        launch::buffer(&out),
        width / vector_size,
        n_heads,
        src.stride / vector_size,
        dst.stride / vector_size,
        slope,
        launch::element(tensor)
    );
    out
}

/// Computes the gradient of one input of the scores.
pub(super) fn scores_adjoint(
    inputs: &Attention<CubeBackend>,
    grad: CubeTensor,
    input: AttentionInput,
) -> CubeTensor {
    let Attention { block, src, dst, weights, .. } = inputs;
    let shape = weights.meta.shape().clone();
    let row = Shape::new([1, shape.num_elements()]);
    let grad = into_contiguous(grad);
    let times_weights = |sums| CubeBackend::float_mul(sums, CubeBackend::float_reshape(weights.clone(), row));
    match input {
        AttentionInput::Src => {
            let edges = &transposed(block).edges;
            times_weights(sums(inputs, &by_src(block), Some(edges), grad, [src, dst], true))
        }
        AttentionInput::Dst => times_weights(sums(inputs, &by_dst(block), None, grad, [dst, src], true)),
        AttentionInput::Weights => {
            let of_dsts = sums(inputs, &by_dst(block), None, grad, [dst, src], false);
            CubeBackend::float_reshape(column_sums(of_dsts), shape)
        }
    }
}

/// Launches the kernel of the gradients. `rows` are the segments' own rows and the items' rows; `edges` are the edges of
/// the positions, unless the positions are edges.
fn sums(
    inputs: &Attention<CubeBackend>,
    segments: &Segments,
    edges: Option<&CubeTensor>,
    grad: CubeTensor,
    rows: [&CubeTensor; 2],
    is_derivative: bool,
) -> CubeTensor {
    let [n_heads, head_width] = inputs.weights.meta.shape().dims();
    let [own, other] = rows.map(|rows| Rows::of(rows.clone()));
    let tensor = own.tensor();
    let width = own.width();
    let out = Rows::new(tensor, segments.n_segments, width, tensor.dtype);
    if segments.n_segments * width == 0 {
        return out.into_tensor();
    }
    let vector_size = own.vector_size(&[head_width]).min(other.vector_size(&[head_width]));
    let sizes = AttentionSizesLaunch::new(
        width / vector_size,
        head_width / vector_size,
        n_heads,
        own.stride / vector_size,
        other.stride / vector_size,
        inputs.slope,
    );
    launch_units!(
        attention_sums,
        tensor,
        segments.n_segments * width / vector_size,
        launch::address(&[tensor, other.tensor(), out.tensor(), &grad]),
        vector_size,
        launch::buffer(&segments.indptr),
        launch::buffer(&segments.items),
        launch::buffer(edges.unwrap_or(&segments.items)),
        launch::buffer(&grad),
        own.buffer(vector_size),
        other.buffer(vector_size),
        out.buffer(vector_size),
        sizes,
        is_derivative,
        edges.is_some(),
        launch::element(tensor)
    );
    out.into_tensor()
}

/// Computes the softmax over the edges of each destination, `[n_edges, n_heads]`.
pub(super) fn softmax(block: &Adjacency<CubeBackend>, scores: CubeTensor) -> CubeTensor {
    let scores = into_contiguous(scores);
    let out = launch::new_tensor(&scores, scores.meta.shape().clone(), scores.dtype);
    let n_heads = scores.meta.shape()[1];
    if block.n_edges * n_heads == 0 {
        return out;
    }
    launch_units!(
        edge_softmax_kernel,
        &scores,
        block.n_dst * n_heads,
        launch::address(&[&scores, &out]),
        launch::buffer(&by_dst(block).indptr),
        launch::buffer(&scores),
        launch::buffer(&out),
        n_heads,
        launch::element(&scores)
    );
    out
}

/// Computes the gradient of the softmax from its result.
pub(super) fn softmax_adjoint(
    block: &Adjacency<CubeBackend>,
    output: CubeTensor,
    grad: CubeTensor,
) -> CubeTensor {
    let output = into_contiguous(output);
    let grad = into_contiguous(grad);
    let out = launch::new_tensor(&output, output.meta.shape().clone(), output.dtype);
    let n_heads = output.meta.shape()[1];
    if block.n_edges * n_heads == 0 {
        return out;
    }
    launch_units!(
        edge_softmax_adjoint_kernel,
        &output,
        block.n_dst * n_heads,
        launch::address(&[&output, &grad, &out]),
        launch::buffer(&by_dst(block).indptr),
        launch::buffer(&output),
        launch::buffer(&grad),
        launch::buffer(&out),
        n_heads,
        launch::element(&output)
    );
    out
}

//! Attention scores of edges, their softmax, and the gradients of both.
//!
//! ```text
//! scores[e, h] = sum over the columns c of head h of weights[c] * leaky(src[src(e), c] + dst[dst(e), c])
//! softmax[e, h] = exp(scores[e, h] - m) / (sum of exp(scores[f, h] - m) over the edges f of dst(e)), m their maximum
//! ```
//!
//! * *Contract.* Outputs are overwritten. Sums are f32, in the order of the edges or columns, and rounded once.
//! * *Work distribution.* One unit per edge and head for the scores. The gradients of rows are [segment
//!   sums](crate::cube::segment_sum), with the edges by destination or by source. One unit per destination and head for the
//!   softmax of a destination with up to [`CHUNK`] edges. For others, the maximum and the sums are segment maxima and segment
//!   sums, and one unit per edge and head computes the result.
//! * *Cost.* `2 F b + 8` bytes per edge for `F` columns of `b` bytes, in the scores and in each gradient.

#![allow(clippy::eq_op, reason = "a comparison of a value with itself finds NaN in kernels")]

use burn::backend::ops::{FloatTensorOps, IntTensorOps};
use burn::tensor::{FloatDType, IntDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::aggregate::{by_dst, by_src};
use crate::cube::column_sums::column_sums;
use crate::cube::lanes::sum_of_lanes;
use crate::cube::launch::{self, Rows, launch_long_units, launch_units};
use crate::cube::segment_max::segment_max;
use crate::cube::segment_sum::SegmentSum;
use crate::cube::segments::{CHUNK, Segments, segment_of};
use crate::cube::sum_factor::{Factor, SumColumns};
use crate::cube::sum_term::{Term, leaky};
use crate::device::block::Adjacency;
use crate::ops::attention::{Attention, AttentionInput};

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
    out[ABSOLUTE_POS] = F::cast_from(sum_of_lanes::<N>(sums));
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
    if start == end || end - start > CHUNK {
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
    if end - start > CHUNK {
        terminate!();
    }
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

/// Computes the softmax of the edges of destinations with more than [`CHUNK`] edges from the maxima and the sums of
/// exponentials of the destinations.
#[cube(launch, address_type = "dynamic")]
fn long_softmax_kernel<F: Float>(
    indptr: &[u32],
    scores: &[F],
    maxima: &[f32],
    sums: &[f32],
    out: &mut [F],
    n_heads: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let edge = ABSOLUTE_POS / n_heads;
    let dst = segment_of(indptr, edge as u32);
    if indptr[dst + 1] - indptr[dst] <= CHUNK {
        terminate!();
    }
    let place = dst * n_heads + ABSOLUTE_POS % n_heads;
    out[ABSOLUTE_POS] =
        F::cast_from((f32::cast_from(scores[ABSOLUTE_POS]) - maxima[place]).exp() / sums[place]);
}

/// Computes the gradient of the softmax of the edges of destinations with more than [`CHUNK`] edges from the means of the
/// destinations.
#[cube(launch, address_type = "dynamic")]
fn long_softmax_adjoint_kernel<F: Float>(
    indptr: &[u32],
    output: &[F],
    grad: &[F],
    means: &[f32],
    out: &mut [F],
    n_heads: usize,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let edge = ABSOLUTE_POS / n_heads;
    let dst = segment_of(indptr, edge as u32);
    if indptr[dst + 1] - indptr[dst] <= CHUNK {
        terminate!();
    }
    let place = dst * n_heads + ABSOLUTE_POS % n_heads;
    let grad = f32::cast_from(grad[ABSOLUTE_POS]);
    out[ABSOLUTE_POS] = F::cast_from(f32::cast_from(output[ABSOLUTE_POS]) * (grad - means[place]));
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
        AttentionInput::Src => times_weights(sums(inputs, by_src(block), grad, [src, dst], true)),
        AttentionInput::Dst => times_weights(sums(inputs, by_dst(block), grad, [dst, src], true)),
        AttentionInput::Weights => {
            let of_dsts = sums(inputs, by_dst(block), grad, [dst, src], false);
            CubeBackend::float_reshape(column_sums(of_dsts), shape)
        }
    }
}

/// Computes the sums over the positions of segments of the gradient of the score times the leaky ReLU, or with `is_derivative`
/// its derivative. `rows` are the segments' own rows and the items' rows.
fn sums(
    inputs: &Attention<CubeBackend>,
    segments: Segments,
    grad: CubeTensor,
    rows: [&CubeTensor; 2],
    is_derivative: bool,
) -> CubeTensor {
    let [n_heads, _] = inputs.weights.meta.shape().dims();
    let [own, items] = rows.map(Clone::clone);
    let own = Rows::of(own);
    let slope = inputs.slope;
    let term = if is_derivative { Term::LeakySlope { own, slope } } else { Term::Leaky { own, slope } };
    let factor = Factor::OfEdge(grad);
    let factor_columns = SumColumns::PerHead(n_heads);
    SegmentSum { term, factor, factor_columns, ..segments.sum_of(items) }.launch()
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
        launch::buffer(&block.indptr),
        launch::buffer(&scores),
        launch::buffer(&out),
        n_heads,
        launch::element(&scores)
    );
    if by_dst(block).may_be_long() {
        long_softmax(block, &scores, &out);
    }
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
        launch::buffer(&block.indptr),
        launch::buffer(&output),
        launch::buffer(&grad),
        launch::buffer(&out),
        n_heads,
        launch::element(&output)
    );
    if by_dst(block).may_be_long() {
        long_softmax_adjoint(block, &output, &grad, &out);
    }
    out
}

/// Returns the edges by destination as segments of rows of edges.
fn rows_by_dst(block: &Adjacency<CubeBackend>) -> Segments {
    let items = CubeBackend::int_arange(0..block.n_edges as i64, &block.indptr.device, IntDType::I32);
    Segments { items, ..by_dst(block) }
}

/// Writes the softmax of the destinations with many edges. Sums are in f32: those of many halves would overflow.
fn long_softmax(block: &Adjacency<CubeBackend>, scores: &CubeTensor, out: &CubeTensor) {
    let n_heads = scores.meta.shape()[1];
    let segments = rows_by_dst(block);
    let wide = CubeBackend::float_cast(scores.clone(), FloatDType::F32);
    let (maxima, _) = segment_max(&segments, wide.clone(), None, false);
    let term = Term::ExpMinus { own: Rows::of(maxima.clone()) };
    let sums = SegmentSum { term, ..segments.sum_of(wide) }.launch();
    launch_units!(
        long_softmax_kernel,
        scores,
        block.n_edges * n_heads,
        launch::buffer(&block.indptr),
        launch::buffer(scores),
        launch::buffer(&maxima),
        launch::buffer(&sums),
        launch::buffer(out),
        n_heads,
        launch::element(scores)
    );
}

/// Writes the gradient of the softmax of the destinations with many edges.
fn long_softmax_adjoint(
    block: &Adjacency<CubeBackend>,
    output: &CubeTensor,
    grad: &CubeTensor,
    out: &CubeTensor,
) {
    let n_heads = output.meta.shape()[1];
    let [wide, factor] = [output, grad].map(|rows| CubeBackend::float_cast(rows.clone(), FloatDType::F32));
    let factor_columns = SumColumns::PerHead(n_heads);
    let sum = rows_by_dst(block).sum_of(wide);
    let means = SegmentSum { factor: Factor::OfEdge(factor), factor_columns, ..sum }.launch();
    launch_units!(
        long_softmax_adjoint_kernel,
        output,
        block.n_edges * n_heads,
        launch::buffer(&block.indptr),
        launch::buffer(output),
        launch::buffer(grad),
        launch::buffer(&means),
        launch::buffer(out),
        n_heads,
        launch::element(output)
    );
}

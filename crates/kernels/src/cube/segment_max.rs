//! Maxima of rows over segments, column by column.
//!
//! ```text
//! out[s, c] = max over the positions p of segment s of weight(p) * rows[items[p], c]       edges[s, c] = the first such p
//! ```
//!
//! * *Contract.* `out` is overwritten. A segment without positions has the maximum 0 and the edge -1. Among equal
//!   values, the first position wins. A NaN counts as larger than all values before it.
//! * *Work distribution.* One unit per segment and vector of columns. Long segments are split into chunks and combined
//!   in order, as in `segment_sum`. The gradient of the rows is a sum over the edges by source ([`Term::WhereMax`]).
//! * *Cost.* Memory-bound: `F b + 4` bytes per position for `F` columns of `b` bytes.
//!
//! [`Term::WhereMax`]: crate::cube::sum_term::Term::WhereMax

use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows, launch_long_units, launch_units};
use crate::cube::segments::{CHUNK, Segments, segment_of};

/// The largest values found so far in each column, and their positions.
#[derive(CubeType)]
struct Best<N: Size> {
    value: Vector<f32, N>,
    edge: Vector<i32, N>,
}

/// The column-wise maximum of `best` and `later`, which has the later positions. A NaN in `later` always wins, as on
/// the CPU.
#[cube]
fn better_of<N: Size>(best: &Best<N>, later: &Best<N>) -> Best<N> {
    let wins = later.value.greater_than(&best.value).or(later.value.is_nan());
    Best::<N> {
        value: select_many(wins, later.value, best.value),
        edge: select_many(wins, later.edge, best.edge),
    }
}

#[cube]
fn row_of<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    items: &[u32],
    weights: &[F],
    stride: usize,
    position: u32,
    column: usize,
    #[comptime] is_weighted: bool,
) -> Best<N> {
    let row = items[position as usize] as usize;
    let mut value = Vector::<f32, N>::cast_from(rows[row * stride + column]);
    if comptime!(is_weighted) {
        value *= Vector::new(f32::cast_from(weights[position as usize]));
    }
    Best::<N> { value, edge: Vector::new(position as i32) }
}

/// The maximum over a non-empty range of positions.
#[cube]
fn best_of<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    items: &[u32],
    weights: &[F],
    stride: usize,
    start: u32,
    end: u32,
    column: usize,
    #[comptime] is_weighted: bool,
) -> Best<N> {
    let mut best = row_of::<F, N>(rows, items, weights, stride, start, column, is_weighted);
    for position in start + 1..end {
        let later = row_of::<F, N>(rows, items, weights, stride, position, column, is_weighted);
        let better = better_of::<N>(&best, &later);
        best.value = better.value;
        best.edge = better.edge;
    }
    best
}

/// Computes the maxima of all segments except those that are split into chunks.
#[cube(launch, address_type = "dynamic")]
fn segment_max_kernel<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    weights: &[F],
    rows: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    edges: &mut [Vector<i32, N>],
    width: usize,
    stride: usize,
    #[comptime] is_weighted: bool,
    #[comptime] gives_edges: bool,
    #[comptime] splits: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let segment = ABSOLUTE_POS / width;
    let start = indptr[segment];
    let end = indptr[segment + 1];
    if comptime!(splits) && end - start > CHUNK {
        terminate!();
    }
    let mut best = Best::<N> { value: Vector::zeroed(), edge: Vector::new(-1i32) };
    if start < end {
        let column = ABSOLUTE_POS % width;
        let found = best_of::<F, N>(rows, items, weights, stride, start, end, column, is_weighted);
        best.value = found.value;
        best.edge = found.edge;
    }
    out[ABSOLUTE_POS] = Vector::cast_from(best.value);
    if comptime!(gives_edges) {
        edges[ABSOLUTE_POS] = best.edge;
    }
}

/// Computes the maxima of the parts of long segments in each chunk. The results have the layout of the partial sums of
/// `segment_sum`.
#[cube(launch, address_type = "dynamic")]
fn chunk_maxima<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    weights: &[F],
    rows: &[Vector<F, N>],
    values: &mut [Vector<f32, N>],
    edges: &mut [Vector<i32, N>],
    width: usize,
    stride: usize,
    #[comptime] is_weighted: bool,
    #[define(F)] _dtype: ElemType,
) {
    let chunk = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let n_positions = items.len() as u32;
    let start = chunk as u32 * CHUNK;
    if start >= n_positions {
        terminate!();
    }
    let end = min(start + CHUNK, n_positions);
    let first = segment_of(indptr, start);
    let last = segment_of(indptr, end - 1);
    let place = chunk * 2 * width + column;
    if indptr[first + 1] - indptr[first] > CHUNK {
        let first_end = min(indptr[first + 1], end);
        let best = best_of::<F, N>(rows, items, weights, stride, start, first_end, column, is_weighted);
        values[place] = best.value;
        edges[place] = best.edge;
    }
    if last != first && indptr[last + 1] - indptr[last] > CHUNK {
        let best = best_of::<F, N>(rows, items, weights, stride, indptr[last], end, column, is_weighted);
        values[place + width] = best.value;
        edges[place + width] = best.edge;
    }
}

/// Computes the maxima of long segments from those of their parts in the chunks.
#[cube(launch, address_type = "dynamic")]
fn long_maxima<F: Float, N: Size>(
    indptr: &[u32],
    part_values: &[Vector<f32, N>],
    part_edges: &[Vector<i32, N>],
    out: &mut [Vector<F, N>],
    edges: &mut [Vector<i32, N>],
    width: usize,
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
    if end - start <= CHUNK {
        terminate!();
    }
    let first = start / CHUNK;
    let mut place = first as usize * 2 * width + column;
    if first * CHUNK < start {
        place += width;
    }
    let mut best = Best::<N> { value: part_values[place], edge: part_edges[place] };
    for chunk in first + 1..(end - 1) / CHUNK + 1 {
        let place = chunk as usize * 2 * width + column;
        let later = Best::<N> { value: part_values[place], edge: part_edges[place] };
        let better = better_of::<N>(&best, &later);
        best.value = better.value;
        best.edge = better.edge;
    }
    out[ABSOLUTE_POS] = Vector::cast_from(best.value);
    if comptime!(gives_edges) {
        edges[ABSOLUTE_POS] = best.edge;
    }
}

/// Computes the maxima, `[n_segments, d]`, and their positions. `weights` has a number per position, by which its row is
/// multiplied. If `gives_edges` is false, the second tensor is not written.
pub(super) fn segment_max(
    segments: &Segments,
    x: CubeTensor,
    weights: Option<CubeTensor>,
    gives_edges: bool,
) -> (CubeTensor, CubeTensor) {
    let rows = Rows::of(x);
    let width = rows.width();
    let tensor = rows.tensor();
    let out = Rows::new(tensor, segments.n_segments, width, tensor.dtype);
    let edges = Rows::new(tensor, if gives_edges { segments.n_segments } else { 1 }, width, DType::I32);
    let n_units = segments.n_segments * width;
    let n_chunks = segments.n_positions.div_ceil(CHUNK as usize);
    if n_units == 0 {
        return (out.into_tensor(), edges.into_tensor());
    }
    let vector_size = rows.vector_size(&[width]).min(edges.vector_size(&[width]));
    let n_vectors = width / vector_size;
    let stride = rows.stride / vector_size;
    let splits = segments.may_be_long();
    let weights = weights.map(into_contiguous);
    let weights_or_any = || weights.as_ref().map_or_else(|| rows.buffer(1), launch::buffer);
    launch_long_units!(
        segment_max_kernel,
        tensor,
        n_units / vector_size,
        vector_size,
        launch::buffer(&segments.indptr),
        launch::buffer(&segments.items),
        weights_or_any(),
        rows.buffer(vector_size),
        out.buffer(vector_size),
        edges.buffer(vector_size),
        n_vectors,
        stride,
        weights.is_some(),
        gives_edges,
        splits,
        launch::element(tensor)
    );
    if splits {
        let part_values = Rows::new(tensor, 2 * n_chunks, width, DType::F32);
        let part_edges = Rows::new(tensor, 2 * n_chunks, width, DType::I32);
        launch_units!(
            chunk_maxima,
            tensor,
            n_chunks * n_vectors,
            vector_size,
            launch::buffer(&segments.indptr),
            launch::buffer(&segments.items),
            weights_or_any(),
            rows.buffer(vector_size),
            part_values.buffer(vector_size),
            part_edges.buffer(vector_size),
            n_vectors,
            stride,
            weights.is_some(),
            launch::element(tensor)
        );
        launch_units!(
            long_maxima,
            tensor,
            n_units / vector_size,
            vector_size,
            launch::buffer(&segments.indptr),
            part_values.buffer(vector_size),
            part_edges.buffer(vector_size),
            out.buffer(vector_size),
            edges.buffer(vector_size),
            n_vectors,
            gives_edges,
            launch::element(tensor)
        );
    }
    (out.into_tensor(), edges.into_tensor())
}

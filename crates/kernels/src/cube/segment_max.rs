//! Maxima of rows over segments, column by column, and their gradient.
//!
//! ```text
//! out[s, c] = max over the positions p of segment s of rows[items[p], c]       edges[s, c] = the first such p
//! ```
//!
//! * *Contract.* `out` is overwritten. A segment without positions has the maximum 0 and the edge -1. Among equal
//!   values, the first position wins. A NaN counts as larger than all values before it.
//! * *Work distribution.* One unit per segment and vector of columns. Long segments are split into chunks and combined
//!   in order, as in `segment_sum`. The gradient iterates over the edges by source: one unit per source and vector of
//!   columns adds, in order, the gradients of the maxima that came from its edges. There are no atomics.
//! * *Cost.* Memory-bound: `F b + 4` bytes per position for `F` columns of `b` bytes. The gradient reads `F (b + 4) +
//!   8` bytes per edge and does not split the edges of a source.

use burn::tensor::DType;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows, launch_units};
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
    stride: usize,
    position: u32,
    column: usize,
) -> Best<N> {
    let row = items[position as usize] as usize;
    Best::<N> { value: Vector::cast_from(rows[row * stride + column]), edge: Vector::new(position as i32) }
}

/// The maximum over a non-empty range of positions.
#[cube]
fn best_of<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    items: &[u32],
    stride: usize,
    start: u32,
    end: u32,
    column: usize,
) -> Best<N> {
    let mut best = row_of::<F, N>(rows, items, stride, start, column);
    for position in start + 1..end {
        let later = row_of::<F, N>(rows, items, stride, position, column);
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
    rows: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    edges: &mut [Vector<i32, N>],
    width: usize,
    stride: usize,
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
        let found = best_of::<F, N>(rows, items, stride, start, end, ABSOLUTE_POS % width);
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
    rows: &[Vector<F, N>],
    values: &mut [Vector<f32, N>],
    edges: &mut [Vector<i32, N>],
    width: usize,
    stride: usize,
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
        let best = best_of::<F, N>(rows, items, stride, start, min(indptr[first + 1], end), column);
        values[place] = best.value;
        edges[place] = best.edge;
    }
    if last != first && indptr[last + 1] - indptr[last] > CHUNK {
        let best = best_of::<F, N>(rows, items, stride, indptr[last], end, column);
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

/// Computes the maxima, `[n_segments, d]`, and their positions. If `gives_edges` is false, the second tensor is not
/// written.
pub(super) fn segment_max(segments: &Segments, x: CubeTensor, gives_edges: bool) -> (CubeTensor, CubeTensor) {
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
    let address = launch::address(&[tensor, out.tensor(), edges.tensor()]);
    let splits = segments.may_be_long();
    launch_units!(
        segment_max_kernel,
        tensor,
        n_units / vector_size,
        address,
        vector_size,
        launch::buffer(&segments.indptr),
        launch::buffer(&segments.items),
        rows.buffer(vector_size),
        out.buffer(vector_size),
        edges.buffer(vector_size),
        n_vectors,
        stride,
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
            address,
            vector_size,
            launch::buffer(&segments.indptr),
            launch::buffer(&segments.items),
            rows.buffer(vector_size),
            part_values.buffer(vector_size),
            part_edges.buffer(vector_size),
            n_vectors,
            stride,
            launch::element(tensor)
        );
        launch_units!(
            long_maxima,
            tensor,
            n_units / vector_size,
            address,
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

/// `[n_dst, d] -> [n_src, d]`: adds the gradient of each maximum to the source that it came from. `by_src` has the
/// edges by source, `edges` their positions in the block, and `max_edges` the positions that [`segment_max`] returned.
pub(super) fn segment_max_adjoint(
    by_src: &Segments,
    edges: &CubeTensor,
    max_edges: CubeTensor,
    grad: CubeTensor,
) -> CubeTensor {
    let grad = Rows::of(grad);
    let max_edges = Rows::of(into_contiguous(max_edges));
    let width = grad.width();
    let tensor = grad.tensor();
    let out = Rows::new(tensor, by_src.n_segments, width, tensor.dtype);
    if by_src.n_segments * width == 0 {
        return out.into_tensor();
    }
    let vector_size = grad.vector_size(&[width]).min(max_edges.vector_size(&[width]));
    launch_units!(
        segment_max_adjoint_kernel,
        tensor,
        by_src.n_segments * width / vector_size,
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
        launch::element(tensor)
    );
    out.into_tensor()
}

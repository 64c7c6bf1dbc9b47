//! Sums of rows over segments: sums and means, weighted or not, and all gradients of sums are instances of it.
//!
//! ```text
//! out[s] = own(s) + (sum over the positions p of segment s of factor(p) * term(rows[items[p]])) / divisor(s)
//! ```
//!
//! The [`Term`] is the row itself, or a function of the row and of the rows of the segment and of the edge. With several
//! factors per position, [`SumColumns`] says which columns each factor belongs to.
//!
//! * *Contract.* `out` is overwritten. A segment without positions has the sum 0. Values are widened to f32, added in
//!   f32, and rounded once to the element type of the rows. There are no atomics: the positions of a segment are added
//!   in order. Segments longer than a chunk are added in chunks that begin at multiples of its size, and the sums of the
//!   chunks are added in order; those of very many chunks first in groups of [`GROUP`] chunks. The size of a chunk depends
//!   on the number of positions and the width only. The result therefore depends on nothing but the arithmetic of the
//!   device.
//! * *Work distribution.* One unit per segment and vector of neighbouring columns, so that neighbouring units read a
//!   whole row together. Segments longer than a chunk are left to two more launches: one unit per chunk and vector sums
//!   the parts of the at most two long segments in the chunk, and one unit per long segment and vector adds these
//!   parts. Few units get smaller chunks. A segment of more than [`GROUP`] chunks takes two launches more for each factor of
//!   [`GROUP`].
//! * *Cost.* Memory-bound: `F b + 4` bytes per position and `F b + 8` per segment, for `F` columns of `b` bytes. The
//!   parts of long segments are at most two rows per chunk. The second and the third launch run only if
//!   the host cannot exclude long segments; the second finds them by binary search, because no list of them exists.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows, launch_long_units, launch_units};
use crate::cube::segments::{CHUNK, Segments, segment_of};
use crate::cube::sum_factor::{ColumnsKind, Factor, FactorKind, Factors, SumColumns, factor_of};
use crate::cube::sum_term::{Term, TermKind, Terms, own_row, term_of};

/// The use of a segment's own row. The own row of segment `s` is row `s` of [`SegmentSum::rows`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Own {
    Nothing,
    /// The own row is written in front of the sum.
    Beside,
    /// The own row times `weight` is added to the sum, for the first `n_segments` segments.
    Plus {
        weight: f32,
        n_segments: usize,
    },
}

/// The parameters of a sum.
#[derive(Debug, Clone)]
pub(super) struct SegmentSum {
    pub(super) segments: Segments,
    pub(super) rows: Rows,
    /// The first summed column of the rows, and the number of summed columns of the rows.
    pub(super) columns: (usize, usize),
    /// [`Term::Row`] with [`SumColumns::PerBasis`] and [`SumColumns::OverBases`].
    pub(super) term: Term,
    pub(super) factor: Factor,
    pub(super) factor_columns: SumColumns,
    pub(super) is_mean: bool,
    /// The use of the own rows, which begin at column 0 of `rows`.
    pub(super) own: Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OwnKind {
    Nothing,
    Beside,
    Plus,
}

/// The compile-time parameters of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    term: TermKind,
    factor: FactorKind,
    /// True if the edges of positions are read from an array.
    has_edges: bool,
    columns: ColumnsKind,
    own: OwnKind,
    is_mean: bool,
    /// True if separate kernels compute segments of more than [`CHUNK`] positions.
    splits: bool,
}

/// The number of chunks of a larger chunk.
const GROUP: u32 = 128;

/// The smallest number of positions of a chunk.
const LEAST_CHUNK: u32 = 32;

/// The number of units from which all multiprocessors of a GPU are busy.
const MANY_UNITS: usize = 1 << 15;

/// The numbers that the kernels read at run time. Widths, strides and columns are in vectors of values.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    /// The number of summed columns of the result.
    width: usize,
    /// The number of factors of a position, and the number of columns of each range. Not read with [`ColumnsKind::All`].
    n_factors: usize,
    range_width: usize,
    /// The distance from the start of a row to the next.
    stride: usize,
    first_column: usize,
    out_stride: usize,
    n_own: usize,
    own_weight: f32,
    /// The number of positions of a chunk.
    chunk: u32,
}

/// The sum over a range of positions, for one vector of columns.
#[cube]
fn sum_of<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    items: &[u32],
    edges: &[u32],
    factors: &Factors<F>,
    terms: &Terms<F, N>,
    sizes: &Sizes,
    segment: usize,
    start: u32,
    end: u32,
    column: usize,
    #[comptime] shape: Shape,
) -> Vector<f32, N> {
    let mut sum = Vector::<f32, N>::zeroed();
    let mut range = 0usize;
    if comptime!(shape.columns == ColumnsKind::PerHead || shape.columns == ColumnsKind::PerBasis) {
        range = column / sizes.range_width;
    }
    let mut column = column;
    if comptime!(shape.columns == ColumnsKind::PerBasis) {
        column -= range * sizes.range_width;
    }
    let own = own_row::<F, N>(terms, segment, column, shape.term);
    for position in start..end {
        let position = position as usize;
        let item = items[position] as usize;
        let mut edge = position;
        if comptime!(shape.has_edges) {
            edge = edges[position] as usize;
        }
        let place = item * sizes.stride + sizes.first_column + column;
        if comptime!(shape.columns == ColumnsKind::OverBases) {
            for base in 0..sizes.n_factors {
                let row = Vector::<f32, N>::cast_from(rows[place + base * sizes.range_width]);
                sum += row
                    * Vector::new(factor_of::<F>(
                        factors,
                        sizes.n_factors,
                        edge,
                        item,
                        base,
                        shape.factor,
                        shape.columns,
                    ));
            }
        } else {
            let row = Vector::<f32, N>::cast_from(rows[place]);
            let term = term_of::<F, N>(terms, row, own, item, edge, column, shape.term);
            if comptime!(shape.factor == FactorKind::One) {
                sum += term;
            } else {
                sum += term
                    * Vector::new(factor_of::<F>(
                        factors,
                        sizes.n_factors,
                        edge,
                        item,
                        range,
                        shape.factor,
                        shape.columns,
                    ));
            }
        }
    }
    sum
}

/// Computes the result of a segment from its sum, and writes it.
#[cube]
fn finish<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    sizes: &Sizes,
    segment: usize,
    column: usize,
    sum: Vector<f32, N>,
    n_positions: u32,
    #[comptime] shape: Shape,
) {
    let mut sum = sum;
    if comptime!(shape.is_mean) {
        sum /= Vector::new(f32::cast_from(max(n_positions, 1u32)));
    }
    match comptime!(shape.own) {
        OwnKind::Nothing => {
            out[segment * sizes.out_stride + column] = Vector::cast_from(sum);
        }
        OwnKind::Beside => {
            let place = segment * sizes.out_stride + column;
            if comptime!(shape.columns == ColumnsKind::PerBasis) {
                // The own row is as wide as one range.
                if column < sizes.range_width {
                    out[place] = rows[segment * sizes.stride + column];
                }
                out[place + sizes.range_width] = Vector::cast_from(sum);
            } else {
                out[place] = rows[segment * sizes.stride + column];
                out[place + sizes.width] = Vector::cast_from(sum);
            }
        }
        OwnKind::Plus => {
            if segment < sizes.n_own {
                let own = Vector::<f32, N>::cast_from(rows[segment * sizes.stride + column]);
                sum += own * Vector::new(sizes.own_weight);
            }
            out[segment * sizes.out_stride + column] = Vector::cast_from(sum);
        }
    }
}

/// Computes the results of all segments except those that are split into chunks.
#[cube(launch, address_type = "dynamic")]
fn segment_sum<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    edges: &[u32],
    factors: &Factors<F>,
    terms: &Terms<F, N>,
    rows: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    sizes: &Sizes,
    #[comptime] shape: Shape,
    #[define(F)] _dtype: ElemType,
) {
    let segment = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    if segment + 1 >= indptr.len() {
        terminate!();
    }
    let start = indptr[segment];
    let end = indptr[segment + 1];
    if comptime!(shape.splits) && end - start > sizes.chunk {
        terminate!();
    }
    let sum = sum_of::<F, N>(rows, items, edges, factors, terms, sizes, segment, start, end, column, shape);
    finish::<F, N>(rows, out, sizes, segment, column, sum, end - start, shape);
}

/// Computes the sums of the parts of long segments in each chunk. Only the segments of the first and the last position
/// of a chunk can be long, because a segment between them is shorter than the chunk.
#[cube(launch, address_type = "dynamic")]
fn chunk_sums<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    edges: &[u32],
    factors: &Factors<F>,
    terms: &Terms<F, N>,
    rows: &[Vector<F, N>],
    parts: &mut [Vector<f32, N>],
    sizes: &Sizes,
    #[comptime] shape: Shape,
    #[define(F)] _dtype: ElemType,
) {
    let chunk = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    let n_positions = items.len() as u32;
    let start = chunk as u32 * sizes.chunk;
    if start >= n_positions {
        terminate!();
    }
    let end = min(start + sizes.chunk, n_positions);
    let first = segment_of(indptr, start);
    let last = segment_of(indptr, end - 1);
    let place = chunk * 2 * sizes.width + column;
    if indptr[first + 1] - indptr[first] > sizes.chunk {
        let first_end = min(indptr[first + 1], end);
        parts[place] =
            sum_of::<F, N>(rows, items, edges, factors, terms, sizes, first, start, first_end, column, shape);
    }
    if last != first && indptr[last + 1] - indptr[last] > sizes.chunk {
        let last_start = indptr[last];
        parts[place + sizes.width] =
            sum_of::<F, N>(rows, items, edges, factors, terms, sizes, last, last_start, end, column, shape);
    }
}

/// The sum of the parts of a segment in the chunks from that of position `from` to that before position `to`. The segment begins
/// at `start`.
#[cube]
fn sum_of_parts<N: Size>(
    parts: &[Vector<f32, N>],
    sizes: &Sizes,
    start: u32,
    from: u32,
    to: u32,
    column: usize,
) -> Vector<f32, N> {
    let mut sum = Vector::<f32, N>::zeroed();
    for chunk in from / sizes.chunk..(to - 1) / sizes.chunk + 1 {
        let mut place = chunk as usize * 2 * sizes.width + column;
        if chunk * sizes.chunk < start {
            place += sizes.width;
        }
        sum += parts[place];
    }
    sum
}

/// Computes the sums of the parts in each group of chunks, for segments longer than such a group, as [`chunk_sums`] does from rows.
#[cube(launch, address_type = "dynamic")]
fn group_sums<N: Size>(
    indptr: &[u32],
    parts: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    sizes: &Sizes,
    n_positions: u32,
) {
    let group = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    let n_of_group = sizes.chunk * GROUP;
    let start = group as u32 * n_of_group;
    if start >= n_positions {
        terminate!();
    }
    let end = min(start + n_of_group, n_positions);
    let first = segment_of(indptr, start);
    let last = segment_of(indptr, end - 1);
    let place = group * 2 * sizes.width + column;
    if place >= out.len() {
        terminate!();
    }
    if indptr[first + 1] - indptr[first] > n_of_group {
        let first_end = min(indptr[first + 1], end);
        out[place] = sum_of_parts::<N>(parts, sizes, indptr[first], start, first_end, column);
    }
    if last != first && indptr[last + 1] - indptr[last] > n_of_group {
        out[place + sizes.width] = sum_of_parts::<N>(parts, sizes, indptr[last], indptr[last], end, column);
    }
}

/// Computes the results of the segments that are longer than a chunk, but not longer than `longest`, from the sums of their parts in
/// the chunks.
#[cube(launch, address_type = "dynamic")]
fn long_segments<F: Float, N: Size>(
    indptr: &[u32],
    parts: &[Vector<f32, N>],
    rows: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    sizes: &Sizes,
    longest: u32,
    #[comptime] shape: Shape,
    #[define(F)] _dtype: ElemType,
) {
    let segment = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    if segment + 1 >= indptr.len() {
        terminate!();
    }
    let start = indptr[segment];
    let end = indptr[segment + 1];
    if end - start <= sizes.chunk || end - start > longest {
        terminate!();
    }
    let sum = sum_of_parts::<N>(parts, sizes, start, start, end, column);
    finish::<F, N>(rows, out, sizes, segment, column, sum, end - start, shape);
}

impl SegmentSum {
    /// Launches the kernels and returns the result, `[n_segments, width]`. With [`Own::Beside`], the columns of the own
    /// rows are in front.
    pub(super) fn launch(&self) -> CubeTensor {
        let tensor = self.rows.tensor();
        let (first_column, row_width) = self.columns;
        let (columns, n_factors, range_width, width) = match self.factor_columns {
            SumColumns::All => (ColumnsKind::All, 1, row_width, row_width),
            SumColumns::PerHead(n) => (ColumnsKind::PerHead, n, row_width / n, row_width),
            SumColumns::PerBasis(n) => (ColumnsKind::PerBasis, n, row_width, n * row_width),
            SumColumns::OverBases(n) => (ColumnsKind::OverBases, n, row_width / n, row_width / n),
        };
        let out_width = if self.own == Own::Beside { row_width + width } else { width };
        let out = Rows::new(tensor, self.segments.n_segments, out_width, tensor.dtype);
        if self.segments.n_segments == 0 || width == 0 {
            return out.into_tensor();
        }
        let of_term = self.term.vector_size(range_width).into_iter();
        let vector_size = of_term.fold(self.rows.vector_size(&[first_column, range_width]), usize::min);
        let n_vectors = width / vector_size;
        let (own, n_own, own_weight) = match self.own {
            Own::Nothing => (OwnKind::Nothing, 0, 0.0),
            Own::Beside => (OwnKind::Beside, self.segments.n_segments, 1.0),
            Own::Plus { weight, n_segments } => (OwnKind::Plus, n_segments, weight),
        };
        let sizes = |chunk| {
            let stride = self.rows.stride / vector_size;
            let first_column = first_column / vector_size;
            let out_stride = out_width / vector_size;
            let range_width = range_width / vector_size;
            SizesLaunch::new(
                n_vectors,
                n_factors,
                range_width,
                stride,
                first_column,
                out_stride,
                n_own,
                own_weight,
                chunk,
            )
        };
        // The sums of a segment depend on the size of a chunk, not on the bound `longest`.
        let n_terms = if columns == ColumnsKind::OverBases { n_factors } else { 1 };
        let chunk = chunk_of(self.segments.n_positions, n_vectors, n_terms);
        let splits = (chunk as usize) < self.segments.longest.min(self.segments.n_positions);
        let reads_edges = self.term.reads_edges() || self.factor.reads_edges();
        let shape = Shape {
            term: self.term.kind(),
            factor: self.factor.kind(),
            has_edges: reads_edges && self.segments.edges.is_some(),
            columns,
            own,
            is_mean: self.is_mean,
            splits,
        };
        let dtype = launch::element(tensor);
        let indptr = || launch::buffer(&self.segments.indptr);
        let items = || launch::buffer(&self.segments.items);
        let edges = || launch::buffer(self.segments.edges.as_ref().unwrap_or(&self.segments.items));
        let rows = || self.rows.buffer(vector_size);
        let sums = || out.buffer(vector_size);
        let n_units = self.segments.n_segments * n_vectors;
        // The types of the factors and terms depend on the kernel, so they are created for each launch.
        launch_units!(
            segment_sum,
            tensor,
            n_units,
            vector_size,
            indptr(),
            items(),
            edges(),
            self.factor.arrays(&self.rows, &self.segments.indptr),
            self.term.arrays(&self.rows, &self.segments.indptr, vector_size),
            rows(),
            sums(),
            sizes(chunk),
            shape,
            dtype
        );
        if !splits {
            return out.into_tensor();
        }
        let n_positions = self.segments.n_positions;
        let longest = self.segments.longest.min(n_positions);
        let n_parts = |chunk: u32| n_positions.div_ceil(chunk as usize);
        let mut chunk = chunk;
        let mut parts = Rows::new(tensor, 2 * n_parts(chunk), width, DType::F32);
        launch_long_units!(
            chunk_sums,
            tensor,
            n_parts(chunk) * n_vectors,
            vector_size,
            indptr(),
            items(),
            edges(),
            self.factor.arrays(&self.rows, &self.segments.indptr),
            self.term.arrays(&self.rows, &self.segments.indptr, vector_size),
            rows(),
            parts.buffer(vector_size),
            sizes(chunk),
            shape,
            dtype
        );
        loop {
            let group = chunk.saturating_mul(GROUP);
            launch_long_units!(
                long_segments,
                tensor,
                n_units,
                vector_size,
                indptr(),
                parts.buffer(vector_size),
                rows(),
                sums(),
                sizes(chunk),
                group,
                shape,
                dtype
            );
            if longest <= group as usize {
                return out.into_tensor();
            }
            let of_groups = Rows::new(tensor, 2 * n_parts(group), width, DType::F32);
            launch_long_units!(
                group_sums,
                tensor,
                n_parts(group) * n_vectors,
                vector_size,
                indptr(),
                parts.buffer(vector_size),
                of_groups.buffer(vector_size),
                sizes(chunk),
                n_positions as u32
            );
            chunk = group;
            parts = of_groups;
        }
    }
}

/// Returns the number of positions of a chunk: fewer for narrow rows, so that their chunks keep all multiprocessors busy, too.
fn chunk_of(n_positions: usize, n_vectors: usize, n_terms: usize) -> u32 {
    // A unit reads a row per basis and position.
    let mut chunk = (CHUNK / n_terms.next_power_of_two() as u32).max(LEAST_CHUNK);
    while LEAST_CHUNK < chunk && n_positions.div_ceil(chunk as usize) * n_vectors < MANY_UNITS {
        chunk /= 2;
    }
    chunk
}

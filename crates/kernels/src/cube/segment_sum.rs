//! Sums of rows over segments: sums and means, weighted or not, and all gradients of sums are instances of it.
//!
//! ```text
//! out[s] = own(s) + (sum over the positions p of segment s of factor(p) * rows[items[p]]) / divisor(s)
//! ```
//!
//! With several factors per position, [`SumColumns`] says which columns each factor belongs to.
//!
//! * *Contract.* `out` is overwritten. A segment without positions has the sum 0. Values are widened to f32, added in
//!   f32, and rounded once to the element type of the rows. There are no atomics: the positions of a segment are added
//!   in order. A segment longer than [`CHUNK`] is added in chunks that begin at multiples of [`CHUNK`], and the sums of
//!   the chunks are added in order. The result therefore depends on nothing but the arithmetic of the device.
//! * *Work distribution.* One unit per segment and vector of neighbouring columns, so that neighbouring units read a
//!   whole row together. Segments longer than a chunk are left to two more launches: one unit per chunk and vector sums
//!   the parts of the at most two long segments in the chunk, and one unit per long segment and vector adds these
//!   parts.
//! * *Cost.* Memory-bound: `F b + 4` bytes per position and `F b + 8` per segment, for `F` columns of `b` bytes. The
//!   parts of long segments are at most `2 F / CHUNK` values per position. The second and the third launch run only if
//!   the host cannot exclude long segments; the second finds them by binary search, because no list of them exists.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows, launch_units};
use crate::cube::segments::{CHUNK, Segments, segment_of};
use crate::cube::sum_factor::{ColumnsKind, Factor, FactorKind, Factors, SumColumns, factor_of};

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
    factor: FactorKind,
    columns: ColumnsKind,
    own: OwnKind,
    is_mean: bool,
    /// True if separate kernels compute segments of more than [`CHUNK`] positions.
    splits: bool,
}

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
}

/// The sum over a range of positions, for one vector of columns.
#[cube]
fn sum_of<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    items: &[u32],
    factors: &Factors<F>,
    sizes: &Sizes,
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
    for position in start..end {
        let position = position as usize;
        let item = items[position] as usize;
        let place = item * sizes.stride + sizes.first_column + column;
        if comptime!(shape.columns == ColumnsKind::OverBases) {
            for term in 0..sizes.n_factors {
                let row = Vector::<f32, N>::cast_from(rows[place + term * sizes.range_width]);
                sum += row
                    * Vector::new(factor_of::<F>(
                        factors,
                        sizes.n_factors,
                        position,
                        item,
                        term,
                        shape.factor,
                        shape.columns,
                    ));
            }
        } else {
            let row = Vector::<f32, N>::cast_from(rows[place]);
            if comptime!(shape.factor == FactorKind::One) {
                sum += row;
            } else {
                sum += row
                    * Vector::new(factor_of::<F>(
                        factors,
                        sizes.n_factors,
                        position,
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
    factors: &Factors<F>,
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
    if comptime!(shape.splits) && end - start > CHUNK {
        terminate!();
    }
    let sum = sum_of::<F, N>(rows, items, factors, sizes, start, end, column, shape);
    finish::<F, N>(rows, out, sizes, segment, column, sum, end - start, shape);
}

/// Computes the sums of the parts of long segments in each chunk. Only the segments of the first and the last position
/// of a chunk can be long, because a segment between them is shorter than the chunk.
#[cube(launch, address_type = "dynamic")]
fn chunk_sums<F: Float, N: Size>(
    indptr: &[u32],
    items: &[u32],
    factors: &Factors<F>,
    rows: &[Vector<F, N>],
    parts: &mut [Vector<f32, N>],
    sizes: &Sizes,
    #[comptime] shape: Shape,
    #[define(F)] _dtype: ElemType,
) {
    let chunk = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    let n_positions = items.len() as u32;
    let start = chunk as u32 * CHUNK;
    if start >= n_positions {
        terminate!();
    }
    let end = min(start + CHUNK, n_positions);
    let first = segment_of(indptr, start);
    let last = segment_of(indptr, end - 1);
    let place = chunk * 2 * sizes.width + column;
    if indptr[first + 1] - indptr[first] > CHUNK {
        let first_end = min(indptr[first + 1], end);
        parts[place] = sum_of::<F, N>(rows, items, factors, sizes, start, first_end, column, shape);
    }
    if last != first && indptr[last + 1] - indptr[last] > CHUNK {
        let last_start = indptr[last];
        parts[place + sizes.width] =
            sum_of::<F, N>(rows, items, factors, sizes, last_start, end, column, shape);
    }
}

/// Computes the results of long segments from the sums of their parts in the chunks.
#[cube(launch, address_type = "dynamic")]
fn long_segments<F: Float, N: Size>(
    indptr: &[u32],
    parts: &[Vector<f32, N>],
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
    if end - start <= CHUNK {
        terminate!();
    }
    let first = start / CHUNK;
    let mut sum = Vector::<f32, N>::zeroed();
    for chunk in first..(end - 1) / CHUNK + 1 {
        let mut place = chunk as usize * 2 * sizes.width + column;
        if chunk * CHUNK < start {
            place += sizes.width;
        }
        sum += parts[place];
    }
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
        let vector_size = self.rows.vector_size(&[first_column, range_width]);
        let n_vectors = width / vector_size;
        let (own, n_own, own_weight) = match self.own {
            Own::Nothing => (OwnKind::Nothing, 0, 0.0),
            Own::Beside => (OwnKind::Beside, self.segments.n_segments, 1.0),
            Own::Plus { weight, n_segments } => (OwnKind::Plus, n_segments, weight),
        };
        let sizes = || {
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
            )
        };
        let splits = self.segments.may_be_long();
        let shape = Shape { factor: self.factor.kind(), columns, own, is_mean: self.is_mean, splits };
        let dtype = launch::element(tensor);
        let address = launch::address(&[tensor, out.tensor()]);
        let indptr = || launch::buffer(&self.segments.indptr);
        let items = || launch::buffer(&self.segments.items);
        let rows = || self.rows.buffer(vector_size);
        let sums = || out.buffer(vector_size);
        macro_rules! run {
            ($kernel:ident, $n_units:expr, $($array:expr),+) => {{
                launch_units!(
                    $kernel, tensor, $n_units, address, vector_size, $($array),+, sizes(), shape, dtype
                );
            }};
        }
        let n_units = self.segments.n_segments * n_vectors;
        let factors = self.factor.arrays(&self.rows, &self.segments.indptr);
        run!(segment_sum, n_units, indptr(), items(), factors, rows(), sums());
        if splits {
            let n_chunks = self.segments.n_positions.div_ceil(CHUNK as usize);
            let parts = Rows::new(tensor, 2 * n_chunks, width, DType::F32);
            let parts = || parts.buffer(vector_size);
            // The type of the factor arguments depends on the kernel, so they are created for each launch.
            let factors = self.factor.arrays(&self.rows, &self.segments.indptr);
            run!(chunk_sums, n_chunks * n_vectors, indptr(), items(), factors, rows(), parts());
            run!(long_segments, n_units, indptr(), parts(), rows(), sums());
        }
        out.into_tensor()
    }
}

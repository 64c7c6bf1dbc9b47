//! Sums of rows, segment by segment: most aggregations, and the gradients of all of them, are cases of it.
//!
//! ```text
//! out[s] = own(s) + (sum over the positions p of segment s of factor(p) * rows[items[p]]) / divisor(s)
//! ```
//!
//! * *Contract.* `out` is overwritten. A segment without positions has the sum 0. Values are widened to f32, added up in
//!   f32, and rounded once to the element type of the rows. No atomics: a segment's positions are added in their order,
//!   in chunks of [`CHUNK`] that begin at multiples of it where the segment is longer than that, and the chunks' sums in
//!   theirs; so the bits depend on the device's arithmetic, and on nothing else.
//! * *Who computes what.* A unit has one vector of neighbouring columns of one segment, so that the units of a row read
//!   a whole row at once. Segments longer than a chunk are left to two more launches: a unit for each chunk and vector
//!   sums the part of the at most two long segments that the chunk cuts, a unit for each long segment and vector adds
//!   these parts up.
//! * *Cost.* Bound by memory: `F b + 4` bytes a position and `F b + 8` a segment, for `F` columns of `b` bytes. The
//!   parts of long segments are `2 F / CHUNK` values a position at most. Of more positions
//!   than a chunk holds, three launches always run, since nobody has looked for long segments; units of the second find
//!   theirs by halving `indptr`.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows, launch_units};

/// The most positions that one unit walks through.
pub(super) const CHUNK: u32 = 512;

/// Rows cut into segments: positions `indptr[s]..indptr[s + 1]` of `items` are those of segment `s`.
#[derive(Debug, Clone)]
pub(super) struct Segments {
    pub(super) indptr: CubeTensor,
    pub(super) items: CubeTensor,
    pub(super) n_segments: usize,
    pub(super) n_positions: usize,
}

/// What each row is multiplied by.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "one is made for a launch, and gone after it")]
pub(super) enum Factor {
    One,
    /// A number for each position.
    OfPosition(CubeTensor),
    /// A number for each edge, and the edge of each position.
    OfEdge {
        weights: CubeTensor,
        edges: CubeTensor,
    },
    /// One divided by the number of positions that the item, as a segment, has here.
    Share {
        indptr: CubeTensor,
    },
}

/// What a segment's own row adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Own {
    Nothing,
    /// The row of the segment's number stands before the sum.
    Beside,
    /// That row times the weight is added, for so many segments; the others have none.
    Plus {
        weight: f32,
        n_segments: usize,
    },
}

/// A sum that is ready to be launched.
#[derive(Debug, Clone)]
pub(super) struct SegmentSum {
    pub(super) segments: Segments,
    pub(super) rows: Rows,
    /// The first column that is summed, and the number of columns.
    pub(super) columns: (usize, usize),
    pub(super) factor: Factor,
    pub(super) is_mean: bool,
    /// Own rows begin at column 0 of the same rows.
    pub(super) own: Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FactorKind {
    One,
    OfPosition,
    OfEdge,
    Share,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OwnKind {
    Nothing,
    Beside,
    Plus,
}

/// What the compiler of a kernel knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    factor: FactorKind,
    own: OwnKind,
    is_mean: bool,
    /// Whether segments of more than [`CHUNK`] positions are left to the other kernels.
    splits: bool,
}

/// Sizes in vectors.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    /// Columns that are summed.
    width: usize,
    /// From a row to the next.
    stride: usize,
    first_column: usize,
    out_stride: usize,
    n_own: usize,
    own_weight: f32,
}

/// The arrays that a factor is made of; of those that it does not need, any array stands here.
#[derive(CubeType, CubeLaunch)]
struct Factors<F: Float> {
    weights: Box<[F]>,
    edges: Box<[u32]>,
    indptr: Box<[u32]>,
}

#[cube]
fn factor_of<F: Float>(
    factors: &Factors<F>,
    position: usize,
    item: usize,
    #[comptime] kind: FactorKind,
) -> f32 {
    match comptime!(kind) {
        FactorKind::One => f32::new(1.0),
        FactorKind::OfPosition => f32::cast_from(factors.weights[position]),
        FactorKind::OfEdge => f32::cast_from(factors.weights[factors.edges[position] as usize]),
        FactorKind::Share => f32::new(1.0) / f32::cast_from(factors.indptr[item + 1] - factors.indptr[item]),
    }
}

/// The sum of some positions, of one vector of columns.
#[cube]
fn sum_of<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    items: &[u32],
    factors: &Factors<F>,
    sizes: &Sizes,
    start: u32,
    end: u32,
    column: usize,
    #[comptime] kind: FactorKind,
) -> Vector<f32, N> {
    let mut sum = Vector::<f32, N>::zeroed();
    for position in start..end {
        let position = position as usize;
        let item = items[position] as usize;
        let row = Vector::<f32, N>::cast_from(rows[item * sizes.stride + sizes.first_column + column]);
        if comptime!(kind == FactorKind::One) {
            sum += row;
        } else {
            sum += row * Vector::new(factor_of::<F>(factors, position, item, kind));
        }
    }
    sum
}

/// Writes a segment's result from its sum.
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
            out[place] = rows[segment * sizes.stride + column];
            out[place + sizes.width] = Vector::cast_from(sum);
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

/// All segments, but for those that are split.
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
    let sum = sum_of::<F, N>(rows, items, factors, sizes, start, end, column, shape.factor);
    finish::<F, N>(rows, out, sizes, segment, column, sum, end - start, shape);
}

/// The segment of a position: the last one that starts at it or before.
#[cube]
pub(super) fn segment_of(indptr: &[u32], position: u32) -> usize {
    // At least `low` starts at `position` or before it, and `high` after it.
    let mut low = 0usize;
    let mut high = indptr.len() - 1;
    while high - low > 1 {
        let middle = (low + high) / 2;
        if indptr[middle] <= position {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Of each chunk the sums of the long segments that it cuts: of the one that its first position belongs to, and of the
/// one that its last belongs to if that is another. In between there is no room for a long one.
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
        parts[place] = sum_of::<F, N>(rows, items, factors, sizes, start, first_end, column, shape.factor);
    }
    if last != first && indptr[last + 1] - indptr[last] > CHUNK {
        let last_start = indptr[last];
        parts[place + sizes.width] =
            sum_of::<F, N>(rows, items, factors, sizes, last_start, end, column, shape.factor);
    }
}

/// The long segments, from the chunks' sums.
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
    /// Launches it and gives the result, `[n_segments, width]`, or of twice the width beside own rows.
    pub(super) fn launch(&self) -> CubeTensor {
        let tensor = self.rows.tensor();
        let (first_column, width) = self.columns;
        let out_width = if self.own == Own::Beside { 2 * width } else { width };
        let out = Rows::new(tensor, self.segments.n_segments, out_width, tensor.dtype);
        if self.segments.n_segments == 0 || width == 0 {
            return out.into_tensor();
        }
        let vector_size = self.rows.vector_size(&[first_column, width]);
        let n_vectors = width / vector_size;
        let (own, n_own, own_weight) = match self.own {
            Own::Nothing => (OwnKind::Nothing, 0, 0.0),
            Own::Beside => (OwnKind::Beside, self.segments.n_segments, 1.0),
            Own::Plus { weight, n_segments } => (OwnKind::Plus, n_segments, weight),
        };
        let sizes = || {
            let stride = self.rows.stride / vector_size;
            let (first_column, out_stride) = (first_column / vector_size, out_width / vector_size);
            SizesLaunch::new(n_vectors, stride, first_column, out_stride, n_own, own_weight)
        };
        let splits = (CHUNK as usize) < self.segments.n_positions;
        let shape = Shape { factor: self.factor.kind(), own, is_mean: self.is_mean, splits };
        let dtype = launch::element(tensor);
        let address = launch::address(&[tensor, out.tensor()]);
        let (indptr, items) =
            (|| launch::buffer(&self.segments.indptr), || launch::buffer(&self.segments.items));
        let (rows, sums) = (|| self.rows.buffer(vector_size), || out.buffer(vector_size));
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
            // Their type is the kernel's own, so that they are made for each.
            let factors = self.factor.arrays(&self.rows, &self.segments.indptr);
            run!(chunk_sums, n_chunks * n_vectors, indptr(), items(), factors, rows(), parts());
            run!(long_segments, n_units, indptr(), parts(), rows(), sums());
        }
        out.into_tensor()
    }
}

impl Factor {
    fn kind(&self) -> FactorKind {
        match self {
            Self::One => FactorKind::One,
            Self::OfPosition(_) => FactorKind::OfPosition,
            Self::OfEdge { .. } => FactorKind::OfEdge,
            Self::Share { .. } => FactorKind::Share,
        }
    }

    fn arrays<F: Float>(&self, any_floats: &Rows, any_ints: &CubeTensor) -> FactorsLaunch<F> {
        let (weights, edges, indptr) = match self {
            Self::One => (any_floats.buffer(1), launch::buffer(any_ints), launch::buffer(any_ints)),
            Self::OfPosition(weights) => {
                (launch::buffer(weights), launch::buffer(any_ints), launch::buffer(any_ints))
            }
            Self::OfEdge { weights, edges } => {
                (launch::buffer(weights), launch::buffer(edges), launch::buffer(any_ints))
            }
            Self::Share { indptr } => {
                (any_floats.buffer(1), launch::buffer(any_ints), launch::buffer(indptr))
            }
        };
        FactorsLaunch::new(weights, edges, indptr)
    }
}

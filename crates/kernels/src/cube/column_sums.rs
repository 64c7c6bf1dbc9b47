//! Sums of the columns of a matrix: the gradients of biases, of attention vectors and of the parameters of
//! normalisations, the statistics of a batch normalisation, sums of squares and of losses, and the sums of the parts of
//! weight gradients.
//!
//! ```text
//! out[c] = rows[0, c] + ... + rows[n - 1, c]
//! ```
//!
//! Instead of the values, a batch normalisation adds functions of them ([`ColumnTerm`]).
//!
//! * *Contract.* The result is a new tensor. Sums are f32 and rounded once. The order of the additions depends only on
//!   the shape and the layout of the matrix, so the result is the same in every run. There are no atomics.
//! * *Work distribution.* A cube sums a chunk of rows for some neighbouring vectors of columns. Several units, the lanes,
//!   share a vector: lane `l` of `k` adds the rows `l`, `l + k` and so on of the chunk, and the sums of the lanes are
//!   added as a binary tree (the cascade summation of Higham 1993, section 2). If there are several chunks, a second
//!   launch adds their sums in the same way.
//! * With one lane, a unit adds all rows of its chunk in their order, without shared memory and barriers: on CubeCL's CPU
//!   runtime, where a barrier takes microseconds, and for a few wide rows, which have enough vectors for all units.
//! * *Cost.* Memory-bound: `F b` bytes per row of `F` columns of `b` bytes, in one launch or two.

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::Device;
use cubecl::calculate_cube_count_elemwise;
use cubecl::prelude::*;

use crate::cube::launch::{self, Rows, launch_kernel};
use crate::ops::edges::zero_rows;

/// The number of units of a cube with several lanes.
const UNITS: u32 = 256;

/// The largest number of vectors of columns of a cube with several lanes: 8 vectors of 16 bytes are a cache line.
const MOST_VECTORS: u32 = 8;

/// The number of rows that a lane adds, unless there would be more than [`MOST_CHUNKS`] chunks.
const LANE_ROWS: usize = 16;

/// The number of rows of a chunk with one lane.
const UNIT_ROWS: usize = 256;

/// The largest number of chunks.
const MOST_CHUNKS: usize = 1024;

/// The largest number of rows, and the least number of vectors of columns, for which one lane sums all rows on a device
/// with shared memory.
const WIDE: (usize, usize) = (64, 4096);

/// What is added for each value of the rows.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one value per launch")]
pub(super) enum ColumnTerm {
    /// The value.
    Value,
    /// The square of the value minus the mean of its column. `sums` are those of the columns, `[1, d]`.
    SquareOfCentered { sums: CubeTensor },
    /// The value, and in as many further columns the value times the normalized value of `x` at the same place: the gradients
    /// of the shift and of the scale. `means` and `variances` are those of the columns of `x`, `[d]`.
    WithNormalized { x: Rows, means: CubeTensor, variances: CubeTensor, epsilon: f64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TermKind {
    Value,
    SquareOfCentered,
    WithNormalized,
}

/// The arrays and numbers of a term. A kernel needs all of them as arguments, so unused ones are arbitrary arrays.
#[derive(CubeType, CubeLaunch)]
struct Terms<F: Float, N: Size> {
    x: Box<[Vector<F, N>]>,
    means: Box<[Vector<F, N>]>,
    variances: Box<[Vector<F, N>]>,
    x_stride: usize,
    /// The number by which `means` are divided.
    divisor: f32,
    epsilon: f32,
}

/// The numbers that the kernel reads at run time. The width and the stride are in vectors of values.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    n_rows: usize,
    width: usize,
    stride: usize,
    chunk_rows: usize,
    n_chunks: usize,
}

/// The sum of the rows `first`, `first + step` and so on before `end`, for one vector of columns.
#[allow(clippy::collapsible_if, reason = "a kernel computes both operands of `&&`")]
#[cube]
fn sum_of_rows<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    terms: &Terms<F, N>,
    sizes: &Sizes,
    first: usize,
    end: usize,
    step: usize,
    column: usize,
    #[comptime] kind: TermKind,
) -> Vector<f32, N> {
    let mut sum = Vector::<f32, N>::zeroed();
    let mut column = column;
    let mut is_product = false;
    let mut mean = Vector::<f32, N>::zeroed();
    let mut reciprocal = Vector::<f32, N>::zeroed();
    if comptime!(kind == TermKind::WithNormalized) {
        is_product = column >= sizes.width / 2;
        if is_product {
            column -= sizes.width / 2;
        }
        let variance = Vector::<f32, N>::cast_from(terms.variances[column]);
        reciprocal = Vector::new(f32::new(1.0)) / (variance + Vector::new(terms.epsilon)).sqrt();
    }
    if comptime!(kind != TermKind::Value) {
        mean = Vector::<f32, N>::cast_from(terms.means[column]) / Vector::new(terms.divisor);
    }
    let mut row = first;
    while row < end {
        let mut value = Vector::<f32, N>::cast_from(rows[row * sizes.stride + column]);
        if comptime!(kind == TermKind::SquareOfCentered) {
            value -= mean;
            value *= value;
        }
        if comptime!(kind == TermKind::WithNormalized) {
            if is_product {
                value *= (Vector::cast_from(terms.x[row * terms.x_stride + column]) - mean) * reciprocal;
            }
        }
        sum += value;
        row += step;
    }
    sum
}

/// Computes the sums of the columns of each chunk, `[n_chunks, width]`.
#[cube(launch, address_type = "dynamic")]
fn column_sums_kernel<F: Float, O: Float, N: Size>(
    rows: &[Vector<F, N>],
    terms: &Terms<F, N>,
    out: &mut [Vector<O, N>],
    sizes: &Sizes,
    #[comptime] kind: TermKind,
    #[comptime] n_lanes: u32,
    #[define(F)] _dtype: ElemType,
    #[define(O)] _out_dtype: ElemType,
) {
    if comptime!(n_lanes == 1) {
        let chunk = ABSOLUTE_POS / sizes.width;
        let column = ABSOLUTE_POS % sizes.width;
        if chunk >= sizes.n_chunks {
            terminate!();
        }
        let first = chunk * sizes.chunk_rows;
        let end = min(first + sizes.chunk_rows, sizes.n_rows);
        let sum = sum_of_rows::<F, N>(rows, terms, sizes, first, end, 1, column, kind);
        out[ABSOLUTE_POS] = Vector::cast_from(sum);
    } else {
        let n_vectors = comptime!(UNITS / n_lanes);
        let n_groups = (sizes.width + comptime!((UNITS / n_lanes - 1) as usize)) / n_vectors as usize;
        let chunk = CUBE_POS / n_groups;
        if chunk >= sizes.n_chunks {
            terminate!();
        }
        let lane = UNIT_POS / n_vectors;
        let column = CUBE_POS % n_groups * n_vectors as usize + (UNIT_POS % n_vectors) as usize;
        let first = chunk * sizes.chunk_rows;
        let end = min(first + sizes.chunk_rows, sizes.n_rows);
        let mut sum = Vector::<f32, N>::zeroed();
        if column < sizes.width {
            let first = first + lane as usize;
            sum = sum_of_rows::<F, N>(rows, terms, sizes, first, end, n_lanes as usize, column, kind);
        }
        let mut sums = Shared::<[Vector<f32, N>]>::new_slice(comptime!(UNITS as usize));
        sums[UNIT_POS as usize] = sum;
        sync_cube();
        let mut n_left = comptime!(n_lanes / 2).runtime();
        while 0u32 < n_left {
            if lane < n_left {
                let other = sums[(UNIT_POS + n_left * n_vectors) as usize];
                sums[UNIT_POS as usize] += other;
            }
            sync_cube();
            n_left /= 2u32;
        }
        if lane == 0 && column < sizes.width {
            out[chunk * sizes.width + column] = Vector::cast_from(sums[UNIT_POS as usize]);
        }
    }
}

/// Computes the sums of the columns, `[n, F] -> [1, F]`.
pub(super) fn column_sums(rows: CubeTensor) -> CubeTensor {
    column_sums_of(&Rows::of(rows), &ColumnTerm::Value)
}

/// Computes the sums of the terms of the columns, `[n, F] -> [1, F]`, or `[1, 2 F]` with [`ColumnTerm::WithNormalized`].
pub(super) fn column_sums_of(rows: &Rows, term: &ColumnTerm) -> CubeTensor {
    let n_rows = rows.n_rows();
    let dtype = rows.tensor().dtype;
    if n_rows * rows.width() == 0 {
        return zero_rows::<CubeBackend>(1, rows.tensor());
    }
    let plan = Plan::of(rows, term);
    if plan.n_chunks(n_rows) == 1 {
        return plan.launch(rows, term, dtype);
    }
    let parts = Rows::of(plan.launch(rows, term, DType::F32));
    // All chunks are one chunk of the second launch.
    Plan { chunk_rows: parts.n_rows(), ..plan }.launch(&parts, &ColumnTerm::Value, dtype)
}

impl ColumnTerm {
    fn kind(&self) -> TermKind {
        match self {
            Self::Value => TermKind::Value,
            Self::SquareOfCentered { .. } => TermKind::SquareOfCentered,
            Self::WithNormalized { .. } => TermKind::WithNormalized,
        }
    }

    /// Returns the number of sums for rows of this width.
    fn n_sums(&self, width: usize) -> usize {
        if self.kind() == TermKind::WithNormalized { 2 * width } else { width }
    }

    fn arrays<F: Float, N: Size>(&self, rows: &Rows, vector_size: usize) -> TermsLaunch<F, N> {
        let any = || rows.buffer(vector_size);
        let of = |tensor: &CubeTensor| launch::vectors(tensor, vector_size);
        match self {
            Self::Value => TermsLaunch::new(any(), any(), any(), 0, 1.0, 0.0),
            Self::SquareOfCentered { sums } => {
                TermsLaunch::new(any(), of(sums), any(), 0, rows.n_rows() as f32, 0.0)
            }
            Self::WithNormalized { x, means, variances, epsilon } => TermsLaunch::new(
                x.buffer(vector_size),
                of(means),
                of(variances),
                x.stride / vector_size,
                1.0,
                *epsilon as f32,
            ),
        }
    }
}

/// The division of a matrix into chunks of rows and vectors of columns.
#[derive(Debug, Clone, Copy)]
struct Plan {
    vector_size: usize,
    n_lanes: u32,
    chunk_rows: usize,
}

impl Plan {
    fn of(rows: &Rows, term: &ColumnTerm) -> Self {
        let n_rows = rows.n_rows();
        let mut vector_size = rows.vector_size(&[rows.width()]);
        if let ColumnTerm::WithNormalized { x, .. } = term {
            vector_size = vector_size.min(x.vector_size(&[rows.width()]));
        }
        let width = term.n_sums(rows.width()) / vector_size;
        let (most_rows, least_width) = WIDE;
        let is_wide = n_rows <= most_rows && least_width <= width;
        let n_lanes = match rows.tensor().device {
            Device::Cpu(_) => 1,
            _ if is_wide => 1,
            _ => UNITS / MOST_VECTORS.min((width as u32).next_power_of_two()),
        };
        let least = UNIT_ROWS.max(LANE_ROWS * n_lanes as usize);
        let chunk_rows = match n_rows {
            _ if n_rows <= 2 * least => n_rows,
            _ => least.max(n_rows.div_ceil(MOST_CHUNKS).next_multiple_of(n_lanes as usize)),
        };
        Self { vector_size, n_lanes, chunk_rows }
    }

    fn n_chunks(&self, n_rows: usize) -> usize {
        n_rows.div_ceil(self.chunk_rows)
    }

    /// Returns the sums of the chunks, `[n_chunks, F]`.
    fn launch(&self, rows: &Rows, term: &ColumnTerm, dtype: DType) -> CubeTensor {
        let &Self { vector_size, n_lanes, chunk_rows } = self;
        let tensor = rows.tensor();
        let n_chunks = self.n_chunks(rows.n_rows());
        let out = Rows::new(tensor, n_chunks, term.n_sums(rows.width()), dtype);
        let width = out.width() / vector_size;
        let (count, dim) = match n_lanes {
            1 => launch::units(tensor, n_chunks * width),
            _ => {
                let dim = CubeDim::new_1d(UNITS);
                let n_cubes = n_chunks * width.div_ceil((UNITS / n_lanes) as usize);
                (calculate_cube_count_elemwise(&tensor.client, n_cubes * UNITS as usize, dim), dim)
            }
        };
        // Row numbers may exceed the last row by a chunk.
        launch::reach(rows.n_rows() + chunk_rows);
        launch_kernel!(
            column_sums_kernel,
            tensor,
            n_chunks * width,
            (count, dim),
            vector_size,
            rows.buffer(vector_size),
            term.arrays(rows, vector_size),
            out.buffer(vector_size),
            SizesLaunch::new(rows.n_rows(), width, rows.stride / vector_size, chunk_rows, n_chunks),
            term.kind(),
            n_lanes,
            launch::element(tensor),
            launch::element(out.tensor())
        );
        out.into_tensor()
    }
}

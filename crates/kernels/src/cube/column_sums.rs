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
//! * *Work distribution.* That of [column chunks](crate::cube::column_chunks). The sums of the lanes are added as a binary
//!   tree (the cascade summation of Higham 1993, section 2). If there are several chunks, a second launch adds their sums
//!   in the same way.
//! * *Cost.* Memory-bound: `F b` bytes per row of `F` columns of `b` bytes, in one launch or two.

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::column_chunks::{ColumnChunks, Sizes, UNITS, chunk_of_unit, column_of_unit, lane_of_unit};
use crate::cube::column_moments::reciprocal_deviation;
use crate::cube::dropout::relu_adjoint;
use crate::cube::launch::{self, Rows, launch_kernel};
use crate::ops::edges::zero_rows;

/// What is added for each value of the rows.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one value per launch")]
pub(super) enum ColumnTerm {
    /// The value.
    Value,
    /// The value, and in as many further columns the value times the normalized value of `x` at the same place: the gradients
    /// of the shift and of the scale. `means` and `variances` are those of the columns of `x`, `[d]`. If a ReLU followed,
    /// values count as 0 where its `output` is at most 0.
    WithNormalized { x: Rows, means: CubeTensor, variances: CubeTensor, epsilon: f64, output: Option<Rows> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TermKind {
    Value,
    WithNormalized { has_relu: bool },
}

/// The arrays and numbers of a term. A kernel needs all of them as arguments, so unused ones are arbitrary arrays.
#[derive(CubeType, CubeLaunch)]
struct Terms<F: Float, N: Size> {
    x: Box<[Vector<F, N>]>,
    means: Box<[Vector<F, N>]>,
    variances: Box<[Vector<F, N>]>,
    output: Box<[Vector<F, N>]>,
    x_stride: usize,
    output_stride: usize,
    epsilon: f32,
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
    if comptime!(kind != TermKind::Value) {
        is_product = column >= sizes.width / 2;
        if is_product {
            column -= sizes.width / 2;
        }
        mean = Vector::<f32, N>::cast_from(terms.means[column]);
        reciprocal = reciprocal_deviation::<N>(Vector::cast_from(terms.variances[column]), terms.epsilon);
    }
    let mut row = first;
    while row < end {
        let mut value = Vector::<f32, N>::cast_from(rows[row * sizes.stride + column]);
        if comptime!(kind == TermKind::WithNormalized { has_relu: true }) {
            let output = Vector::<f32, N>::cast_from(terms.output[row * terms.output_stride + column]);
            value = relu_adjoint::<N>(output, value);
        }
        if comptime!(kind != TermKind::Value) {
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
    let chunk = chunk_of_unit(sizes, n_lanes);
    if chunk >= sizes.n_chunks {
        terminate!();
    }
    let column = column_of_unit(sizes, n_lanes);
    let lane = lane_of_unit(n_lanes);
    let first = chunk * sizes.chunk_rows;
    let end = min(first + sizes.chunk_rows, sizes.n_rows);
    let mut sum = Vector::<f32, N>::zeroed();
    if column < sizes.width {
        sum = sum_of_rows::<F, N>(
            rows,
            terms,
            sizes,
            first + lane as usize,
            end,
            n_lanes as usize,
            column,
            kind,
        );
    }
    if comptime!(1 < n_lanes) {
        let n_vectors = comptime!(UNITS / n_lanes);
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
        sum = sums[UNIT_POS as usize];
    }
    if lane == 0 && column < sizes.width {
        out[chunk * sizes.width + column] = Vector::cast_from(sum);
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
    let chunks = ColumnChunks::of(rows, term.most_values(rows.width()), term.n_sums(rows.width()));
    if chunks.n_chunks(n_rows) == 1 {
        return sums_of_chunks(chunks, rows, term, dtype);
    }
    let parts = Rows::of(sums_of_chunks(chunks, rows, term, DType::F32));
    // All chunks are one chunk of the second launch.
    let chunks = ColumnChunks { chunk_rows: parts.n_rows(), ..chunks };
    sums_of_chunks(chunks, &parts, &ColumnTerm::Value, dtype)
}

/// Returns the sums of the chunks, `[n_chunks, F]`.
fn sums_of_chunks(chunks: ColumnChunks, rows: &Rows, term: &ColumnTerm, dtype: DType) -> CubeTensor {
    let ColumnChunks { vector_size, n_lanes, .. } = chunks;
    let tensor = rows.tensor();
    let n_chunks = chunks.n_chunks(rows.n_rows());
    let out = Rows::new(tensor, n_chunks, term.n_sums(rows.width()), dtype);
    let width = out.width() / vector_size;
    launch_kernel!(
        column_sums_kernel,
        tensor,
        n_chunks * width,
        chunks.cubes(tensor, n_chunks, width),
        vector_size,
        rows.buffer(vector_size),
        term.arrays(rows, vector_size),
        out.buffer(vector_size),
        chunks.sizes(rows, width),
        term.kind(),
        n_lanes,
        launch::element(tensor),
        launch::element(out.tensor())
    );
    out.into_tensor()
}

impl ColumnTerm {
    fn kind(&self) -> TermKind {
        match self {
            Self::Value => TermKind::Value,
            Self::WithNormalized { output, .. } => TermKind::WithNormalized { has_relu: output.is_some() },
        }
    }

    /// Returns the number of sums for rows of this width.
    fn n_sums(&self, width: usize) -> usize {
        if self.kind() == TermKind::Value { width } else { 2 * width }
    }

    /// Returns the largest vector size that all arrays of the term allow, for rows of this width.
    fn most_values(&self, width: usize) -> usize {
        let Self::WithNormalized { x, output, .. } = self else { return usize::MAX };
        let of_output = output.as_ref().map_or(usize::MAX, |output| output.vector_size(&[width]));
        x.vector_size(&[width]).min(of_output)
    }

    fn arrays<F: Float, N: Size>(&self, rows: &Rows, vector_size: usize) -> TermsLaunch<F, N> {
        let any = || rows.buffer(vector_size);
        let Self::WithNormalized { x, means, variances, epsilon, output } = self else {
            return TermsLaunch::new(any(), any(), any(), any(), 0, 0, 0.0);
        };
        let output = output.as_ref().unwrap_or(x);
        TermsLaunch::new(
            x.buffer(vector_size),
            launch::vectors(means, vector_size),
            launch::vectors(variances, vector_size),
            output.buffer(vector_size),
            x.stride / vector_size,
            output.stride / vector_size,
            *epsilon as f32,
        )
    }
}

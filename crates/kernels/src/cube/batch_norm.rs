//! Batch normalisation of f32 rows.
//!
//! ```text
//! out[i, c] = (x[i, c] - mean[c]) * gamma[c] / sqrt(variance[c] + epsilon) + beta[c]
//! ```
//!
//! * *Contract.* The same as that of Burn's `batch_norm_train`. The variance is the mean of the squares of the centered
//!   values, so large means cost no accuracy.
//! * *Work distribution.* Means, variances and the gradients of `gamma` and `beta` are [column
//!   sums](crate::cube::column_sums); one unit per row and vector of columns computes the rows and their gradient.
//! * *Cost.* `16 F` bytes per row for `F` columns, in five launches for many rows; the gradient `20 F` in three.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape, Slice};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::column_sums::{ColumnTerm, column_sums_of};
use crate::cube::launch::{self, Rows, launch_units};
use crate::ops::batch_norm::{BatchStatistics, NormalizationGradients, Normalized};

type Values = FloatTensor<CubeBackend>;

/// The numbers that the kernels read at run time. The width and the strides are in vectors of values.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    width: usize,
    x_stride: usize,
    grad_stride: usize,
    n_rows: f32,
    epsilon: f32,
}

#[cube]
fn reciprocal_deviation<N: Size>(variance: Vector<f32, N>, epsilon: f32) -> Vector<f32, N> {
    Vector::new(f32::new(1.0)) / (variance + Vector::new(epsilon)).sqrt()
}

/// Normalizes the rows. The units of the first row also write the means and the variances.
#[cube(launch, address_type = "dynamic")]
fn normalize_kernel<N: Size>(
    x: &[Vector<f32, N>],
    sums: &[Vector<f32, N>],
    squares: &[Vector<f32, N>],
    gamma: &[Vector<f32, N>],
    beta: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    means: &mut [Vector<f32, N>],
    variances: &mut [Vector<f32, N>],
    sizes: &Sizes,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    let mean = sums[column] / Vector::new(sizes.n_rows);
    let variance = squares[column] / Vector::new(sizes.n_rows);
    let scale = gamma[column] * reciprocal_deviation::<N>(variance, sizes.epsilon);
    out[ABSOLUTE_POS] = (x[row * sizes.x_stride + column] - mean) * scale + beta[column];
    if row == 0 {
        means[column] = mean;
        variances[column] = variance;
    }
}

/// Computes the gradient of the rows. `sums` are those of the gradient, then those of its products with the normalized rows.
#[cube(launch, address_type = "dynamic")]
fn normalize_adjoint_kernel<N: Size>(
    x: &[Vector<f32, N>],
    grad: &[Vector<f32, N>],
    means: &[Vector<f32, N>],
    variances: &[Vector<f32, N>],
    gamma: &[Vector<f32, N>],
    sums: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    sizes: &Sizes,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    let reciprocal = reciprocal_deviation::<N>(variances[column], sizes.epsilon);
    let normalized = (x[row * sizes.x_stride + column] - means[column]) * reciprocal;
    let mean_grad = sums[column] / Vector::new(sizes.n_rows);
    let along_normalized = normalized * (sums[sizes.width + column] / Vector::new(sizes.n_rows));
    let rest = grad[row * sizes.grad_stride + column] - mean_grad - along_normalized;
    out[ABSOLUTE_POS] = rest * (gamma[column] * reciprocal);
}

#[cube(launch, address_type = "dynamic")]
fn moving_average_kernel(old: &[f32], new: &[f32], out: &mut [f32], kept: f32, share: f32) {
    if ABSOLUTE_POS < out.len() {
        out[ABSOLUTE_POS] = old[ABSOLUTE_POS] * kept + new[ABSOLUTE_POS] * share;
    }
}

/// Computes `old * (1 - share) + new * share`.
pub(super) fn moving_average(old: Values, new: Values, share: f64) -> CubeTensor {
    let [old, new] = [old, new].map(into_contiguous);
    let out = launch::new_tensor(&old, old.meta.shape().clone(), DType::F32);
    if 0 < launch::length(&out) {
        launch_units!(
            moving_average_kernel,
            &old,
            launch::length(&out),
            launch::buffer(&old),
            launch::buffer(&new),
            launch::buffer(&out),
            (1.0 - share) as f32,
            share as f32
        );
    }
    out
}

pub(super) fn normalize(x: Values, gamma: Values, beta: Values, epsilon: f64) -> Normalized<CubeBackend> {
    let x = Rows::of(x);
    let tensor = x.tensor();
    let width = x.width();
    let out = Rows::new(tensor, x.n_rows(), width, DType::F32);
    let [means, variances] = [(); 2].map(|()| launch::new_tensor(tensor, Shape::new([width]), DType::F32));
    if 0 < width {
        let sums = column_sums_of(&x, &ColumnTerm::Value);
        let squares = column_sums_of(&x, &ColumnTerm::SquareOfCentered { sums: sums.clone() });
        let [gamma, beta] = [gamma, beta].map(into_contiguous);
        let vectors = [&gamma, &beta].map(|row| launch::vector_size(row, &[width]));
        let vector_size = x.vector_size(&[width]).min(vectors[0]).min(vectors[1]);
        let of = |tensor: &CubeTensor| launch::vectors(tensor, vector_size);
        launch_units!(
            normalize_kernel,
            tensor,
            x.n_rows() * width / vector_size,
            vector_size,
            x.buffer(vector_size),
            of(&sums),
            of(&squares),
            of(&gamma),
            of(&beta),
            out.buffer(vector_size),
            of(&means),
            of(&variances),
            sizes(&x, &out, vector_size, epsilon)
        );
    }
    Normalized { rows: out.into_tensor(), means, variances }
}

pub(super) fn adjoint(
    saved: BatchStatistics<CubeBackend>,
    grad: Values,
) -> NormalizationGradients<CubeBackend> {
    let BatchStatistics { x, gamma, means, variances, epsilon } = saved;
    let x = Rows::of(x);
    let grad = Rows::of(grad);
    let [gamma, means, variances] = [gamma, means, variances].map(into_contiguous);
    let tensor = grad.tensor();
    let width = x.width();
    let out = Rows::new(tensor, x.n_rows(), width, DType::F32);
    let term = ColumnTerm::WithNormalized {
        x: x.clone(),
        means: means.clone(),
        variances: variances.clone(),
        epsilon,
    };
    let sums = column_sums_of(&grad, &term);
    if 0 < width {
        let of_gamma = launch::vector_size(&gamma, &[width]);
        let vector_size = x.vector_size(&[width]).min(grad.vector_size(&[width])).min(of_gamma);
        let of = |tensor: &CubeTensor| launch::vectors(tensor, vector_size);
        launch_units!(
            normalize_adjoint_kernel,
            tensor,
            x.n_rows() * width / vector_size,
            vector_size,
            x.buffer(vector_size),
            grad.buffer(vector_size),
            of(&means),
            of(&variances),
            of(&gamma),
            of(&sums),
            out.buffer(vector_size),
            sizes(&x, &grad, vector_size, epsilon)
        );
    }
    // Burn's slice is a copy where the alignment of the memory does not allow a view.
    let [beta, gamma] = [0, width].map(|first| {
        let row =
            CubeBackend::float_slice(sums.clone(), &[Slice::from(0..1), Slice::from(first..first + width)]);
        CubeBackend::float_reshape(row, Shape::new([width]))
    });
    NormalizationGradients { x: out.into_tensor(), gamma, beta }
}

fn sizes(x: &Rows, grad: &Rows, vector_size: usize, epsilon: f64) -> SizesLaunch {
    SizesLaunch::new(
        x.width() / vector_size,
        x.stride / vector_size,
        grad.stride / vector_size,
        x.n_rows() as f32,
        epsilon as f32,
    )
}

//! Batch normalisation of f32 rows.
//!
//! ```text
//! out[i, c] = (x[i, c] - mean[c]) * gamma[c] / sqrt(variance[c] + epsilon) + beta[c]
//! ```
//!
//! with an optional ReLU.
//!
//! * *Contract.* The same as that of Burn's `batch_norm_train` and of its ReLU.
//! * *Work distribution.* [Column moments](crate::cube::column_moments) for means, variances and moving averages, [column
//!   sums](crate::cube::column_sums) for the gradients of `gamma` and `beta`; one unit per row and vector of columns
//!   computes the rows and their gradient.
//! * *Cost.* `12 F` bytes per row for `F` columns, in three launches for many rows; the gradients `20 F` in three, with a
//!   ReLU `28 F`.

use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::column_moments::{ColumnStatistics, column_statistics, reciprocal_deviation};
use crate::cube::column_sums::{ColumnTerm, column_sums_of};
use crate::cube::dropout::{relu, relu_adjoint};
use crate::cube::launch::{self, Rows, launch_units};
use crate::ops::batch_norm::{
    NormalizationGradients, NormalizationInput, NormalizationSettings, Normalized, SavedNormalization,
};

/// The numbers that the kernels read at run time. The width and the strides are in vectors of values.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    width: usize,
    x_stride: usize,
    grad_stride: usize,
    output_stride: usize,
    n_rows: f32,
    epsilon: f32,
}

/// Normalizes the rows.
#[cube(launch, address_type = "dynamic")]
fn normalize_kernel<N: Size>(
    x: &[Vector<f32, N>],
    means: &[Vector<f32, N>],
    variances: &[Vector<f32, N>],
    gamma: &[Vector<f32, N>],
    beta: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    sizes: &Sizes,
    #[comptime] has_relu: bool,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    let scale = gamma[column] * reciprocal_deviation::<N>(variances[column], sizes.epsilon);
    let mut value = (x[row * sizes.x_stride + column] - means[column]) * scale + beta[column];
    if comptime!(has_relu) {
        value = relu::<N>(value);
    }
    out[ABSOLUTE_POS] = value;
}

/// The gradients of the parameters, each with a value per column.
#[derive(CubeType, CubeLaunch)]
struct Gradients<N: Size> {
    bias: Box<[Vector<f32, N>]>,
    gamma: Box<[Vector<f32, N>]>,
    beta: Box<[Vector<f32, N>]>,
}

/// Computes the gradient of the rows. `sums` are those of the gradient, then those of its products with the normalized rows. The
/// units of the first row also write the gradients of the parameters.
#[cube(launch, address_type = "dynamic")]
fn normalize_adjoint_kernel<N: Size>(
    x: &[Vector<f32, N>],
    grad: &[Vector<f32, N>],
    output: &[Vector<f32, N>],
    means: &[Vector<f32, N>],
    variances: &[Vector<f32, N>],
    gamma: &[Vector<f32, N>],
    sums: &[Vector<f32, N>],
    out: &mut [Vector<f32, N>],
    parameter_grads: &mut Gradients<N>,
    sizes: &Sizes,
    #[comptime] has_relu: bool,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / sizes.width;
    let column = ABSOLUTE_POS % sizes.width;
    let reciprocal = reciprocal_deviation::<N>(variances[column], sizes.epsilon);
    let normalized = (x[row * sizes.x_stride + column] - means[column]) * reciprocal;
    let sum = sums[column];
    let sum_of_products = sums[sizes.width + column];
    let along_normalized = normalized * (sum_of_products / Vector::new(sizes.n_rows));
    let mut output_grad = grad[row * sizes.grad_stride + column];
    if comptime!(has_relu) {
        output_grad = relu_adjoint::<N>(output[row * sizes.output_stride + column], output_grad);
    }
    let rest = output_grad - sum / Vector::new(sizes.n_rows) - along_normalized;
    out[ABSOLUTE_POS] = rest * (gamma[column] * reciprocal);
    if row == 0 {
        parameter_grads.bias[column] = Vector::zeroed();
        parameter_grads.gamma[column] = sum_of_products;
        parameter_grads.beta[column] = sum;
    }
}

pub(super) fn normalize(
    input: NormalizationInput<CubeBackend>,
    settings: NormalizationSettings,
) -> Normalized<CubeBackend> {
    let NormalizationSettings { epsilon, momentum, has_relu } = settings;
    let x = Rows::of(input.x);
    let [bias, gamma, beta, moving_mean, moving_variance] =
        [input.bias, input.gamma, input.beta, input.moving_mean, input.moving_variance].map(into_contiguous);
    let tensor = x.tensor();
    let width = x.width();
    let out = Rows::new(tensor, x.n_rows(), width, DType::F32);
    let ColumnStatistics { means, variances, moving: [moving_mean, moving_variance] } =
        column_statistics(&x, &bias, [&moving_mean, &moving_variance], momentum);
    if 0 < width {
        let vectors = [&gamma, &beta].map(|row| launch::vector_size(row, &[width]));
        let vector_size = x.vector_size(&[width]).min(vectors[0]).min(vectors[1]);
        let of = |tensor: &CubeTensor| launch::vectors(tensor, vector_size);
        launch_units!(
            normalize_kernel,
            tensor,
            x.n_rows() * width / vector_size,
            vector_size,
            x.buffer(vector_size),
            of(&means),
            of(&variances),
            of(&gamma),
            of(&beta),
            out.buffer(vector_size),
            // There are no other rows than `x`.
            sizes([&x, &x, &x], vector_size, epsilon),
            has_relu
        );
    }
    Normalized { rows: out.into_tensor(), means, variances, moving_mean, moving_variance }
}

pub(super) fn adjoint(
    saved: SavedNormalization<CubeBackend>,
    grad: FloatTensor<CubeBackend>,
) -> NormalizationGradients<CubeBackend> {
    let SavedNormalization { x, gamma, means, variances, epsilon, output } = saved;
    let x = Rows::of(x);
    let grad = Rows::of(grad);
    let output = output.map(Rows::of);
    let [gamma, means, variances] = [gamma, means, variances].map(into_contiguous);
    let tensor = grad.tensor();
    let width = x.width();
    let out = Rows::new(tensor, x.n_rows(), width, DType::F32);
    let [of_bias, of_gamma, of_beta] =
        [(); 3].map(|()| launch::new_tensor(tensor, Shape::new([width]), DType::F32));
    let term = ColumnTerm::WithNormalized {
        x: x.clone(),
        means: means.clone(),
        variances: variances.clone(),
        epsilon,
        output: output.clone(),
    };
    let sums = column_sums_of(&grad, &term);
    if 0 < width {
        let has_relu = output.is_some();
        let output = output.as_ref().unwrap_or(&x);
        let of_gamma_size = launch::vector_size(&gamma, &[width]);
        let of_rows = [&x, &grad, output].map(|rows| rows.vector_size(&[width]));
        let vector_size = of_rows.into_iter().fold(of_gamma_size, usize::min);
        let of = |tensor: &CubeTensor| launch::vectors(tensor, vector_size);
        launch_units!(
            normalize_adjoint_kernel,
            tensor,
            x.n_rows() * width / vector_size,
            vector_size,
            x.buffer(vector_size),
            grad.buffer(vector_size),
            output.buffer(vector_size),
            of(&means),
            of(&variances),
            of(&gamma),
            of(&sums),
            out.buffer(vector_size),
            GradientsLaunch::new(of(&of_bias), of(&of_gamma), of(&of_beta)),
            sizes([&x, &grad, output], vector_size, epsilon),
            has_relu
        );
    }
    NormalizationGradients { x: out.into_tensor(), bias: of_bias, gamma: of_gamma, beta: of_beta }
}

fn sizes([x, grad, output]: [&Rows; 3], vector_size: usize, epsilon: f64) -> SizesLaunch {
    SizesLaunch::new(
        x.width() / vector_size,
        x.stride / vector_size,
        grad.stride / vector_size,
        output.stride / vector_size,
        x.n_rows() as f32,
        epsilon as f32,
    )
}

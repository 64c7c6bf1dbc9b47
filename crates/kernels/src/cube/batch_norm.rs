//! Batch normalisation of f32 rows, composed of column sums and Burn's operations on values.
//!
//! * *Contract.* The same as that of Burn's `batch_norm_train`. The variance is the mean of the squares of the centered
//!   values, so large means cost no accuracy.
//! * *Cost.* Two column sums forward and two backward, and about a dozen passes over `[n, d]`. Burn's composition also
//!   copies transposed matrices, and sums each column in one unit.

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;

use crate::cube::column_sums::column_sums;
use crate::ops::batch_norm::{BatchStatistics, NormalizationGradients, Normalized};

type Values = FloatTensor<CubeBackend>;

pub(super) fn normalize(x: Values, gamma: Values, beta: Values, epsilon: f64) -> Normalized<CubeBackend> {
    let means = column_means(x.clone());
    let centered = CubeBackend::float_sub(x, means.clone());
    let squares = CubeBackend::float_mul(centered.clone(), centered.clone());
    let variances = column_means(squares);
    let scales = CubeBackend::float_mul(as_row(gamma), reciprocal_deviations(variances.clone(), epsilon));
    let rows = CubeBackend::float_add(CubeBackend::float_mul(centered, scales), as_row(beta));
    Normalized { rows, means: as_vector(means), variances: as_vector(variances) }
}

pub(super) fn adjoint(
    saved: BatchStatistics<CubeBackend>,
    grad: Values,
) -> NormalizationGradients<CubeBackend> {
    let BatchStatistics { x, gamma, means, variances, epsilon } = saved;
    let n_rows = x.meta.shape()[0];
    let reciprocals = reciprocal_deviations(as_row(variances), epsilon);
    let centered = CubeBackend::float_sub(x, as_row(means));
    let normalized = CubeBackend::float_mul(centered, reciprocals.clone());
    let of_beta = column_sums(grad.clone());
    let of_gamma = column_sums(CubeBackend::float_mul(grad.clone(), normalized.clone()));
    let mean_grad = divided(of_beta.clone(), n_rows);
    let along_normalized = CubeBackend::float_mul(normalized, divided(of_gamma.clone(), n_rows));
    let rest = CubeBackend::float_sub(CubeBackend::float_sub(grad, mean_grad), along_normalized);
    let scales = CubeBackend::float_mul(as_row(gamma), reciprocals);
    NormalizationGradients {
        x: CubeBackend::float_mul(rest, scales),
        gamma: as_vector(of_gamma),
        beta: as_vector(of_beta),
    }
}

/// The mean of each column, `[1, d]`.
fn column_means(x: Values) -> Values {
    let n_rows = x.meta.shape()[0];
    divided(column_sums(x), n_rows)
}

fn divided(sums: Values, n_rows: usize) -> Values {
    CubeBackend::float_div_scalar(sums, (n_rows as f64).into())
}

fn reciprocal_deviations(variances: Values, epsilon: f64) -> Values {
    let deviations = CubeBackend::float_sqrt(CubeBackend::float_add_scalar(variances, epsilon.into()));
    CubeBackend::float_recip(deviations)
}

fn as_row(vector: Values) -> Values {
    let width = vector.meta.num_elements();
    CubeBackend::float_reshape(vector, Shape::new([1, width]))
}

fn as_vector(row: Values) -> Values {
    let width = row.meta.num_elements();
    CubeBackend::float_reshape(row, Shape::new([width]))
}

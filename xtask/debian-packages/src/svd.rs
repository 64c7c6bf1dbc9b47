//! Computation of the leading right singular vectors of a sparse matrix.

use nalgebra::{DMatrix, SymmetricEigen};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The number of rounds of subspace iteration, after which the 128th singular value of the data set has converged to
/// four digits.
const N_ROUNDS: usize = 8;
/// The number of columns that are computed in addition to the wanted ones, so that the last wanted columns converge,
/// too.
const N_EXTRA: usize = 32;
/// The seed of the start matrix.
const SEED: u64 = 0x6b69_6c6e;

/// A sparse matrix in CSR form.
#[derive(Debug)]
pub(crate) struct SparseRows<'a> {
    /// The start of each row in `columns` and `values`; `n_rows + 1` entries.
    pub(crate) indptr: &'a [u32],
    /// The column of each value.
    pub(crate) columns: &'a [u16],
    /// The nonzero values.
    pub(crate) values: Vec<f64>,
}

/// Returns the `n_wanted` leading right singular vectors of a matrix of `n_columns` columns, as a row-major array of
/// shape `[n_columns, n_wanted]`, in order of descending singular values. In each vector, the value of largest
/// magnitude (the first one, if several are equal) is positive.
///
/// The function uses randomised subspace iteration (Halko, Martinsson, Tropp, "Finding structure with randomness",
/// 2011, algorithm 4.4) on `Aᵀ A` for the matrix `A`, with uniform instead of normal start values. It runs on one
/// thread in a fixed order, so the result is reproducible.
pub(crate) fn right_singular_vectors(rows: &SparseRows<'_>, n_columns: usize, n_wanted: usize) -> Vec<f64> {
    let width = (n_wanted + N_EXTRA).min(n_columns);
    let mut rng = Xoshiro256StarStar::seed_from_u64(SEED);
    let start = (0..n_columns * width).map(|_| (rng.next_u64() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0);
    let mut basis: Vec<f64> = start.collect();
    for _ in 0..N_ROUNDS {
        let product = rows.gram_product(&basis, width).image;
        let orthonormal = DMatrix::from_row_slice(n_columns, width, &product).qr().q();
        basis = orthonormal.transpose().as_slice().to_vec();
    }
    let inner = DMatrix::from_row_slice(width, width, &rows.gram_product(&basis, width).inner);
    let eigen = SymmetricEigen::new(inner);
    let mut order: Vec<usize> = (0..width).collect();
    order.sort_by(|&i, &j| eigen.eigenvalues[j].total_cmp(&eigen.eigenvalues[i]));
    order.truncate(n_wanted);
    let mut vectors = Vec::with_capacity(n_columns * n_wanted);
    for row in basis.chunks_exact(width) {
        let value =
            |&j: &usize| row.iter().enumerate().map(|(i, q)| q * eigen.eigenvectors[(i, j)]).sum::<f64>();
        vectors.extend(order.iter().map(value));
    }
    fix_signs(&mut vectors, n_wanted);
    vectors
}

/// The products of a matrix `A` with a basis `Q`, computed in one pass over `A`.
struct GramProduct {
    /// `Aᵀ A Q`, row-major.
    image: Vec<f64>,
    /// `Qᵀ Aᵀ A Q`, row-major.
    inner: Vec<f64>,
}

impl SparseRows<'_> {
    fn gram_product(&self, basis: &[f64], width: usize) -> GramProduct {
        let mut image = vec![0.0; basis.len()];
        let mut inner = vec![0.0; width * width];
        let mut projected = vec![0.0; width];
        for range in self.indptr.windows(2) {
            let entries = range[0] as usize..range[1] as usize;
            let row = || self.columns[entries.clone()].iter().zip(&self.values[entries.clone()]);
            projected.fill(0.0);
            for (&column, &value) in row() {
                add_scaled(&mut projected, value, &basis[usize::from(column) * width..][..width]);
            }
            for (&column, &value) in row() {
                add_scaled(&mut image[usize::from(column) * width..][..width], value, &projected);
            }
            for (line, &value) in inner.chunks_exact_mut(width).zip(&projected) {
                add_scaled(line, value, &projected);
            }
        }
        GramProduct { image, inner }
    }
}

fn add_scaled(sum: &mut [f64], factor: f64, addend: &[f64]) {
    for (sum, addend) in sum.iter_mut().zip(addend) {
        *sum += factor * addend;
    }
}

fn fix_signs(vectors: &mut [f64], n_columns: usize) {
    for column in 0..n_columns {
        let values = || vectors.iter().skip(column).step_by(n_columns);
        let largest = values()
            .fold(0.0_f64, |largest, value| if value.abs() > largest.abs() { *value } else { largest });
        if largest < 0.0 {
            vectors.iter_mut().skip(column).step_by(n_columns).for_each(|value| *value = -*value);
        }
    }
}

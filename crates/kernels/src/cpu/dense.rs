//! Matrix products straight into the memory of the result. Burn's own product on Flex clears its result
//! first and then copies it to another alignment: two more passes over memory that is new to the process.

use std::mem::MaybeUninit;
use std::ops::Range;

use gemm::Parallelism;
use rayon::prelude::*;

/// Products with fewer multiplications run in the calling thread.
const LEAST_PARALLEL: usize = 192 * 192 * 192;

/// Most and fewest rows that a task of [`multiply`] writes. 1,024 rows of 256 columns are 1 MiB; 512, 2,048 and 4,096
/// take the same time within 3 %.
const TASK_ROWS: usize = 1024;
const LEAST_TASK_ROWS: usize = 64;

/// Rows that a task of [`column_sums`] adds up.
const SUM_ROWS: usize = 512;

/// Up to so many values the calling thread adds up alone: about 20 µs.
const SUM_TASK_VALUES: usize = 1 << 17;

/// Most and fewest rows that a task of [`weight_gradient`] multiplies.
const GRADIENT_ROWS: usize = 2048;
const LEAST_GRADIENT_ROWS: usize = 512;

/// Most products that [`weight_gradient`] holds before it adds them up; of more rows, ranges are longer.
const MOST_GRADIENTS: usize = 64;

/// A matrix to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    shape: [usize; 2],
    strides: [usize; 2],
}

impl<'a> Matrix<'a> {
    /// A matrix that lies row by row.
    ///
    /// # Panics
    /// When the number of values is another than the shape's.
    pub(super) fn new(values: &'a [f32], shape: [usize; 2]) -> Self {
        let n_values = shape[0].checked_mul(shape[1]);
        assert_eq!(Some(values.len()), n_values, "{} values for a {shape:?} matrix", values.len());
        Self { values, shape, strides: [shape[1], 1] }
    }

    /// Some of the rows of a matrix that lies row by row.
    fn rows(self, rows: Range<usize>) -> Self {
        let width = self.shape[1];
        assert_eq!(self.strides, [width, 1], "the strides of a matrix that is cut by rows");
        Self::new(&self.values[rows.start * width..rows.end * width], [rows.len(), width])
    }

    /// The same values with rows as columns.
    pub(super) fn transposed(self) -> Self {
        let Self { values, shape: [n_rows, n_columns], strides: [row, column] } = self;
        Self { values, shape: [n_columns, n_rows], strides: [column, row] }
    }
}

/// `left * right`, row by row.
///
/// # Panics
/// When the inner dimensions differ.
pub(super) fn product(left: Matrix<'_>, right: Matrix<'_>) -> Vec<f32> {
    new_product(multiply, left, right, Start::Nothing)
}

/// `left * right` with `row` added to each row.
///
/// # Panics
/// When the dimensions do not fit.
pub(super) fn add_row(row: &[f32], left: Matrix<'_>, right: Matrix<'_>) -> Vec<f32> {
    assert_eq!(row.len(), right.shape[1], "the width of the row that is added to a product");
    new_product(multiply, left, right, Start::Row(row))
}

/// Adds `left * right` to `out`, which lies row by row.
///
/// # Panics
/// When the dimensions do not fit.
pub(super) fn add_product(out: &mut [f32], left: Matrix<'_>, right: Matrix<'_>) {
    // SAFETY: initialised floats are valid as places that may be uninitialised, and `multiply` writes
    // nothing else than floats.
    let places = unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<f32>]) };
    multiply(places, left, right, Start::There);
}

/// What `multiply`, which is [`multiply`] or [`multiply_alone`], writes to places of its own.
fn new_product(multiply: Multiply, left: Matrix<'_>, right: Matrix<'_>, start: Start<'_>) -> Vec<f32> {
    let n_values = left.shape[0].checked_mul(right.shape[1]).expect("a product's size should fit memory");
    let mut out = Vec::with_capacity(n_values);
    multiply(&mut out.spare_capacity_mut()[..n_values], left, right, start);
    // SAFETY: either wrote all of the first `n_values` places.
    unsafe { out.set_len(n_values) };
    out
}

/// Writes all places of a product.
type Multiply = fn(&mut [MaybeUninit<f32>], Matrix<'_>, Matrix<'_>, Start<'_>);

/// What a product is added to.
#[derive(Debug, Clone, Copy)]
enum Start<'a> {
    /// Nothing: what is there is not read.
    Nothing,
    /// What is there, which must be initialised.
    There,
    /// This row, to each row.
    Row(&'a [f32]),
}

/// Writes the product by tasks of so many rows that what a task writes stays in its core's cache: the row that it
/// starts from is there when the product is added. On two cores that another thread works on, too, tasks also
/// balance better than the two halves that the library makes.
fn multiply(out: &mut [MaybeUninit<f32>], left: Matrix<'_>, right: Matrix<'_>, start: Start<'_>) {
    let ([n_rows, inner], [right_rows, n_columns]) = (left.shape, right.shape);
    assert_eq!(inner, right_rows, "the inner dimensions of a product differ");
    assert_eq!(Some(out.len()), n_rows.checked_mul(n_columns), "places for a {n_rows} x {n_columns} product");
    if out.is_empty() {
        return;
    }
    if is_small([n_rows, inner, n_columns]) {
        return multiply_alone(out, left, right, start);
    }
    let task_rows = (n_rows / 16).next_multiple_of(32).clamp(LEAST_TASK_ROWS, TASK_ROWS);
    out.par_chunks_mut(task_rows * n_columns).enumerate().for_each(|(task, out)| {
        let first = task * task_rows;
        multiply_alone(out, left.rows(first..first + out.len() / n_columns), right, start);
    });
}

/// The same in the calling thread.
fn multiply_alone(out: &mut [MaybeUninit<f32>], left: Matrix<'_>, right: Matrix<'_>, start: Start<'_>) {
    let ([n_rows, inner], [right_rows, n_columns]) = (left.shape, right.shape);
    assert_eq!(inner, right_rows, "the inner dimensions of a product differ");
    assert_eq!(Some(out.len()), n_rows.checked_mul(n_columns), "places for a {n_rows} x {n_columns} product");
    match start {
        Start::Nothing if inner == 0 => out.fill(MaybeUninit::new(0.0)),
        Start::Nothing | Start::There => {}
        Start::Row(row) => {
            for place in out.chunks_exact_mut(n_columns.max(1)) {
                place.write_copy_of_slice(row);
            }
        }
    }
    if inner == 0 {
        return;
    }
    // SAFETY: the lengths were checked against shapes and strides above and in `Matrix::new`, so that every
    // place that is read or written lies within its slice, and `out` is borrowed alone. Without
    // `read_dst` the product only writes to `out`; with it, `out` was initialised above or by the caller.
    unsafe {
        gemm::gemm(
            n_rows,
            n_columns,
            inner,
            out.as_mut_ptr().cast::<f32>(),
            1,
            n_columns as isize,
            !matches!(start, Start::Nothing),
            left.values.as_ptr(),
            left.strides[1] as isize,
            left.strides[0] as isize,
            right.values.as_ptr(),
            right.strides[1] as isize,
            right.strides[0] as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Whether a product of these dimensions does not wake another thread, which takes as long as the product.
fn is_small([n_rows, inner, n_columns]: [usize; 3]) -> bool {
    n_rows.saturating_mul(inner).saturating_mul(n_columns) < LEAST_PARALLEL
}

/// `x` transposed times `grad`, which have equal numbers of rows, many more than columns: of ranges of rows first,
/// then the sum of the ranges' products in their order, so that the bits do not depend on the number of threads.
///
/// A product of such a shape has too few rows and columns to be cut among threads by them: two threads give 160 to
/// 230 GFLOP/s so, and 240 to 290 cut by ranges (43,524 x 128, 43,524 x 256 and 7,744 x 512 values by 256 columns of
/// gradient, two cores of 225 GFLOP/s each).
///
/// # Panics
/// When the numbers of rows or of values do not fit.
pub(super) fn weight_gradient(x: Matrix<'_>, grad: Matrix<'_>) -> Vec<f32> {
    let ([n_rows, d_in], [grad_rows, d_out]) = (x.shape, grad.shape);
    assert_eq!(n_rows, grad_rows, "the numbers of rows differ");
    let task_rows =
        (n_rows / 16).clamp(LEAST_GRADIENT_ROWS, GRADIENT_ROWS).max(n_rows.div_ceil(MOST_GRADIENTS));
    let of_range = |start: usize| {
        let rows = start..(start + task_rows).min(n_rows);
        let x = x.rows(rows.clone()).transposed();
        new_product(multiply_alone, x, grad.rows(rows), Start::Nothing)
    };
    let starts: Vec<usize> = (0..n_rows).step_by(task_rows).collect();
    let products: Vec<Vec<f32>> = match is_small([d_in, n_rows, d_out]) {
        true => starts.into_iter().map(of_range).collect(),
        false => starts.into_par_iter().map(of_range).collect(),
    };
    let mut products = products.into_iter();
    let mut sum = products.next().unwrap_or_else(|| vec![0.0; d_in * d_out]);
    products.for_each(|product| add(&mut sum, &product));
    sum
}

/// The sum of each column: of blocks of rows first, then of the blocks in their order, so that the bits do
/// not depend on the number of threads.
pub(super) fn column_sums(values: &[f32], width: usize) -> Vec<f32> {
    if width == 0 {
        return Vec::new();
    }
    let of_block = |block: &[f32]| {
        let mut sums = vec![0.0; width];
        for row in block.chunks_exact(width) {
            add(&mut sums, row);
        }
        sums
    };
    let of_blocks: Vec<Vec<f32>> = match values.len() {
        n if n <= SUM_TASK_VALUES => values.chunks(SUM_ROWS * width).map(of_block).collect(),
        _ => values.par_chunks(SUM_ROWS * width).map(of_block).collect(),
    };
    let mut sums = vec![0.0; width];
    for of_block in &of_blocks {
        add(&mut sums, of_block);
    }
    sums
}

fn add(sums: &mut [f32], row: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(row) {
        *sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i * 7 % 11) as f32 - 5.0).collect()
    }

    /// By the definition; whole numbers, so that the order of the additions does not matter.
    fn reference(left: &[f32], right: &[f32], [n, inner, m]: [usize; 3]) -> Vec<f32> {
        let cell = |i: usize, j: usize| (0..inner).map(|k| left[i * inner + k] * right[k * m + j]).sum();
        (0..n).flat_map(|i| (0..m).map(move |j| (i, j))).map(|(i, j)| cell(i, j)).collect()
    }

    #[test]
    fn products_are_right_for_ragged_shapes() {
        for [n, inner, m] in [
            [1, 1, 1],
            [3, 5, 4],
            [17, 33, 65],
            [300, 200, 201],
            [4500, 60, 70],
            [0, 4, 3],
            [4, 0, 3],
            [4, 3, 0],
        ] {
            let (left, right) = (ramp(n * inner), ramp(inner * m));
            let expected = reference(&left, &right, [n, inner, m]);
            let (a, b) = (Matrix::new(&left, [n, inner]), Matrix::new(&right, [inner, m]));
            assert_eq!(product(a, b), expected, "{n} x {inner} x {m}");
            let mut sum = vec![2.0; n * m];
            add_product(&mut sum, a, b);
            assert!(sum.iter().zip(&expected).all(|(sum, product)| *sum == product + 2.0));
            let row = ramp(m);
            let with_row: Vec<f32> = expected.iter().zip(row.iter().cycle()).map(|(p, r)| p + r).collect();
            assert_eq!(add_row(&row, a, b), with_row);
            let right: Vec<f32> = (0..m * inner).map(|at| right[at % inner * m + at / inner]).collect();
            assert_eq!(product(a, Matrix::new(&right, [m, inner]).transposed()), expected);
        }
    }

    #[test]
    fn the_gradient_of_a_weight_is_the_product_over_all_rows() {
        for n in [
            MOST_GRADIENTS * GRADIENT_ROWS + 5,
            0,
            1,
            LEAST_GRADIENT_ROWS,
            LEAST_GRADIENT_ROWS + 1,
            3 * GRADIENT_ROWS + 7,
            9 * GRADIENT_ROWS,
        ] {
            let (x, grad) = (ramp(n * 5), ramp(n * 3));
            let (a, b) = (Matrix::new(&x, [n, 5]), Matrix::new(&grad, [n, 3]));
            let mut expected = vec![0.0; 15];
            for row in 0..n {
                for (i, j) in (0..5).flat_map(|i| (0..3).map(move |j| (i, j))) {
                    expected[i * 3 + j] += x[row * 5 + i] * grad[row * 3 + j];
                }
            }
            assert_eq!(weight_gradient(a, b), expected, "{n} rows");
        }
    }

    #[test]
    #[should_panic(expected = "the inner dimensions of a product differ")]
    fn dimensions_that_do_not_fit_are_found() {
        product(Matrix::new(&[0.0; 6], [2, 3]), Matrix::new(&[0.0; 4], [2, 2]));
    }

    #[test]
    #[should_panic(expected = "5 values for a [2, 3] matrix")]
    fn values_that_make_no_matrix_are_found() {
        Matrix::new(&[0.0; 5], [2, 3]);
    }

    #[test]
    fn columns_add_up() {
        let values: Vec<f32> = (0..3 * 130).map(|at| at as f32).collect();
        let sums = column_sums(&values, 130);
        assert!(sums.iter().enumerate().all(|(column, sum)| *sum == (3 * column + 390) as f32));
        assert_eq!(column_sums(&[], 2), [0.0, 0.0]);
        assert_eq!(column_sums(&[], 0), [0.0; 0]);
        assert_eq!(column_sums(&vec![1.0; 3 * 1300], 3), [1300.0; 3]);
    }
}

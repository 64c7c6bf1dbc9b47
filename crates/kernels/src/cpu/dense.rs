//! Matrix products that write directly into the memory of the result. Burn's product on Flex first clears its result
//! and then copies it to another alignment, which costs two more passes over memory that is new to the process.
//!
//! Products are computed in f32 by the `gemm` crate or, if the process has chosen it, in bf16 by [`bf16`]. A left operand
//! of half precision, whose rows are features, is widened in ranges of rows, each by the task that multiplies it.

use std::mem::MaybeUninit;

use gemm::Parallelism;
use rayon::prelude::*;

use crate::cpu::bf16;
use crate::cpu::cost::{self, PASS_NS};
use crate::cpu::matrix::{Matrix, Start};
use crate::cpu::row_value::RowValue;
use crate::cpu::tasks::{add, sum_in_order};

/// The number of multiplications from which [`multiply`] divides a product into tasks.
const LEAST_DIVIDED: usize = 192 * 192 * 192;

/// The maximum number of rows that a task of [`multiply`] writes: 1,024 rows of 256 columns are 1 MiB. The run
/// time depends little on this number.
const TASK_ROWS: usize = 1024;

/// The minimum number of rows that a task of [`multiply`] writes.
const LEAST_TASK_ROWS: usize = 64;

/// The number of rows that a task of [`column_sums`] adds.
const SUM_ROWS: usize = 512;

/// The maximum number of rows that a task of [`weight_gradient`] multiplies.
const GRADIENT_ROWS: usize = 2048;

/// The minimum number of rows that a task of [`weight_gradient`] multiplies.
const LEAST_GRADIENT_ROWS: usize = 512;

/// The maximum number of ranges of rows whose products [`weight_gradient`] adds. If the inputs have many rows, the ranges
/// become longer instead.
const MOST_GRADIENTS: usize = 64;

/// `left * right` in row-major order.
///
/// # Panics
/// Panics if the inner dimensions differ.
pub(super) fn product(left: Matrix<'_>, right: Matrix<'_>) -> Vec<f32> {
    new_product(multiply, left, right, Start::Nothing)
}

/// `left * right` with `row` added to each row.
///
/// # Panics
/// Panics if the dimensions do not match.
pub(super) fn add_row<E: RowValue>(row: &[f32], left: Matrix<'_, E>, right: Matrix<'_>) -> Vec<f32> {
    assert_eq!(row.len(), right.shape()[1], "the added row and the product differ in width");
    new_product(multiply, left, right, Start::Row(row))
}

/// Adds `left * right` to `out`, which is in row-major order.
///
/// # Panics
/// Panics if the dimensions do not match.
pub(super) fn add_product<E: RowValue>(out: &mut [f32], left: Matrix<'_, E>, right: Matrix<'_>) {
    // SAFETY: initialised floats are valid as `MaybeUninit`, and `multiply` writes only initialised floats.
    let places = unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<f32>]) };
    multiply(places, left, right, Start::There);
}

/// Allocates a product and computes it with `multiply`, which is [`multiply`] or [`multiply_alone`].
fn new_product<E: RowValue>(
    multiply: Multiply<E>,
    left: Matrix<'_, E>,
    right: Matrix<'_>,
    start: Start<'_>,
) -> Vec<f32> {
    let mut out = Vec::new();
    write_product(&mut out, multiply, left, right, start);
    out
}

/// Writes a product to an empty vector.
fn write_product<E: RowValue>(
    out: &mut Vec<f32>,
    multiply: Multiply<E>,
    left: Matrix<'_, E>,
    right: Matrix<'_>,
    start: Start<'_>,
) {
    let n_values = left.shape()[0].checked_mul(right.shape()[1]).expect("a product should fit in memory");
    out.reserve_exact(n_values);
    multiply(&mut out.spare_capacity_mut()[..n_values], left, right, start);
    // SAFETY: both functions write all of the first `n_values` elements, and the vector was empty.
    unsafe { out.set_len(n_values) };
}

/// A function that writes all elements of a product.
type Multiply<E> = fn(&mut [MaybeUninit<f32>], Matrix<'_, E>, Matrix<'_>, Start<'_>);

/// Writes a product in tasks. The output of a task fits in its core's cache, so the row of [`Start::Row`] that is
/// copied to the output is still cached when the product is added. If other threads use the same cores, small tasks
/// also balance better than one range per thread, which is how `gemm` splits the work.
fn multiply<E: RowValue>(
    out: &mut [MaybeUninit<f32>],
    left: Matrix<'_, E>,
    right: Matrix<'_>,
    start: Start<'_>,
) {
    let [n_rows, inner] = left.shape();
    let [right_rows, n_columns] = right.shape();
    assert_eq!(inner, right_rows, "the inner dimensions of a product differ");
    assert_eq!(
        Some(out.len()),
        n_rows.checked_mul(n_columns),
        "the output should have {n_rows} x {n_columns} values"
    );
    if out.is_empty() {
        return;
    }
    let panels = bf16::Panels::of(right);
    let alone = |out: &mut [MaybeUninit<f32>], left: Matrix<'_>| match &panels {
        Some(panels) => panels.multiply(out, left, start),
        None if left.shape()[0] < least_rows(right) => multiply_padded(out, left, right, start),
        None => multiply_alone(out, left, right, start),
    };
    if n_rows.saturating_mul(inner).saturating_mul(n_columns) < LEAST_DIVIDED {
        return left.widened_rows(0..n_rows, |left| alone(out, left));
    }
    // Tasks of fewer rows than `least_rows` would be padded.
    let least_task_rows = LEAST_TASK_ROWS.max(least_rows(right).next_multiple_of(32));
    let task_rows = (n_rows / 16).next_multiple_of(32).clamp(least_task_rows, TASK_ROWS);
    out.par_chunks_mut(task_rows * n_columns).enumerate().for_each(|(task, out)| {
        let first = task * task_rows;
        left.widened_rows(first..first + out.len() / n_columns, |left| alone(out, left));
    });
}

/// Returns the number of rows of the left operand from which `gemm` adds the terms of an element in the same order, whatever
/// the number of rows. With fewer, version 0.19 uses other code in three cases, which `a_row_has_one_value_in_every_product`
/// covers: for one row; for up to 64 rows and columns, where it cuts sums of more than 512 terms at other places; and for up to
/// 256 elements whose terms are adjacent in both operands.
fn least_rows(right: Matrix<'_>) -> usize {
    let [inner, n_columns] = right.shape();
    let for_long_sums = if 512 < inner && n_columns <= 64 { 65 } else { 2 };
    let for_adjacent_terms = if right.strides()[0] == 1 { 256 / n_columns + 1 } else { 2 };
    for_long_sums.max(for_adjacent_terms)
}

/// Same as [`multiply_alone`], with rows of zeros added to the left operand up to [`least_rows`], so that a row of the product
/// does not depend on how many others are computed with it.
fn multiply_padded(out: &mut [MaybeUninit<f32>], left: Matrix<'_>, right: Matrix<'_>, start: Start<'_>) {
    let [_, inner] = left.shape();
    let [_, n_columns] = right.shape();
    let n_rows = least_rows(right);
    let mut padded_left = Vec::with_capacity(n_rows * inner);
    padded_left.extend_from_slice(left.values());
    padded_left.resize(n_rows * inner, 0.0);
    let mut padded = vec![MaybeUninit::new(0.0); n_rows * n_columns];
    if matches!(start, Start::There) {
        padded[..out.len()].copy_from_slice(out);
    }
    multiply_alone(&mut padded, Matrix::new(&padded_left, [n_rows, inner]), right, start);
    out.copy_from_slice(&padded[..out.len()]);
}

/// Same as [`multiply`], but in f32 and in the calling thread.
fn multiply_alone(out: &mut [MaybeUninit<f32>], left: Matrix<'_>, right: Matrix<'_>, start: Start<'_>) {
    let [n_rows, inner] = left.shape();
    let [right_rows, n_columns] = right.shape();
    assert_eq!(inner, right_rows, "the inner dimensions of a product differ");
    assert_eq!(
        Some(out.len()),
        n_rows.checked_mul(n_columns),
        "the output should have {n_rows} x {n_columns} values"
    );
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
    // SAFETY: the lengths were checked against shapes and strides above and in `Matrix::new`, so every element that is
    // read or written is within its slice, and `out` is borrowed exclusively. Without `read_dst`, `gemm` only writes to
    // `out`; with it, `out` was initialised above or by the caller.
    unsafe {
        gemm::gemm(
            n_rows,
            n_columns,
            inner,
            out.as_mut_ptr().cast::<f32>(),
            1,
            n_columns as isize,
            !matches!(start, Start::Nothing),
            left.values().as_ptr(),
            left.strides()[1] as isize,
            left.strides()[0] as isize,
            right.values().as_ptr(),
            right.strides()[1] as isize,
            right.strides()[0] as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Returns true if a weight gradient is faster in parallel, in ranges of this many rows.
fn is_parallel(n_rows: usize, task_rows: usize, [d_in, d_out]: [usize; 2]) -> bool {
    let row_ns = cost::product_row_ns(d_in, d_out);
    cost::is_parallel(n_rows as f64 * row_ns, task_rows as f64 * row_ns)
}

/// Returns the product of the transposed `x` and `grad`. Both have the same number of rows, usually many more than
/// columns.
///
/// The product has too few rows and columns to divide them among threads, so the rows of the inputs are split into
/// ranges. The products of the ranges are added in order, so the result is bit-identical for any number of threads.
///
/// # Panics
/// Panics if the numbers of rows differ.
pub(super) fn weight_gradient<E: RowValue>(x: Matrix<'_, E>, grad: Matrix<'_>) -> Vec<f32> {
    let [n_rows, d_in] = x.shape();
    let [grad_rows, d_out] = grad.shape();
    assert_eq!(n_rows, grad_rows, "x and grad differ in the number of rows");
    let task_rows =
        (n_rows / 16).clamp(LEAST_GRADIENT_ROWS, GRADIENT_ROWS).max(n_rows.div_ceil(MOST_GRADIENTS));
    let n_ranges = n_rows.div_ceil(task_rows);
    match n_ranges {
        0 => vec![0.0; d_in * d_out],
        _ => sum_in_order(
            n_ranges,
            is_parallel(n_rows, task_rows, [d_in, d_out]),
            |range: usize, out: &mut Vec<f32>| {
                let start = range * task_rows;
                let rows = start..(start + task_rows).min(n_rows);
                let grad = grad.rows(rows.clone());
                x.widened_rows(rows, |x| {
                    if !bf16::transposed_product(out, x, grad) {
                        write_product(out, multiply_alone, x.transposed(), grad, Start::Nothing);
                    }
                });
            },
        ),
    }
}

/// Returns the sum of each column. Blocks of rows are summed first and then added in order, so the result is
/// bit-identical for any number of threads.
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
    let block_values = SUM_ROWS * width;
    let is_parallel = cost::is_parallel(values.len() as f64 * PASS_NS, block_values as f64 * PASS_NS);
    let of_blocks: Vec<Vec<f32>> = match is_parallel {
        true => values.par_chunks(block_values).map(of_block).collect(),
        false => values.chunks(block_values).map(of_block).collect(),
    };
    let mut sums = vec![0.0; width];
    for of_block in &of_blocks {
        add(&mut sums, of_block);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(n: usize) -> Vec<f32> {
        (0..n).map(|i| (i * 7 % 11) as f32 - 5.0).collect()
    }

    /// Computes the product by its definition. The tests use whole numbers, so the order of the additions does not
    /// matter.
    fn reference(left: &[f32], right: &[f32], [n, inner, m]: [usize; 3]) -> Vec<f32> {
        let cell = |i: usize, j: usize| (0..inner).map(|k| left[i * inner + k] * right[k * m + j]).sum();
        (0..n).flat_map(|i| (0..m).map(move |j| (i, j))).map(|(i, j)| cell(i, j)).collect()
    }

    #[test]
    fn products_match_the_definition_for_ragged_shapes() {
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
            let left = ramp(n * inner);
            let right = ramp(inner * m);
            let expected = reference(&left, &right, [n, inner, m]);
            let a = Matrix::new(&left, [n, inner]);
            let b = Matrix::new(&right, [inner, m]);
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

    /// Computes products of parts of the rows, and compares each row with that of the product of all rows, bit for bit.
    #[test]
    fn a_row_has_one_value_in_every_product() {
        let n_rows = 700;
        let value = |at: usize| ((at * 2_654_435_761) % 1_000_003) as f32 / 1_000_003.0 - 0.5;
        for inner in [1, 2, 3, 16, 100, 512, 513, 1433] {
            let left: Vec<f32> = (0..n_rows * inner).map(value).collect();
            let left = Matrix::new(&left, [n_rows, inner]);
            for n_columns in [1, 2, 3, 7, 16, 41, 64, 65, 100, 257] {
                let values: Vec<f32> = (0..inner * n_columns).map(|at| value(at + 77)).collect();
                let row: Vec<f32> = (0..n_columns).map(|at| value(at + 5)).collect();
                for right in [
                    Matrix::new(&values, [inner, n_columns]),
                    Matrix::new(&values, [n_columns, inner]).transposed(),
                ] {
                    let all = product(left, right);
                    let with_row = add_row(&row, left, right);
                    let mut sum: Vec<f32> = (0..n_rows * n_columns).map(value).collect();
                    let before = sum.clone();
                    add_product(&mut sum, left, right);
                    for n_of_part in [1, 2, 3, 5, 31, 64, 65, 129, 256, 257] {
                        let first = (n_of_part * 37) % (n_rows - n_of_part);
                        let part = left.rows(first..first + n_of_part);
                        let values = first * n_columns..(first + n_of_part) * n_columns;
                        let name = format!("{n_of_part} of {n_rows} x {inner} x {n_columns}");
                        assert_eq!(product(part, right), all[values.clone()], "{name}");
                        assert_eq!(add_row(&row, part, right), with_row[values.clone()], "{name} and a row");
                        let mut of_part = before[values.clone()].to_vec();
                        add_product(&mut of_part, part, right);
                        assert_eq!(of_part, sum[values], "{name} and the output");
                    }
                }
            }
        }
    }

    #[test]
    fn weight_gradient_matches_the_definition() {
        for n in [
            MOST_GRADIENTS * GRADIENT_ROWS + 5,
            0,
            1,
            LEAST_GRADIENT_ROWS,
            LEAST_GRADIENT_ROWS + 1,
            3 * GRADIENT_ROWS + 7,
            9 * GRADIENT_ROWS,
        ] {
            let x = ramp(n * 5);
            let grad = ramp(n * 3);
            let a = Matrix::new(&x, [n, 5]);
            let b = Matrix::new(&grad, [n, 3]);
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
    fn rejects_a_product_with_different_inner_dimensions() {
        product(Matrix::new(&[0.0; 6], [2, 3]), Matrix::new(&[0.0; 4], [2, 2]));
    }

    #[test]
    fn column_sums_add_all_rows() {
        let values: Vec<f32> = (0..3 * 130).map(|at| at as f32).collect();
        let sums = column_sums(&values, 130);
        assert!(sums.iter().enumerate().all(|(column, sum)| *sum == (3 * column + 390) as f32));
        assert_eq!(column_sums(&[], 2), [0.0, 0.0]);
        assert_eq!(column_sums(&[], 0), [0.0; 0]);
        assert_eq!(column_sums(&vec![1.0; 3 * 1300], 3), [1300.0; 3]);
    }
}

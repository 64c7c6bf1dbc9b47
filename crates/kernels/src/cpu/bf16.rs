//! Matrix products with operands in bf16 and sums in f32, on processors with AVX512-BF16.
//!
//! The operands are f32. They are converted where the kernel would copy them anyway: the right one once per product to
//! panels of columns, the left one in blocks of rows that stay in a core's cache. The instruction has twice the peak of
//! f32's multiply-add.
//!
//! Each element of a product is one chain of sums, in the order of the inner dimension, after the summand
//! ([`Start`]). Weight gradients add the chains of fixed ranges of rows in order. So results are bit-identical for any
//! number of threads. Processors with the instruction agree by its definition, which was compared on a Zen 4. The shape of
//! the weights alone decides whether a product is in bf16.
//!
//! The `gemm` crate has no kernel for these instructions. oneDNN has one of about the same rate, but needs CMake and a C++
//! compiler, which the default build excludes. `pack` rounds operands to bf16 in the layout that the product reads, `tile`
//! sums tiles in registers, and this file divides a product into blocks that stay in a core's second-level cache. ReLU and
//! the gradient of the bias are separate passes: in a profile of a step, the latter takes at most 2 %.

mod pack;
#[cfg(test)]
mod tests;
mod tile;

use std::mem::MaybeUninit;

use crate::cpu::instructions::has_bf16_products;
use crate::cpu::matrix::{Matrix, Start};
use crate::ops::MatmulPrecision;
use crate::ops::precision::matmul_precision;
use tile::{Ahead, Left, MOST_TILE_ROWS, PANEL_COLUMNS, Right};

/// The number of rows of the left operand that are converted at once, if they are at most [`BLOCK_PAIRS`].
const BLOCK_ROWS: usize = 96;

/// The maximum number of pairs in a block of the left operand: 256 KiB, so that it stays in the second-level cache.
const BLOCK_PAIRS: usize = 1 << 16;

/// The number of rows of both operands of a weight gradient that are converted at once. It is even, because rows are
/// summed in pairs.
const CHUNK_ROWS: usize = 64;

/// The columns of `x` in a panel of the left operand of a weight gradient: a multiple of the rows of all tiles and of a
/// vector.
const X_COLUMNS: usize = 48;

/// The smallest number of rows and of columns of a matrix of weights whose products are computed in bf16. Narrower ones
/// fill a small part of a vector.
const LEAST_WIDTH: usize = 8;

/// The smallest number of weights in such a matrix. Converting the operands of smaller ones takes longer than it saves.
const LEAST_WEIGHTS: usize = 1024;

/// Returns true if the products with a matrix of weights, `[d_in, d_out]` or transposed, and its gradients are computed
/// in bf16. The shape decides for all three products of a layer, whatever their number of rows.
fn is_used([d_in, d_out]: [usize; 2]) -> bool {
    let is_large = LEAST_WIDTH <= d_in.min(d_out) && LEAST_WEIGHTS <= d_in * d_out;
    is_large && matmul_precision() == MatmulPrecision::Bf16 && has_bf16_products()
}

/// The right operand of a product in bf16.
pub(super) struct Panels {
    pairs: Vec<u32>,
    inner: usize,
    n_pairs: usize,
    n_columns: usize,
}

impl Panels {
    /// Converts the right operand of a product, or returns `None` if the product is computed in f32.
    pub(super) fn of(right: Matrix<'_>) -> Option<Self> {
        // SAFETY: `is_used` checks that the processor has the instructions.
        is_used(right.shape()).then(|| unsafe { Self::new(right) })
    }

    /// Converts the right operand of a product: a row-major matrix, or the transposed view of one.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn new(right: Matrix<'_>) -> Self {
        let [inner, n_columns] = right.shape();
        let n_pairs = inner.div_ceil(2);
        let mut pairs = vec![0; n_columns.div_ceil(PANEL_COLUMNS) * PANEL_COLUMNS * n_pairs];
        if right.strides() == [n_columns, 1] {
            pack::pair_rows(&mut pairs, right.values(), n_columns, PANEL_COLUMNS);
        } else {
            let mut of_columns = vec![0; n_columns * n_pairs];
            pack::pair_columns(&mut of_columns, right.values(), inner);
            pack::transpose(&mut pairs, &of_columns, n_pairs);
        }
        Self { pairs, inner, n_pairs, n_columns }
    }

    /// Writes the product of `left`, which is row-major, and this matrix to `out`, in the calling thread.
    pub(super) fn multiply(&self, out: &mut [MaybeUninit<f32>], left: Matrix<'_>, start: Start<'_>) {
        // SAFETY: `Panels` are created only on processors with the instructions.
        unsafe { self.multiply_rows(out, left, start) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn multiply_rows(&self, out: &mut [MaybeUninit<f32>], left: Matrix<'_>, start: Start<'_>) {
        let &Self { ref pairs, inner: right_rows, n_pairs, n_columns } = self;
        let [n_rows, inner] = left.shape();
        assert_eq!(inner, right_rows, "the inner dimensions of a product differ");
        let right = Right { pairs, n_pairs, n_columns };
        let most_rows = BLOCK_PAIRS / n_pairs / MOST_TILE_ROWS * MOST_TILE_ROWS;
        let block_rows = most_rows.clamp(MOST_TILE_ROWS, BLOCK_ROWS);
        // Zeros follow the last row, because tiles read complete groups of rows.
        let mut block = vec![0; block_rows.min(n_rows.next_multiple_of(MOST_TILE_ROWS)) * n_pairs];
        for (out, first) in out.chunks_mut(block_rows * n_columns).zip((0..n_rows).step_by(block_rows)) {
            let rows = left.rows(first..(first + block_rows).min(n_rows));
            pack::pair_columns(&mut block, rows.values(), inner);
            let n_rows = rows.shape()[0];
            let left = Left { pairs: &block, n_rows, row_stride: n_pairs, pair_stride: 1 };
            tile::multiply(out, left, right, start, &mut Ahead::nothing());
        }
    }
}

/// Writes the product of the transposed `x` and `grad` to an empty vector, in the calling thread. Returns false if it is
/// computed in f32, which the caller does. The rows are summed in pairs, the first two first.
pub(super) fn transposed_product(out: &mut Vec<f32>, x: Matrix<'_>, grad: Matrix<'_>) -> bool {
    let is_used = is_used([x.shape()[1], grad.shape()[1]]);
    if is_used {
        // SAFETY: `is_used` checks that the processor has the instructions.
        unsafe { sum_of_chunks(out, x, grad) };
    }
    is_used
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn sum_of_chunks(sum: &mut Vec<f32>, x: Matrix<'_>, grad: Matrix<'_>) {
    let [n_rows, d_in] = x.shape();
    let [_, d_out] = grad.shape();
    sum.reserve_exact(d_in * d_out);
    let out = &mut sum.spare_capacity_mut()[..d_in * d_out];
    if n_rows == 0 {
        out.fill(MaybeUninit::new(0.0));
    }
    let n_pairs = CHUNK_ROWS / 2;
    let mut x_pairs = vec![0; d_in.div_ceil(X_COLUMNS) * X_COLUMNS * n_pairs];
    let mut grad_pairs = vec![0; d_out.div_ceil(PANEL_COLUMNS) * PANEL_COLUMNS * n_pairs];
    let chunk = |first: usize| first.min(n_rows)..(first + CHUNK_ROWS).min(n_rows);
    for first in (0..n_rows).step_by(CHUNK_ROWS) {
        let [x_rows, grad_rows] = [x, grad].map(|matrix| matrix.rows(chunk(first)));
        pack::pair_rows(&mut x_pairs, x_rows.values(), d_in, X_COLUMNS);
        pack::pair_rows(&mut grad_pairs, grad_rows.values(), d_out, PANEL_COLUMNS);
        let n_pairs = x_rows.shape()[0].div_ceil(2);
        let right = Right { pairs: &grad_pairs, n_pairs, n_columns: d_out };
        let start = if first == 0 { Start::Nothing } else { Start::There };
        // The operands are read once, so the next chunk is prefetched while this one is multiplied. Otherwise the rate
        // is limited by memory.
        let next = [x, grad].map(|matrix| matrix.rows(chunk(first + CHUNK_ROWS)).values());
        let mut ahead = Ahead { arrays: next, n_tiles: tile::n_tiles(d_in, d_out), n_begun: 0 };
        let panels = x_pairs.chunks_exact(X_COLUMNS * n_pairs);
        for (out, pairs) in out.chunks_mut(X_COLUMNS * d_out).zip(panels) {
            let left = Left { pairs, n_rows: out.len() / d_out, row_stride: 1, pair_stride: X_COLUMNS };
            tile::multiply(out, left, right, start, &mut ahead);
        }
    }
    // SAFETY: the first chunk, or the zeros, overwrote all elements, and the vector was empty.
    unsafe { sum.set_len(d_in * d_out) };
}

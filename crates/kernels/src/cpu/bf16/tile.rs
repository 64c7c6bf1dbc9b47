//! Products of bf16 matrices, tile by tile: each tile of the result stays in vector registers while the inner dimension
//! is summed.
//!
//! A *pair* is two bf16 values that are adjacent along the inner dimension, in one `u32`: the first one in the low half.
//! The instruction `vdpbf16ps` adds the products of two pairs to an f32 sum: first the product of the high halves, then
//! that of the low halves, each with one rounding to nearest even. Subnormal operands, sums and results count as 0. All of
//! this is independent of the processor's control register (Intel 64 and IA-32 Architectures Software Developer's Manual,
//! volume 2, VDPBF16PS).

use std::arch::x86_64::{
    __m512bh, __m512i, __mmask16, _MM_HINT_T1, _mm_prefetch, _mm512_dpbf16_ps, _mm512_loadu_si512,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_set1_epi32, _mm512_setzero_ps, _mm512_setzero_si512,
};
use std::mem::MaybeUninit;

use crate::cpu::matrix::Start;

/// The number of f32 values, and of pairs, in a vector.
pub(super) const LANES: usize = 16;

/// The number of columns of a panel of the right operand: the widest tile has four vectors.
pub(super) const PANEL_COLUMNS: usize = 4 * LANES;

/// The largest number of rows of a tile. Left operands are padded to a multiple of it.
pub(super) const MOST_TILE_ROWS: usize = 12;

/// A left operand, `[n_rows, n_pairs]`. The pairs of up to [`MOST_TILE_ROWS`] - 1 rows that follow the last one are read
/// and ignored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) pairs: &'a [u32],
    pub(super) n_rows: usize,
    pub(super) row_stride: usize,
    pub(super) pair_stride: usize,
}

/// A right operand, `[n_pairs, n_columns]`, in panels of [`PANEL_COLUMNS`] columns. Each panel is in row-major order;
/// the last one is padded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Right<'a> {
    pub(super) pairs: &'a [u32],
    pub(super) n_pairs: usize,
    pub(super) n_columns: usize,
}

/// Arrays that are read after a product, and are prefetched into the second-level cache while it is computed: equally
/// many lines before each tile.
#[derive(Debug)]
pub(super) struct Ahead<'a> {
    pub(super) arrays: [&'a [f32]; 2],
    /// The number of tiles during which the arrays are prefetched.
    pub(super) n_tiles: usize,
    /// The number of tiles that have begun.
    pub(super) n_begun: usize,
}

impl Ahead<'_> {
    /// Returns an empty list of arrays.
    pub(super) fn nothing() -> Self {
        Self { arrays: [&[]; 2], n_tiles: 1, n_begun: 0 }
    }

    /// Prefetches the share of one tile.
    fn next(&mut self) {
        for array in self.arrays {
            let end_of = |n_begun: usize| array.len().div_ceil(LANES) * n_begun / self.n_tiles * LANES;
            for start in (end_of(self.n_begun)..end_of(self.n_begun + 1).min(array.len())).step_by(LANES) {
                // SAFETY: a prefetch has no effect on values, and the address is within the array.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(array.as_ptr().add(start).cast()) };
            }
        }
        self.n_begun += 1;
    }
}

/// The number of tiles of a product.
pub(super) fn n_tiles(n_rows: usize, n_columns: usize) -> usize {
    let n_panels = n_columns / PANEL_COLUMNS;
    let rest = n_columns % PANEL_COLUMNS;
    let of_rest = if rest == 0 { 0 } else { n_rows.div_ceil(tile_rows(rest.div_ceil(LANES))) };
    n_panels * n_rows.div_ceil(tile_rows(4)) + of_rest
}

/// The number of rows of a tile of this many vectors. At most 24 of the 32 registers hold sums.
fn tile_rows(n_vectors: usize) -> usize {
    if n_vectors <= 2 { MOST_TILE_ROWS } else { 6 }
}

/// Writes `left * right` to `out`, row-major, after the summand `start`. Each element is one chain of sums along the
/// inner dimension, so the result does not depend on how the rows and columns of a product are divided among calls.
///
/// # Panics
/// Panics if a slice is too short.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn multiply(
    out: &mut [MaybeUninit<f32>],
    left: Left<'_>,
    right: Right<'_>,
    start: Start<'_>,
    ahead: &mut Ahead<'_>,
) {
    let n_rows = left.n_rows;
    let n_columns = right.n_columns;
    let n_pairs = right.n_pairs;
    let n_padded = n_rows.next_multiple_of(MOST_TILE_ROWS);
    let n_panels = n_columns.div_ceil(PANEL_COLUMNS);
    assert_eq!(out.len(), n_rows * n_columns, "the output should have {n_rows} x {n_columns} values");
    if out.is_empty() {
        return;
    }
    let last = (n_padded - 1) * left.row_stride + n_pairs.saturating_sub(1) * left.pair_stride;
    assert!(n_pairs == 0 || last < left.pairs.len(), "the left operand is too short");
    assert!(n_panels * n_pairs * PANEL_COLUMNS <= right.pairs.len(), "the right operand is too short");
    let row = match start {
        Start::Row(row) => {
            assert_eq!(row.len(), n_columns, "the added row and the product differ in width");
            row
        }
        Start::Nothing | Start::There => &[],
    };
    for panel in 0..n_panels {
        let column = panel * PANEL_COLUMNS;
        let width = (n_columns - column).min(PANEL_COLUMNS);
        let n_vectors = width.div_ceil(LANES);
        let tile: Tile = match n_vectors {
            1 => tile::<12, 1>,
            2 => tile::<12, 2>,
            3 => tile::<6, 3>,
            _ => tile::<6, 4>,
        };
        for first in (0..n_rows).step_by(tile_rows(n_vectors)) {
            ahead.next();
            // SAFETY: the lengths were checked above. A tile reads `n_pairs` pairs of each of its rows, which are within
            // the padded left operand, and of each of its vectors, which are within the panel. It reads and writes the
            // rows of `out` below `n_rows` and the columns of `last_lanes`. `start` and `out` of `Start::There` are the
            // same initialised memory, which is borrowed exclusively.
            unsafe {
                let out = out.as_mut_ptr().add(first * n_columns + column).cast::<f32>();
                let (start, start_stride) = match start {
                    Start::Nothing => (std::ptr::null(), 0),
                    Start::There => (out.cast_const(), n_columns),
                    Start::Row(_) => (row.as_ptr().add(column), 0),
                };
                tile(Args {
                    left: left.pairs.as_ptr().add(first * left.row_stride),
                    row_stride: left.row_stride,
                    pair_stride: left.pair_stride,
                    right: right.pairs.as_ptr().add(panel * n_pairs * PANEL_COLUMNS),
                    n_pairs,
                    start,
                    start_stride,
                    out,
                    out_stride: n_columns,
                    n_rows: n_rows - first,
                    last_lanes: first_lanes(width - (n_vectors - 1) * LANES),
                });
            }
        }
    }
}

/// A function that computes one tile.
type Tile = unsafe fn(Args);

/// The arguments of a tile. Strides are counted in elements.
struct Args {
    left: *const u32,
    row_stride: usize,
    pair_stride: usize,
    right: *const u32,
    n_pairs: usize,
    /// The summand of the first row, or null.
    start: *const f32,
    start_stride: usize,
    out: *mut f32,
    out_stride: usize,
    /// The number of rows that are written, if there are fewer than in the tile.
    n_rows: usize,
    /// The lanes of the last vector that are written.
    last_lanes: __mmask16,
}

/// Computes a tile of `ROWS` rows and `VECTORS` vectors of columns. The loops over rows and vectors have constant lengths
/// and are unrolled, so all sums stay in registers.
///
/// # Safety
/// `n_pairs` pairs of `ROWS` rows of the left operand, and `n_pairs` rows of `VECTORS` vectors of the right operand, must
/// be readable. In the lanes of the tile, the first `n_rows` rows of `start` must be readable, unless it is null, and
/// those of `out` writable.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn tile<const ROWS: usize, const VECTORS: usize>(args: Args) {
    let lanes = |vector: usize| if vector + 1 == VECTORS { args.last_lanes } else { !0 };
    let mut sums = [[_mm512_setzero_ps(); VECTORS]; ROWS];
    if !args.start.is_null() {
        for (row, sums) in sums.iter_mut().enumerate() {
            for (vector, sum) in sums.iter_mut().enumerate() {
                if row < args.n_rows {
                    let at = row * args.start_stride + vector * LANES;
                    // SAFETY: the row exists, and the mask excludes the columns that do not.
                    *sum = unsafe { _mm512_maskz_loadu_ps(lanes(vector), args.start.add(at)) };
                }
            }
        }
    }
    for pair in 0..args.n_pairs {
        let mut factors = [_mm512_setzero_si512(); VECTORS];
        for (vector, factors) in factors.iter_mut().enumerate() {
            // SAFETY: `pair` is below `n_pairs` and `vector` below `VECTORS`.
            *factors =
                unsafe { _mm512_loadu_si512(args.right.add(pair * PANEL_COLUMNS + vector * LANES).cast()) };
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `pair` is below `n_pairs` and `row` below `ROWS`.
            let factor = unsafe { *args.left.add(row * args.row_stride + pair * args.pair_stride) };
            let factor = bf16s(_mm512_set1_epi32(factor.cast_signed()));
            for (sum, factors) in sums.iter_mut().zip(factors) {
                *sum = _mm512_dpbf16_ps(*sum, factor, bf16s(factors));
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (vector, sum) in sums.iter().enumerate() {
            if row < args.n_rows {
                let at = row * args.out_stride + vector * LANES;
                // SAFETY: the row exists, and the mask excludes the columns that do not.
                unsafe { _mm512_mask_storeu_ps(args.out.add(at), lanes(vector), *sum) };
            }
        }
    }
}

/// Returns the vector as bf16 values, without a conversion.
fn bf16s(words: __m512i) -> __m512bh {
    // SAFETY: both types have 64 bytes, and all bits are valid.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(words) }
}

/// Returns the mask of the first `n` lanes of a vector.
pub(super) fn first_lanes(n: usize) -> __mmask16 {
    ((1_u32 << n.min(LANES)) - 1) as __mmask16
}

use std::hint::black_box;

use kiln_mem::{prefetch, prefetch_range};
use pulp::{Arch, Simd, WithSimd};

use super::RowRate;
use super::timing::best_rate;

/// Numbers of a cache line.
const LINE: usize = 16;

/// Lines that are asked for ahead of their use.
const LINES_AHEAD: usize = 32;

/// Rows that are asked for ahead of their use: 8 of 512 bytes are 64 lines, more than a core fetches at once.
const ROWS_AHEAD: usize = 8;

/// Lines that a thread reads in a pass: some 30 ms.
const N_LINES: usize = 1 << 22;

/// Rows that a thread reads in a pass, and the rows that it writes: more bytes than most caches.
const N_ROWS: usize = 1 << 19;

/// Numbers of one piece of the array in small pages: the allocator gives huge ones from 1 MiB on.
const PIECE: usize = 1 << 17;

/// The array that is read: in huge pages, from the start of a line.
pub(super) struct Arrays {
    values: Vec<f32>,
}

/// The place of the `i`-th random draw among `n`.
#[inline(always)]
fn place(i: usize, n: usize) -> usize {
    let mixed = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 32) as usize * n) >> 32
}

/// Lines a second at random places of an array in pieces that the system's allocator gives, in pages of 4 KiB
/// where huge ones are on request only. The table of pieces, 64 KiB, stays in a cache.
pub(super) fn random_lines_small_pages(threads: &[usize], array_bytes: usize) -> Vec<f64> {
    let n_pieces = (array_bytes / 4 / PIECE).max(1);
    let pieces: Vec<Vec<f32>> = (0..n_pieces).map(|_| vec![1.0; PIECE]).collect();
    let lines_of_piece = PIECE / LINE;
    let at = |i: usize| {
        let line = place(i, n_pieces * lines_of_piece);
        (&pieces[line / lines_of_piece], line % lines_of_piece * LINE)
    };
    let pass = |thread: usize| {
        let first = thread * N_LINES;
        move || {
            let mut sum = 0.0;
            for i in first..first + N_LINES {
                let (ahead, place_ahead) = at(i + LINES_AHEAD);
                prefetch(ahead, place_ahead);
                let (piece, place) = at(i);
                sum += piece[place];
            }
            black_box(sum);
        }
    };
    threads.iter().map(|&n_threads| best_rate(n_threads, n_threads * N_LINES, pass)).collect()
}

impl Arrays {
    pub(super) fn new(array_bytes: usize) -> Self {
        Self { values: vec![1.0; array_bytes / 4] }
    }

    /// A thread's share, a whole number of lines.
    fn share(&self, thread: usize, n_threads: usize) -> &[f32] {
        let length = self.values.len() / n_threads / LINE * LINE;
        &self.values[thread * length..][..length]
    }

    /// Bytes a second, read in order.
    pub(super) fn stream_read(&self, n_threads: usize) -> f64 {
        let bytes = n_threads * size_of_val(self.share(0, n_threads));
        best_rate(n_threads, bytes, |thread| {
            let share = self.share(thread, n_threads);
            move || {
                black_box(Arch::new().dispatch(Sum(black_box(share))));
            }
        })
    }

    /// Bytes a second, read and written in order.
    pub(super) fn stream_copy(&self, n_threads: usize) -> f64 {
        // A quarter: the copy needs memory, too.
        let length = self.share(0, n_threads).len() / 4;
        best_rate(n_threads, 2 * n_threads * length * size_of::<f32>(), |thread| {
            let share = &self.share(thread, n_threads)[..length];
            let mut copy = vec![0.0; length];
            move || {
                copy.copy_from_slice(share);
                black_box(&copy);
            }
        })
    }

    /// Lines a second, at random places.
    pub(super) fn random_lines(&self, n_threads: usize) -> f64 {
        let n_lines = self.values.len() / LINE;
        best_rate(n_threads, n_threads * N_LINES, |thread| {
            let first = thread * N_LINES;
            move || {
                let mut sum = 0.0;
                for i in first..first + N_LINES {
                    prefetch(&self.values, place(i + LINES_AHEAD, n_lines) * LINE);
                    sum += self.values[place(i, n_lines) * LINE];
                }
                black_box(sum);
            }
        })
    }

    /// Bytes a second of rows at random places, copied to rows in order.
    pub(super) fn gather_rows(&self, n_threads: usize, dim: usize) -> RowRate {
        let row_bytes = dim * size_of::<f32>();
        let n_rows = N_ROWS.min(self.values.len() / dim);
        let bytes_per_second = best_rate(n_threads, 2 * n_threads * n_rows * row_bytes, |thread| {
            let mut gathered: Vec<f32> = Vec::with_capacity(n_rows * dim);
            move || {
                gathered.clear();
                self.for_each_row(thread, dim, n_rows, |row| gathered.extend_from_slice(row));
                black_box(&gathered);
            }
        });
        RowRate { row_bytes, bytes_per_second }
    }

    /// Bytes a second of rows at random places, added up.
    pub(super) fn read_rows(&self, n_threads: usize, dim: usize) -> RowRate {
        let row_bytes = dim * size_of::<f32>();
        let n_rows = N_ROWS.min(self.values.len() / dim);
        let bytes_per_second = best_rate(n_threads, n_threads * n_rows * row_bytes, |thread| {
            let mut total = vec![0.0_f32; dim];
            move || {
                let pass = RowSum { arrays: self, thread, n_rows, total: &mut total };
                Arch::new().dispatch(pass);
                black_box(&total);
            }
        });
        RowRate { row_bytes, bytes_per_second }
    }

    /// Calls `each` with random rows, others for each thread, asking for rows ahead of their use.
    #[inline(always)]
    fn for_each_row(&self, thread: usize, dim: usize, n_rows: usize, mut each: impl FnMut(&[f32])) {
        let n_places = self.values.len() / dim;
        let first = thread * n_rows;
        for i in first..first + n_rows {
            prefetch_range(&self.values, place(i + ROWS_AHEAD, n_places) * dim, dim);
            each(&self.values[place(i, n_places) * dim..][..dim]);
        }
    }
}

/// The sum of an array, by four vectors.
struct Sum<'a>(&'a [f32]);

impl WithSimd for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, _) = S::as_simd_f32s(self.0);
        let mut sums = [simd.splat_f32s(0.0); 4];
        for four in vectors.chunks_exact(4) {
            for (sum, vector) in sums.iter_mut().zip(four) {
                *sum = simd.add_f32s(*sum, *vector);
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum()
    }
}

/// One thread's random rows, added to one row.
struct RowSum<'a> {
    arrays: &'a Arrays,
    thread: usize,
    n_rows: usize,
    total: &'a mut [f32],
}

impl WithSimd for RowSum<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { arrays, thread, n_rows, total } = self;
        arrays.for_each_row(thread, total.len(), n_rows, |row| {
            for (total, value) in total.iter_mut().zip(row) {
                *total += value;
            }
        });
    }
}

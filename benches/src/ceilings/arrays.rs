use std::hint::black_box;

use kiln_mem::{copy_rows, prefetch, prefetch_far, prefetch_range, prefetch_range_far};
use pulp::{Arch, Simd, WithSimd};

use super::row_rate::RowRate;
use super::timing::{best_rate, per_pass};

/// The number of f32 values in a cache line.
const LINE: usize = 16;

/// The number of cache lines by which prefetches to the first-level cache precede the reads. Whether this distance or
/// [`LINES_FAR_AHEAD`] is faster depends on the cache or memory that contains the array; the ceiling is the larger
/// rate.
const LINES_AHEAD: usize = 32;

/// The number of cache lines by which prefetches to the second-level cache precede the reads. This cache supports more
/// outstanding requests than the first-level cache.
const LINES_FAR_AHEAD: usize = 64;

/// The number of rows by which prefetches to the first-level cache precede the reads.
const ROWS_AHEAD: usize = 8;

/// The number of rows by which prefetches to the second-level cache precede the reads.
const ROWS_FAR_AHEAD: usize = 48;

/// The number of cache lines that a thread reads in a pass.
const N_LINES: usize = per_pass(1 << 22);

/// The number of rows that a thread reads, and for copies also writes, in a pass. Together these rows exceed most
/// caches.
const N_ROWS: usize = per_pass(1 << 19);

/// The number of values in a piece of the array with small pages. A piece has 512 KiB, because the allocator uses huge
/// pages for buffers of at least 1 MiB.
const PIECE: usize = 1 << 17;

/// The array that is read, in huge pages and aligned to cache lines.
pub(super) struct Arrays {
    values: Vec<f32>,
}

/// A prefix of the array, to which random accesses are limited.
pub(super) struct Part<'a> {
    values: &'a [f32],
}

/// The cache into which rows are prefetched.
#[derive(Clone, Copy)]
enum Ask {
    Near,
    Far,
}

/// Returns the `i`-th random number below `n`.
#[inline(always)]
fn place(i: usize, n: usize) -> usize {
    let mixed = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed >> 32) as usize * n) >> 32
}

/// Measures random reads of an array with pages of 4 KiB, in cache lines per second. The array consists of small
/// pieces, for which the allocator does not request huge pages. The table of pieces fits into a cache.
pub(super) fn random_lines_small_pages(threads: &[usize], array_bytes: usize) -> Vec<f64> {
    let n_pieces = (array_bytes / 4 / PIECE).max(1);
    let pieces: Vec<Vec<f32>> = (0..n_pieces).map(|_| vec![1.0; PIECE]).collect();
    let lines_of_piece = PIECE / LINE;
    let at = |i: usize| {
        let line = place(i, n_pieces * lines_of_piece);
        (&pieces[line / lines_of_piece], line % lines_of_piece * LINE)
    };
    threads
        .iter()
        .map(|&n_threads| {
            best_rate(n_threads, n_threads * N_LINES, |thread: usize| {
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
            })
        })
        .collect()
}

impl Arrays {
    pub(super) fn new(array_bytes: usize) -> Self {
        Self { values: vec![1.0; array_bytes / 4] }
    }

    /// Returns a thread's share of the array. Its size is a multiple of a cache line.
    fn share(&self, thread: usize, n_threads: usize) -> &[f32] {
        let length = self.values.len() / n_threads / LINE * LINE;
        &self.values[thread * length..][..length]
    }

    /// Measures sequential reads, in bytes per second.
    pub(super) fn stream_read(&self, n_threads: usize) -> f64 {
        let bytes = n_threads * size_of_val(self.share(0, n_threads));
        best_rate(n_threads, bytes, |thread| {
            let share = self.share(thread, n_threads);
            move || {
                black_box(Arch::new().dispatch(Sum(black_box(share))));
            }
        })
    }

    /// Measures sequential copies, in bytes read and written per second.
    pub(super) fn stream_copy(&self, n_threads: usize) -> f64 {
        // Only a quarter of the array is copied, because the copy needs memory, too.
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

    /// Returns the first `array_bytes` bytes of the array.
    pub(super) fn first(&self, array_bytes: usize) -> Part<'_> {
        Part { values: &self.values[..array_bytes / size_of::<f32>()] }
    }
}

impl Part<'_> {
    /// Measures random reads, in cache lines per second.
    pub(super) fn random_lines(&self, n_threads: usize) -> f64 {
        let near = self.lines_asked(n_threads, LINES_AHEAD, prefetch);
        near.max(self.lines_asked(n_threads, LINES_FAR_AHEAD, prefetch_far))
    }

    fn lines_asked(&self, n_threads: usize, ahead: usize, ask: impl Fn(&[f32], usize) + Copy + Sync) -> f64 {
        let n_lines = self.values.len() / LINE;
        best_rate(n_threads, n_threads * N_LINES, |thread| {
            let first = thread * N_LINES;
            move || {
                let mut sum = 0.0;
                for i in first..first + N_LINES {
                    ask(self.values, place(i + ahead, n_lines) * LINE);
                    sum += self.values[place(i, n_lines) * LINE];
                }
                black_box(sum);
            }
        })
    }

    /// Measures copies of random rows to sequential rows, in bytes read and written per second: the faster of a plain
    /// loop and of the non-temporal copy that feature stores use.
    pub(super) fn gather_rows(&self, n_threads: usize, dim: usize) -> RowRate {
        let row_bytes = dim * size_of::<f32>();
        let n_places = self.values.len() / dim;
        let plain = best_rate(n_threads, 2 * n_threads * N_ROWS * row_bytes, |thread| {
            let mut gathered: Vec<f32> = Vec::with_capacity(N_ROWS * dim);
            move || {
                gathered.clear();
                self.for_each_row(thread, dim, Ask::Far, |row| gathered.extend_from_slice(row));
                black_box(&gathered);
            }
        });
        let streamed = best_rate(n_threads, 2 * n_threads * N_ROWS * row_bytes, |thread| {
            let first = thread * N_ROWS;
            let ids: Vec<u32> = (first..first + N_ROWS).map(|i| place(i, n_places) as u32).collect();
            let mut gathered = Vec::new();
            move || {
                copy_rows(self.values, dim, &ids, &mut gathered);
                black_box(&gathered);
            }
        });
        RowRate { row_bytes, bytes_per_second: plain.max(streamed) }
    }

    /// Measures sums of random rows, in bytes read per second.
    pub(super) fn read_rows(&self, n_threads: usize, dim: usize) -> RowRate {
        let row_bytes = dim * size_of::<f32>();
        let asked = |ask: Ask| {
            best_rate(n_threads, n_threads * N_ROWS * row_bytes, |thread| {
                let mut total = vec![0.0_f32; dim];
                move || {
                    Arch::new().dispatch(RowSum { part: self, thread, ask, total: &mut total });
                    black_box(&total);
                }
            })
        };
        RowRate { row_bytes, bytes_per_second: asked(Ask::Near).max(asked(Ask::Far)) }
    }

    /// Calls `each` with random rows, which differ between threads, and prefetches the rows in advance.
    #[inline(always)]
    fn for_each_row(&self, thread: usize, dim: usize, ask: Ask, mut each: impl FnMut(&[f32])) {
        let n_places = self.values.len() / dim;
        let first = thread * N_ROWS;
        for i in first..first + N_ROWS {
            match ask {
                Ask::Near => prefetch_range(self.values, place(i + ROWS_AHEAD, n_places) * dim, dim),
                Ask::Far => prefetch_range_far(self.values, place(i + ROWS_FAR_AHEAD, n_places) * dim, dim),
            }
            each(&self.values[place(i, n_places) * dim..][..dim]);
        }
    }
}

/// An operation that sums an array with four vector accumulators.
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

/// An operation that adds a thread's random rows to `total`.
struct RowSum<'a> {
    part: &'a Part<'a>,
    thread: usize,
    ask: Ask,
    total: &'a mut [f32],
}

impl WithSimd for RowSum<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { part, thread, ask, total } = self;
        part.for_each_row(thread, total.len(), ask, |row| {
            for (total, value) in total.iter_mut().zip(row) {
                *total += value;
            }
        });
    }
}

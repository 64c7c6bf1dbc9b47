//! Weighted sums of rows over edges, alone or with the row's own: aggregation and its adjoint.
//!
//! Inside a row and column the additions follow the order of the edges, and the own row comes last.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::cpu::fill::{Fill, Piece, fill_rows};
use crate::cpu::rows::{Rows, Segments};

/// Bytes from which on an output goes past the caches: it would fill them, and a line that is written whole
/// need not be read first. Gradients of 128 or 256 columns and the pass that reads them next: of 31 MB 3.3 ms
/// instead of 3.1, of 62 MB 7 ms instead of 10, of 155 MB 18 ms instead of 30.
const STREAM_BYTES: usize = 1 << 25;

/// Sums over each row's items of the items' rows of `x`, each multiplied by what `factor` gives for its position and the
/// item. They are described here and made by [`Sum::run`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum<'a, F> {
    pub(super) segments: Segments<'a>,
    pub(super) x: Rows<'a>,
    pub(super) factor: F,
    /// Whether each sum is divided by its number of items.
    pub(super) mean: bool,
    pub(super) own: Own<'a>,
}

/// Bytes of items' rows that a core's second cache may not keep while one row is summed.
const HUB_BYTES: usize = 1 << 19;

/// What becomes of each row's sum.
#[derive(Debug, Clone, Copy)]
pub(super) enum Own<'a> {
    /// It is the result.
    Alone,
    /// It stands to the right of the row of these that has its number.
    Beside(Rows<'a>),
    /// The row of these that has its number is added to each of the first `n_rows` sums, times `weight`.
    Plus { rows: Rows<'a>, n_rows: usize, weight: f32 },
}

impl<'a, F: Fn(usize, usize) -> f32 + Copy + Sync> Sum<'a, F> {
    /// Sums that are the result as they are.
    pub(super) fn new(segments: Segments<'a>, x: Rows<'a>, factor: F) -> Self {
        Self { segments, x, factor, mean: false, own: Own::Alone }
    }
}

impl<F: Fn(usize, usize) -> f32 + Copy + Sync> Sum<'_, F> {
    /// The rows, one after the other: as wide as the items', or twice that with the own rows beside.
    pub(super) fn run(&self) -> Vec<f32> {
        let n_rows = self.segments.indptr.len() - 1;
        let is_large = STREAM_BYTES <= n_rows * self.width() * size_of::<f32>();
        let streams = is_large && self.width().is_multiple_of(4);
        fill_rows(self.segments.indptr, self.width(), &SumRows { sum: *self, streams }).0
    }

    /// Columns of a row of the result.
    pub(super) fn width(&self) -> usize {
        self.n_before() + self.x.width
    }

    /// Columns of a row before the sum's.
    fn n_before(&self) -> usize {
        match self.own {
            Own::Beside(rows) => rows.width,
            Own::Alone | Own::Plus { .. } => 0,
        }
    }
}

/// A [`Sum`] on its way into memory.
#[derive(Clone, Copy)]
struct SumRows<'a, F> {
    sum: Sum<'a, F>,
    /// Whether what is written goes past the caches.
    streams: bool,
}

// SAFETY: `fill` hands each row's places to `copy_own` and `add`, whose columns end where the other's start; and
// both write all places that they are given.
unsafe impl<F: Fn(usize, usize) -> f32 + Copy + Sync> Fill for SumRows<'_, F> {
    type One = f32;
    type Other = ();

    #[inline(always)]
    fn fill(&self, piece: &Piece, out: &mut [MaybeUninit<f32>], _: &mut [MaybeUninit<()>]) {
        // A copy that nothing else can refer to: what is in it stays in registers while the output is written.
        let this = *self;
        let n_before = this.sum.n_before();
        let columns = &piece.columns;
        let n_own = n_before.clamp(columns.start, columns.end) - columns.start;
        // Dropped at the end, also of a panic: the memory may be anybody's next.
        let _fence = this.streams.then_some(Fence);
        let summed = columns.start.max(n_before) - n_before..columns.end.max(n_before) - n_before;
        for (row, out) in piece.rows.clone().zip(out.chunks_exact_mut(columns.len())) {
            let (own, sum) = out.split_at_mut(n_own);
            this.copy_own(row, columns.start, own);
            this.add(row, summed.clone(), sum);
        }
    }
}

impl<F: Fn(usize, usize) -> f32 + Copy> SumRows<'_, F> {
    /// Writes a part of the own row that stands beside the sum, from a column on.
    #[inline(always)]
    fn copy_own(&self, row: usize, from: usize, out: &mut [MaybeUninit<f32>]) {
        if let Own::Beside(rows) = self.sum.own {
            out.write_copy_of_slice(rows.row(row, &(from..from + out.len())));
        }
    }

    /// Writes some columns of a row's sum, the most that fit at a time.
    #[inline(always)]
    fn add(&self, row: usize, columns: Range<usize>, out: &mut [MaybeUninit<f32>]) {
        let mut n_done = 0;
        // The first columns ask for the later ones of an item's row, too. Of a row with very many edges they have
        // left the caches again when their turn comes, and are asked for once more.
        let mut asked = columns.clone();
        let is_hub = HUB_BYTES <= self.sum.segments.of(row).len() * size_of_val(out);
        macro_rules! add_columns {
            ($($n:literal)*) => {$(
                while $n <= out.len() - n_done {
                    let sum: [f32; $n] = self.sum_of(row, columns.start + n_done, &asked);
                    write(&mut out[n_done..n_done + $n], &sum, self.streams);
                    n_done += $n;
                    asked = if is_hub { columns.start + n_done..columns.end } else { 0..0 };
                }
            )*};
        }
        add_columns!(128 64 32 16);
        if n_done == out.len() {
            return;
        }
        if n_done == 0 {
            add_columns!(8 4 2 1);
            return;
        }
        // A last few columns together with some that are done: one more way over the edges, not up to four.
        let sum: [f32; 16] = self.sum_of(row, columns.end - 16, &asked);
        let n_left = out.len() - n_done;
        write(&mut out[n_done..], &sum[16 - n_left..], self.streams);
    }

    /// The sum of a row's items in `N` columns. They stay in registers over all edges where the processor has
    /// enough of them: 38 ms for the mean of 888,000 edges by 128 columns, where adding each edge to the output
    /// in memory took 48 with the least instructions; reading the rows alone takes 38.
    #[inline(always)]
    fn sum_of<const N: usize>(&self, row: usize, column: usize, asked: &Range<usize>) -> [f32; N] {
        let Sum { segments, x, factor, mean, own } = self.sum;
        let edges = segments.of(row);
        let mut sum = [0.0; N];
        for position in edges.clone() {
            x.ask_ahead(segments.items, position, asked);
            let item = segments.items[position] as usize;
            add_scaled(&mut sum, factor(position, item), x.chunk(item, column));
        }
        if mean && 1 < edges.len() {
            let degree = edges.len() as f32;
            sum.iter_mut().for_each(|sum| *sum /= degree);
        }
        match own {
            Own::Plus { rows, n_rows, weight } if row < n_rows => {
                add_scaled(&mut sum, weight, rows.chunk(row, column));
            }
            _ => {}
        }
        sum
    }
}

#[inline(always)]
fn add_scaled<const N: usize>(sum: &mut [f32; N], factor: f32, values: &[f32; N]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

/// Writes all places, past the caches if asked and where they start at a multiple of 16 bytes.
#[inline(always)]
fn write(places: &mut [MaybeUninit<f32>], values: &[f32], streams: bool) {
    #[cfg(target_arch = "x86_64")]
    if streams && places.len().is_multiple_of(4) && places.as_ptr().addr().is_multiple_of(16) {
        for (place, four) in places.chunks_exact_mut(4).zip(values.chunks_exact(4)) {
            use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
            // SAFETY: both are four floats long, and the place starts at a multiple of 16 bytes.
            unsafe { _mm_stream_ps(place.as_mut_ptr().cast(), _mm_loadu_ps(four.as_ptr())) };
        }
        return;
    }
    let _ = streams;
    places.write_copy_of_slice(values);
}

/// When it is dropped, what went past the caches comes before whatever this thread does next, as other writes do.
struct Fence;

impl Drop for Fence {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every processor of this kind has the instruction.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::fill::Filling;
    use crate::cpu::vector;

    /// Rows of 0, 3, 0, 1, 7 and 2 items out of nine, and one that has them all twice.
    const INDPTR: [i32; 8] = [0, 0, 3, 3, 4, 11, 13, 31];
    const ITEMS: [i32; 31] =
        [8, 0, 3, 5, 1, 1, 7, 2, 0, 4, 6, 3, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    fn numbers(n: usize) -> Vec<f32> {
        (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 8_388_608.0 - 1.0).collect()
    }

    /// The sum as one would write it down, column by column.
    fn written_down<F: Fn(usize, usize) -> f32>(sum: &Sum<'_, F>, row: usize, column: usize) -> f32 {
        let edges = sum.segments.of(row);
        let mut total = 0.0;
        for edge in edges.clone() {
            let item = sum.segments.items[edge] as usize;
            total += (sum.factor)(edge, item) * sum.x.chunk::<1>(item, column)[0];
        }
        if sum.mean && !edges.is_empty() {
            total /= edges.len() as f32;
        }
        match sum.own {
            Own::Plus { rows, n_rows, weight } if row < n_rows => {
                total + weight * rows.chunk::<1>(row, column)[0]
            }
            _ => total,
        }
    }

    /// The bits of a sum by each set of instructions, past the caches or not.
    fn check<F: Fn(usize, usize) -> f32 + Copy + Sync>(sum: &Sum<'_, F>) {
        let (n_rows, width, n_before) = (INDPTR.len() - 1, sum.width(), sum.n_before());
        let mut expected = Vec::new();
        for row in 0..n_rows {
            if let Own::Beside(rows) = sum.own {
                expected.extend_from_slice(rows.row(row, &(0..n_before)));
            }
            expected.extend((0..sum.x.width).map(|column| written_down(sum, row, column)));
        }
        for streams in [false, true] {
            let mut results = Vec::new();
            let piece = Piece { rows: 0..n_rows, columns: 0..width };
            let fill = SumRows { sum: *sum, streams };
            let mut outs: Vec<Vec<MaybeUninit<f32>>> = vec![vec![MaybeUninit::new(9.0); n_rows * width]; 3];
            let mut none = [(); 3].map(|()| vec![MaybeUninit::new(()); n_rows * width]);
            let mut places = outs.iter_mut().zip(&mut none);
            let mut n_sets = 0;
            vector::run_with_each(|| {
                n_sets += 1;
                let (one, other) = places.next().expect("there should be at most three sets");
                Filling { fill: &fill, piece: &piece, one, other }
            });
            for out in &outs[..n_sets] {
                // SAFETY: all places were initialised before they were given out.
                results.push(out.iter().map(|value| unsafe { value.assume_init() }).collect::<Vec<f32>>());
            }
            for result in results {
                assert!(result == expected, "width {}, streams {streams}, {:?}", sum.x.width, sum.own);
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_sum_as_written_down() {
        let weights = numbers(ITEMS.len());
        for d in (1..40).chain([47, 64, 100, 128, 129, 256, 602]) {
            let (x, pair) = (numbers(9 * d), numbers(9 * 2 * d));
            let segments = Segments { indptr: &INDPTR, items: &ITEMS };
            let (rows, right) = (Rows::new(&x, 0, d, d), Rows::new(&pair, d, d, 2 * d));
            let left = Rows::new(&pair, 0, d, 2 * d);
            for own in [Own::Alone, Own::Beside(rows), Own::Plus { rows: left, n_rows: 4, weight: 0.3 }] {
                check(&Sum { segments, x: rows, factor: |_, _| 1.0, mean: true, own });
                check(&Sum { segments, x: right, factor: |edge: usize, _| weights[edge], mean: false, own });
            }
        }
    }
}

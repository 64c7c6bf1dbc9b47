//! Weighted sums of rows over edges, with or without the own row: the aggregation and its adjoint.
//!
//! The additions of a row and column follow the order of the edges, and the own row comes last.

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::cpu::columns::{Columns, Whole};
use crate::cpu::fill::{Fill, Piece, fill_rows, fill_rows_alone};
use crate::cpu::row_value::RowValue;
use crate::cpu::rows::{Rows, Segments};
use crate::cpu::term::{Term, Values};

/// The minimum size in bytes of an output that is written with non-temporal stores, which bypass the caches. With
/// normal stores, such an output would evict everything else from them, and a cache line that is written as a whole
/// need not be read first. Below this size, the next reader benefits from the caches.
const STREAM_BYTES: usize = 1 << 25;

/// A description of sums, which [`Sum::run`] computes: for each row, the sum over its items of the item's row of `x`
/// times `factor(position, item, weight)`, where `weight` is the number of a weight of the item. [`Columns`] says which
/// columns each weight belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum<'a, F, C = Whole, T = Values, E = f32> {
    pub(super) segments: Segments<'a>,
    pub(super) x: Rows<'a, E>,
    pub(super) factor: F,
    pub(super) columns: C,
    /// What an item's row contributes, before the multiplication by the factor.
    pub(super) term: T,
    /// True if each sum is divided by its number of items.
    pub(super) mean: bool,
    pub(super) own: Own<'a, E>,
}

/// The factor of items without weights. The loops of a sum are compiled for each type of factor: sums without weights share this
/// one, and sums with a weight per edge that of [`weight_of_edge`].
#[inline(always)]
pub(super) fn one(_position: usize, _item: usize, _weight: usize) -> f32 {
    1.0
}

/// Returns the factor of items at the positions of edges, `[n_edges]`.
#[inline(always)]
pub(super) fn weight_of_edge(weights: &[f32]) -> impl Fn(usize, usize, usize) -> f32 + Copy + Sync {
    move |edge, _, _| weights[edge]
}

/// The minimum number of bytes of a hub's item rows. A core's L2 cache may be too small to hold them until the hub's
/// sum is complete.
const HUB_BYTES: usize = 1 << 19;

/// The use of the own rows in the result.
#[derive(Debug, Clone, Copy)]
pub(super) enum Own<'a, E = f32> {
    /// The result is the sum alone.
    Alone,
    /// The result is the own row followed by the sum.
    Beside(Rows<'a, E>),
    /// The same, with the row `items[row]` as the own row of `row`.
    BesideOf { rows: Rows<'a, E>, items: &'a [i32] },
    /// The own row times `weight` is added to each of the first `n_rows` sums.
    Plus { rows: Rows<'a, E>, n_rows: usize, weight: f32 },
}

impl<'a, F: Fn(usize, usize, usize) -> f32 + Copy + Sync, E: RowValue> Sum<'a, F, Whole, Values, E> {
    /// Describes sums of whole rows without own rows, which are not divided by the number of items.
    pub(super) fn new(segments: Segments<'a>, x: Rows<'a, E>, factor: F) -> Self {
        Self { segments, x, factor, columns: Whole, term: Values, mean: false, own: Own::Alone }
    }
}

impl<'a, F, C, T, E> Sum<'a, F, C, T, E> {
    /// Replaces the columns that each weight belongs to.
    pub(super) fn with_columns<D>(self, columns: D) -> Sum<'a, F, D, T, E> {
        let Self { segments, x, factor, term, mean, own, .. } = self;
        Sum { segments, x, factor, columns, term, mean, own }
    }

    /// Replaces the terms.
    pub(super) fn with_term<U>(self, term: U) -> Sum<'a, F, C, U, E> {
        let Self { segments, x, factor, columns, mean, own, .. } = self;
        Sum { segments, x, factor, columns, term, mean, own }
    }
}

impl<F: Fn(usize, usize, usize) -> f32 + Copy + Sync, C: Columns, T: Term, E: RowValue> Sum<'_, F, C, T, E> {
    /// Computes the rows of the result, in row-major order with [`Sum::width`] columns.
    pub(super) fn run(&self) -> Vec<f32> {
        fill_rows(self.segments.indptr, self.width(), &self.rows()).0
    }

    /// Same as [`Sum::run`], but in the calling thread alone.
    pub(super) fn run_alone(&self) -> Vec<f32> {
        fill_rows_alone(self.segments.indptr, self.width(), &self.rows()).0
    }

    fn rows(&self) -> SumRows<'_, F, C, T, E> {
        let n_rows = self.segments.indptr.len() - 1;
        let is_large = STREAM_BYTES <= n_rows * self.width() * size_of::<f32>();
        SumRows { sum: *self, streams: is_large && self.width().is_multiple_of(4) }
    }

    /// Returns the number of columns of the result: those of the sums, and those of the own rows if the own rows are in
    /// front of the sums.
    pub(super) fn width(&self) -> usize {
        self.n_before() + self.columns.n_ranges() * self.columns.range_width(self.x.width)
    }

    /// Returns the number of columns in front of the sum's columns.
    fn n_before(&self) -> usize {
        match self.own {
            Own::Beside(rows) | Own::BesideOf { rows, .. } => rows.width,
            Own::Alone | Own::Plus { .. } => 0,
        }
    }
}

/// The loop that computes a [`Sum`].
#[derive(Clone, Copy)]
struct SumRows<'a, F, C, T, E> {
    sum: Sum<'a, F, C, T, E>,
    /// True if the output is written with stores that bypass the caches.
    streams: bool,
}

// SAFETY: `fill` splits the elements of each row between `copy_own` and the calls of `add`, and both write all elements
// that they are given.
unsafe impl<F: Fn(usize, usize, usize) -> f32 + Copy + Sync, C: Columns, T: Term, E: RowValue> Fill
    for SumRows<'_, F, C, T, E>
{
    type One = f32;
    type Other = ();

    #[inline(always)]
    fn fill(&self, piece: &Piece, out: &mut [MaybeUninit<f32>], _: &mut [MaybeUninit<()>]) {
        // The compiler can keep the fields of a local copy in registers while the output is written.
        let this = *self;
        let n_before = this.sum.n_before();
        let columns = &piece.columns;
        let n_own = n_before.clamp(columns.start, columns.end) - columns.start;
        // The fence is dropped at the end of the function, also on a panic, because another thread may read or reuse
        // the memory next.
        let _fence = this.streams.then_some(Fence);
        let summed = columns.start.max(n_before) - n_before..columns.end.max(n_before) - n_before;
        for (row, out) in piece.rows.clone().zip(out.chunks_exact_mut(columns.len())) {
            let (own, sums) = out.split_at_mut(n_own);
            this.copy_own(row, columns.start, own);
            this.add_ranges(row, summed.clone(), sums);
        }
    }
}

impl<F: Fn(usize, usize, usize) -> f32 + Copy, C: Columns, T: Term, E: RowValue> SumRows<'_, F, C, T, E> {
    /// Writes the columns of the own row from `from` on, if own rows are in front of the sums.
    #[inline(always)]
    fn copy_own(&self, row: usize, from: usize, out: &mut [MaybeUninit<f32>]) {
        let columns = from..from + out.len();
        let own = match self.sum.own {
            Own::Beside(rows) => rows.row(row, &columns),
            Own::BesideOf { rows, items } => {
                rows.ask_ahead(items, row, &columns);
                rows.row(items[row] as usize, &columns)
            }
            Own::Alone | Own::Plus { .. } => return,
        };
        for (place, value) in out.iter_mut().zip(own) {
            place.write(value.widened());
        }
    }

    /// Writes some columns of a row's sums, range after range.
    #[inline(always)]
    fn add_ranges(&self, row: usize, columns: Range<usize>, out: &mut [MaybeUninit<f32>]) {
        let Sum { x, columns: layout, .. } = self.sum;
        let width = layout.range_width(x.width);
        let mut rest = out;
        for range in 0..layout.n_ranges() {
            let start = range * width;
            let end = (range + 1) * width;
            let of_range = columns.start.clamp(start, end) - start..columns.end.clamp(start, end) - start;
            let (out, after) = rest.split_at_mut(of_range.len());
            let first = layout.first_column(range, x.width);
            self.add(row, range, first + of_range.start..first + of_range.end, out);
            rest = after;
        }
    }

    /// Writes some columns of a range of a row's sums, in chunks of columns as wide as possible. `columns` are columns of
    /// `x`.
    #[inline(always)]
    fn add(&self, row: usize, range: usize, columns: Range<usize>, out: &mut [MaybeUninit<f32>]) {
        let mut n_done = 0;
        // The first chunk also prefetches the later columns of each item's row. If a row has very many edges, these
        // columns have been evicted by the time that they are added, and are prefetched once more.
        let mut asked = self.sum.columns.prefetched(range, &columns, self.sum.x.width);
        let is_hub = HUB_BYTES <= self.sum.segments.of(row).len() * size_of_val(out);
        macro_rules! add_columns {
            ($($n:literal)*) => {$(
                while $n <= out.len() - n_done {
                    let sum: [f32; $n] = self.sum_of(row, range, columns.start + n_done, &asked);
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
        // The last few columns are computed together with some finished columns. This takes one more pass over the
        // edges, instead of up to four.
        let sum: [f32; 16] = self.sum_of(row, range, columns.end - 16, &asked);
        let n_left = out.len() - n_done;
        write(&mut out[n_done..], &sum[16 - n_left..], self.streams);
    }

    /// The sum of a row's items in `N` columns of a range. The partial sums stay in registers over all edges if the CPU
    /// has enough of them, which is faster than adding each edge to the output in memory.
    #[inline(always)]
    fn sum_of<const N: usize>(
        &self,
        row: usize,
        range: usize,
        column: usize,
        asked: &Range<usize>,
    ) -> [f32; N] {
        let Sum { segments, x, factor, columns, term: of, mean, own } = self.sum;
        let edges = segments.of(row);
        let width = columns.range_width(x.width);
        let mut sum = [0.0; N];
        for position in edges.clone() {
            x.ask_ahead(segments.items, position, asked);
            let item = segments.items[position] as usize;
            for term in 0..columns.n_terms() {
                let factor = factor(position, item, range + term);
                let values = E::all_widened(x.chunk(item, column + term * width));
                add_scaled(&mut sum, factor, &of.of(row, position, column, &values));
            }
        }
        if mean && 1 < edges.len() {
            let degree = edges.len() as f32;
            sum.iter_mut().for_each(|sum| *sum /= degree);
        }
        match own {
            Own::Plus { rows, n_rows, weight } if row < n_rows => {
                add_scaled(&mut sum, weight, &E::all_widened(rows.chunk(row, column)));
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

/// Writes all elements. With `streams`, the stores bypass the caches if the slice is aligned to 16 bytes and its length
/// is a multiple of 4.
#[inline(always)]
fn write(places: &mut [MaybeUninit<f32>], values: &[f32], streams: bool) {
    #[cfg(target_arch = "x86_64")]
    if streams && places.len().is_multiple_of(4) && places.as_ptr().addr().is_multiple_of(16) {
        for (place, four) in places.chunks_exact_mut(4).zip(values.chunks_exact(4)) {
            use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
            // SAFETY: both slices have four floats, and `place` is aligned to 16 bytes.
            unsafe { _mm_stream_ps(place.as_mut_ptr().cast(), _mm_loadu_ps(four.as_ptr())) };
        }
        return;
    }
    let _ = streams;
    places.write_copy_of_slice(values);
}

/// A guard that orders the non-temporal stores before all later stores of this thread when it is dropped.
struct Fence;

impl Drop for Fence {
    #[inline(always)]
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 CPU supports the instruction.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

#[cfg(test)]
mod tests;

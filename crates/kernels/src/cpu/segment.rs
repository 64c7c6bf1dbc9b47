//! The loops over edges, on plain slices. Inside a row the additions follow the order of the edges, so
//! results have the same bits for any number of threads.

use std::mem::MaybeUninit;
use std::ops::Range;

use kiln_mem::prefetch_range;
use rayon::prelude::*;

use crate::cpu::fill::{Fill, Piece, fill_rows, initialised};

/// Bytes of rows that are asked for from memory ahead of their use, and the fewest and most edges that this is:
/// enough to wait for many lines at once, and not so much that the first are gone from the nearest cache. At 128
/// columns 3 KB take 38 ms where 1.5 KB take 39 and 6 KB take 42; wide and narrow rows care less.
const AHEAD_BYTES: usize = 3 << 10;
const AHEAD_EDGES: Range<usize> = 2..32;

/// Edges of one task where every edge has its own output.
const EDGES_PER_TASK: usize = 4096;

/// A compressed adjacency: row `r` has the items `indptr[r]..indptr[r + 1]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segments<'a> {
    pub(super) indptr: &'a [i32],
    pub(super) items: &'a [i32],
}

impl Segments<'_> {
    #[inline(always)]
    pub(super) fn of(&self, row: usize) -> Range<usize> {
        self.indptr[row] as usize..self.indptr[row + 1] as usize
    }
}

/// Some columns of the rows of a matrix: `width` from the column `first` on, of `stride` that a row has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    values: &'a [f32],
    first: usize,
    pub(super) width: usize,
    stride: usize,
    /// Edges that a row is asked for ahead of its use.
    ahead: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn new(values: &'a [f32], first: usize, width: usize, stride: usize) -> Self {
        let row_bytes = width.max(1) * size_of::<f32>();
        let ahead = (AHEAD_BYTES / row_bytes).clamp(AHEAD_EDGES.start, AHEAD_EDGES.end);
        Self { values, first, width, stride, ahead }
    }

    #[inline(always)]
    pub(super) fn row(&self, row: usize, columns: &Range<usize>) -> &'a [f32] {
        let start = row * self.stride + self.first;
        &self.values[start + columns.start..start + columns.end]
    }

    /// `N` values of a row, from a column on.
    #[inline(always)]
    pub(super) fn chunk<const N: usize>(&self, row: usize, column: usize) -> &'a [f32; N] {
        let start = row * self.stride + self.first + column;
        self.values[start..start + N].first_chunk().expect("the slice should be as long as it was cut")
    }

    /// Asks for the row of the item that comes a few edges later, if there is one.
    #[inline(always)]
    pub(super) fn ask_ahead(&self, items: &[i32], position: usize, columns: &Range<usize>) {
        if let Some(&item) = items.get(position + self.ahead) {
            let start = item as usize * self.stride + self.first;
            prefetch_range(self.values, start + columns.start, columns.len());
        }
    }
}

/// Each row's largest value in each column over its items' rows of `x`, 0 without items.
pub(super) fn max(segments: Segments<'_>, x: Rows<'_>) -> Vec<f32> {
    fill_rows(segments.indptr, x.width, &Max { segments, x }).0
}

struct Max<'a> {
    segments: Segments<'a>,
    x: Rows<'a>,
}

// SAFETY: `fill` initialises each row's places.
unsafe impl Fill for Max<'_> {
    type One = f32;
    type Other = ();

    #[inline(always)]
    fn fill(&self, piece: &Piece, out: &mut [MaybeUninit<f32>], _: &mut [MaybeUninit<()>]) {
        let Self { segments, x } = self;
        for (row, out) in piece.rows.clone().zip(out.chunks_exact_mut(piece.columns.len())) {
            let out = initialised(out, 0.0);
            let edges = segments.of(row);
            for position in edges.clone() {
                x.ask_ahead(segments.items, position, &piece.columns);
                let values = x.row(segments.items[position] as usize, &piece.columns);
                if position == edges.start {
                    out.copy_from_slice(values);
                    continue;
                }
                for (best, &value) in out.iter_mut().zip(values) {
                    *best = if beats(value, *best) { value } else { *best };
                }
            }
        }
    }
}

/// [`max`], and the position of the item that each value came from, -1 without items.
pub(super) fn argmax(segments: Segments<'_>, x: Rows<'_>) -> (Vec<f32>, Vec<i32>) {
    fill_rows(segments.indptr, x.width, &ArgMax { segments, x })
}

struct ArgMax<'a> {
    segments: Segments<'a>,
    x: Rows<'a>,
}

// SAFETY: `fill` initialises each row's places in both arrays.
unsafe impl Fill for ArgMax<'_> {
    type One = f32;
    type Other = i32;

    #[inline(always)]
    fn fill(&self, piece: &Piece, out: &mut [MaybeUninit<f32>], from: &mut [MaybeUninit<i32>]) {
        let (Self { segments, x }, width) = (self, piece.columns.len());
        let rows = out.chunks_exact_mut(width).zip(from.chunks_exact_mut(width));
        for (row, (out, from)) in piece.rows.clone().zip(rows) {
            let (out, from) = (initialised(out, 0.0), initialised(from, -1));
            let edges = segments.of(row);
            for position in edges.clone() {
                x.ask_ahead(segments.items, position, &piece.columns);
                let values = x.row(segments.items[position] as usize, &piece.columns);
                if position == edges.start {
                    out.copy_from_slice(values);
                    from.fill(position as i32);
                    continue;
                }
                for ((best, from), &value) in out.iter_mut().zip(from.iter_mut()).zip(values) {
                    let better = beats(value, *best);
                    *best = if better { value } else { *best };
                    *from = if better { position as i32 } else { *from };
                }
            }
        }
    }
}

/// A later edge must be larger to win. A value that is not a number always wins, so that it is not lost.
#[inline(always)]
fn beats(value: f32, best: f32) -> bool {
    best < value || value.is_nan()
}

/// The adjoint of [`argmax`]: `by_source` lists for each source its destinations, `edges` the position
/// of each of these edges in the block, and `from` says which edge each value of `grad` came from.
pub(super) fn max_adjoint(by_source: Segments<'_>, edges: &[u32], from: &[i32], grad: Rows<'_>) -> Vec<f32> {
    fill_rows(by_source.indptr, grad.width, &MaxAdjoint { by_source, edges, from, grad }).0
}

struct MaxAdjoint<'a> {
    by_source: Segments<'a>,
    edges: &'a [u32],
    from: &'a [i32],
    grad: Rows<'a>,
}

// SAFETY: `fill` initialises each row's places.
unsafe impl Fill for MaxAdjoint<'_> {
    type One = f32;
    type Other = ();

    #[inline(always)]
    fn fill(&self, piece: &Piece, out: &mut [MaybeUninit<f32>], _: &mut [MaybeUninit<()>]) {
        let Self { by_source, edges, from, grad } = self;
        let columns = &piece.columns;
        for (row, out) in piece.rows.clone().zip(out.chunks_exact_mut(columns.len())) {
            let out = initialised(out, 0.0);
            for position in by_source.of(row) {
                grad.ask_ahead(by_source.items, position, columns);
                let (dst, edge) = (by_source.items[position] as usize, edges[position] as i32);
                let from = &from[dst * grad.width + columns.start..dst * grad.width + columns.end];
                for ((sum, value), &from) in out.iter_mut().zip(grad.row(dst, columns)).zip(from) {
                    *sum += if from == edge { *value } else { 0.0 };
                }
            }
        }
    }
}

/// Each edge's dot product of its item's row of `x` with its own row of `y`.
pub(super) fn edge_dots(segments: Segments<'_>, x: Rows<'_>, y: Rows<'_>) -> Vec<f32> {
    let mut dots = vec![0.0; segments.items.len()];
    let columns = 0..x.width;
    dots.par_chunks_mut(EDGES_PER_TASK).enumerate().for_each(|(task, dots)| {
        let first = task * EDGES_PER_TASK;
        let mut row = segments.indptr.partition_point(|&start| start as usize <= first) - 1;
        for (position, out) in (first..).zip(dots) {
            while segments.indptr[row + 1] as usize <= position {
                row += 1;
            }
            x.ask_ahead(segments.items, position, &columns);
            *out = dot(x.row(segments.items[position] as usize, &columns), y.row(row, &columns));
        }
    });
    dots
}

/// The dot product, in sixteen partial sums that are added in a fixed order.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    let (ones, others) = (one.chunks_exact(16), other.chunks_exact(16));
    let rest: f32 = ones.remainder().iter().zip(others.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in ones.zip(others) {
        for lane in 0..16 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

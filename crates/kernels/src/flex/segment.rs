//! The loops over edges, on plain slices. Inside a row the additions follow the order of the edges, so
//! results have the same bits for any number of threads.

use std::ops::Range;

use kiln_mem::prefetch_range;
use rayon::prelude::*;

use crate::flex::fill::fill_rows;

/// Edges that a row is asked for from memory ahead of its use.
const AHEAD: usize = 6;

/// Edges of one task where every edge has its own output.
const EDGES_PER_TASK: usize = 4096;

/// A compressed adjacency: row `r` has the items `indptr[r]..indptr[r + 1]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segments<'a> {
    pub(super) indptr: &'a [i32],
    pub(super) items: &'a [i32],
}

impl Segments<'_> {
    pub(super) fn of(&self, row: usize) -> Range<usize> {
        self.indptr[row] as usize..self.indptr[row + 1] as usize
    }
}

/// Some columns of the rows of a matrix: `width` from the column `first` on, of `stride` that a row has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) values: &'a [f32],
    pub(super) first: usize,
    pub(super) width: usize,
    pub(super) stride: usize,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn row(&self, row: usize, columns: &Range<usize>) -> &'a [f32] {
        let start = row * self.stride + self.first;
        &self.values[start + columns.start..start + columns.end]
    }

    /// Asks for the row of the item that comes a few edges later, if there is one.
    #[inline]
    pub(super) fn ask_ahead(&self, items: &[i32], position: usize, columns: &Range<usize>) {
        if let Some(&item) = items.get(position + AHEAD) {
            let start = item as usize * self.stride + self.first;
            prefetch_range(self.values, start + columns.start, columns.len());
        }
    }
}

/// Each row's largest value in each column over its items' rows of `x`, 0 without items.
pub(super) fn max(segments: Segments<'_>, x: Rows<'_>) -> Vec<f32> {
    let body = |row: usize, columns: Range<usize>, out: &mut [f32], _: &mut [()]| {
        let edges = segments.of(row);
        for position in edges.clone() {
            x.ask_ahead(segments.items, position, &columns);
            let values = x.row(segments.items[position] as usize, &columns);
            if position == edges.start {
                out.copy_from_slice(values);
                continue;
            }
            for (best, &value) in out.iter_mut().zip(values) {
                *best = if beats(value, *best) { value } else { *best };
            }
        }
    };
    fill_rows(segments.indptr, x.width, (0.0, ()), body).0
}

/// [`max`], and the position of the item that each value came from, -1 without items.
pub(super) fn argmax(segments: Segments<'_>, x: Rows<'_>) -> (Vec<f32>, Vec<i32>) {
    let body = |row: usize, columns: Range<usize>, out: &mut [f32], from: &mut [i32]| {
        let edges = segments.of(row);
        for position in edges.clone() {
            x.ask_ahead(segments.items, position, &columns);
            let values = x.row(segments.items[position] as usize, &columns);
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
    };
    fill_rows(segments.indptr, x.width, (0.0, -1), body)
}

/// A later edge must be larger to win. A value that is not a number always wins, so that it is not lost.
#[inline]
fn beats(value: f32, best: f32) -> bool {
    best < value || value.is_nan()
}

/// The adjoint of [`argmax`]: `by_source` lists for each source its destinations, `edges` the position
/// of each of these edges in the block, and `from` says which edge each value of `grad` came from.
pub(super) fn max_adjoint(by_source: Segments<'_>, edges: &[i32], from: &[i32], grad: Rows<'_>) -> Vec<f32> {
    let body = |row: usize, columns: Range<usize>, out: &mut [f32], _: &mut [()]| {
        for position in by_source.of(row) {
            grad.ask_ahead(by_source.items, position, &columns);
            let (dst, edge) = (by_source.items[position] as usize, edges[position]);
            let from = &from[dst * grad.width + columns.start..dst * grad.width + columns.end];
            for ((sum, value), &from) in out.iter_mut().zip(grad.row(dst, &columns)).zip(from) {
                *sum += if from == edge { *value } else { 0.0 };
            }
        }
    };
    fill_rows(by_source.indptr, grad.width, (0.0, ()), body).0
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

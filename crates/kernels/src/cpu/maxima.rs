//! The loops of maxima over edges, and their gradient.

use std::mem::MaybeUninit;

use crate::cpu::fill::{Fill, Piece, fill_rows, initialised};
use crate::cpu::row_value::RowValue;
use crate::cpu::rows::{Rows, Segments};

/// Returns the largest value of each segment and column over the rows of `x` that the segment's items name, or 0 for an
/// empty segment.
pub(super) fn max<E: RowValue>(segments: Segments<'_>, x: Rows<'_, E>) -> Vec<f32> {
    fill_rows(segments.indptr, x.width, &Max { segments, x }).0
}

struct Max<'a, E> {
    segments: Segments<'a>,
    x: Rows<'a, E>,
}

// SAFETY: `fill` initialises all elements of each row.
unsafe impl<E: RowValue> Fill for Max<'_, E> {
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
                    copy_widened(out, values);
                    continue;
                }
                for (best, value) in out.iter_mut().zip(values) {
                    let value = value.widened();
                    *best = if beats(value, *best) { value } else { *best };
                }
            }
        }
    }
}

/// Same as [`max`], but also returns the position of the item that each value came from, or -1 for an empty segment.
pub(super) fn argmax<E: RowValue>(segments: Segments<'_>, x: Rows<'_, E>) -> (Vec<f32>, Vec<i32>) {
    fill_rows(segments.indptr, x.width, &ArgMax { segments, x })
}

struct ArgMax<'a, E> {
    segments: Segments<'a>,
    x: Rows<'a, E>,
}

// SAFETY: `fill` initialises all elements of each row in both arrays.
unsafe impl<E: RowValue> Fill for ArgMax<'_, E> {
    type One = f32;
    type Other = i32;

    #[inline(always)]
    fn fill(&self, piece: &Piece, out: &mut [MaybeUninit<f32>], from: &mut [MaybeUninit<i32>]) {
        let Self { segments, x } = self;
        let width = piece.columns.len();
        let rows = out.chunks_exact_mut(width).zip(from.chunks_exact_mut(width));
        for (row, (out, from)) in piece.rows.clone().zip(rows) {
            let out = initialised(out, 0.0);
            let from = initialised(from, -1);
            let edges = segments.of(row);
            for position in edges.clone() {
                x.ask_ahead(segments.items, position, &piece.columns);
                let values = x.row(segments.items[position] as usize, &piece.columns);
                if position == edges.start {
                    copy_widened(out, values);
                    from.fill(position as i32);
                    continue;
                }
                for ((best, from), value) in out.iter_mut().zip(from.iter_mut()).zip(values) {
                    let value = value.widened();
                    let better = beats(value, *best);
                    *best = if better { value } else { *best };
                    *from = if better { position as i32 } else { *from };
                }
            }
        }
    }
}

#[inline(always)]
fn copy_widened<E: RowValue>(out: &mut [f32], values: &[E]) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = value.widened();
    }
}

/// Returns true if the value of a later edge replaces the best one: if it is larger, or if it is NaN, so that NaN
/// reaches the result.
#[inline(always)]
fn beats(value: f32, best: f32) -> bool {
    best < value || value.is_nan()
}

/// The adjoint of [`argmax`]. `by_source` lists the destinations of each source, `edges` has the position in the block
/// of each of these edges, and `from` has the edge that each maximum came from, in the layout of `grad`.
pub(super) fn max_adjoint(by_source: Segments<'_>, edges: &[u32], from: &[i32], grad: Rows<'_>) -> Vec<f32> {
    fill_rows(by_source.indptr, grad.width, &MaxAdjoint { by_source, edges, from, grad }).0
}

struct MaxAdjoint<'a> {
    by_source: Segments<'a>,
    edges: &'a [u32],
    from: &'a [i32],
    grad: Rows<'a>,
}

// SAFETY: `fill` initialises all elements of each row.
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
                let dst = by_source.items[position] as usize;
                let edge = edges[position] as i32;
                let from = &from[dst * grad.width + columns.start..dst * grad.width + columns.end];
                for ((sum, value), &from) in out.iter_mut().zip(grad.row(dst, columns)).zip(from) {
                    *sum += if from == edge { *value } else { 0.0 };
                }
            }
        }
    }
}

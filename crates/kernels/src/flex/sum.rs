//! Weighted sums of rows over edges, alone or with the row's own: aggregation and its adjoint.
//!
//! Inside a row and column the additions follow the order of the edges, and the own row comes last.

use std::ops::Range;

use crate::flex::fill::fill_rows;
use crate::flex::segment::{Rows, Segments};

/// What becomes of each row's sum.
#[derive(Debug, Clone, Copy)]
pub(super) enum Own<'a> {
    /// Nothing.
    Alone,
    /// The sum stands to the right of the row of these with its number.
    Beside(Rows<'a>),
    /// The first `n_rows` sums have the row of these with their number added, times `weight`.
    Plus { rows: Rows<'a>, n_rows: usize, weight: f32 },
}

/// How the items' rows become one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum<'a, F> {
    pub(super) segments: Segments<'a>,
    /// The items' rows.
    pub(super) x: Rows<'a>,
    /// What an item's row is multiplied by, of its position and the item.
    pub(super) factor: F,
    /// Whether each sum is divided by its number of items.
    pub(super) mean: bool,
    pub(super) own: Own<'a>,
}

impl<F: Fn(usize, usize) -> f32 + Sync> Sum<'_, F> {
    /// The rows, one after the other: as wide as the items', or twice that with the own rows beside.
    pub(super) fn run(&self) -> Vec<f32> {
        let (d, width) = (self.x.width, self.width());
        let body = |row: usize, columns: Range<usize>, out: &mut [f32], _: &mut [()]| {
            // With own rows beside, the sum's columns are those from `before` on.
            let before = width - d;
            let n_own = before.clamp(columns.start, columns.end) - columns.start;
            let (own, sum) = out.split_at_mut(n_own);
            if let Own::Beside(rows) = self.own
                && 0 < n_own
            {
                own.copy_from_slice(rows.row(row, &(columns.start..columns.start + n_own)));
            }
            let columns = columns.start.max(before) - before..columns.end.max(before) - before;
            self.add(row, columns, sum);
        };
        fill_rows(self.segments.indptr, width, (0.0, ()), body).0
    }

    /// Columns of a row of the result.
    pub(super) fn width(&self) -> usize {
        match self.own {
            Own::Beside(rows) => rows.width + self.x.width,
            Own::Alone | Own::Plus { .. } => self.x.width,
        }
    }

    fn add(&self, row: usize, columns: Range<usize>, out: &mut [f32]) {
        let edges = self.segments.of(row);
        for position in edges.clone() {
            self.x.ask_ahead(self.segments.items, position, &columns);
            let item = self.segments.items[position] as usize;
            let factor = (self.factor)(position, item);
            for (sum, value) in out.iter_mut().zip(self.x.row(item, &columns)) {
                *sum += factor * value;
            }
        }
        if self.mean && 1 < edges.len() {
            let degree = edges.len() as f32;
            out.iter_mut().for_each(|sum| *sum /= degree);
        }
        if let Own::Plus { rows, n_rows, weight } = self.own
            && row < n_rows
        {
            for (sum, value) in out.iter_mut().zip(rows.row(row, &columns)) {
                *sum += weight * value;
            }
        }
    }
}

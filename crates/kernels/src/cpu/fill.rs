//! Fills the rows of an output in parallel, cut so that pieces cost about the same.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::cpu::vector;

/// Most edges and rows, times columns, that one thread does alone: 12 to 22 us, of which starting tasks would
/// take 7.
const MOST_ALONE: usize = 1 << 18;

/// Fewest edges times columns that are worth a task of their own.
const MIN_PIECE: usize = 1 << 15;

/// Pieces for each thread, so that a slow one can be made up for.
const PIECES_PER_THREAD: usize = 8;

/// Columns that a long segment's piece has at least: one cache line.
const MIN_COLUMNS: usize = 16;

/// Values of a task that copies.
const COPIED_VALUES: usize = 1 << 16;

/// A piece of the output: whole rows, or some columns of one row that has very many edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

impl Piece {
    fn n_values(&self) -> usize {
        self.rows.len() * self.columns.len()
    }
}

/// What fills one or two arrays of rows; a second one of `()` costs nothing.
///
/// # Safety
/// `fill` writes every place that it is given.
pub(super) unsafe trait Fill: Sync {
    /// Element of the first array.
    type One: Copy + Send;
    /// Element of the second.
    type Other: Copy + Send;

    /// Fills a piece, of which it is given the places in both arrays: row after row, the piece's columns of
    /// each, at least one. Implementations are `#[inline(always)]`, as [`vector::Task`] says.
    fn fill(&self, piece: &Piece, one: &mut [MaybeUninit<Self::One>], other: &mut [MaybeUninit<Self::Other>]);
}

/// A piece with its places in the two arrays, and what fills them.
pub(super) struct Filling<'a, F: Fill> {
    pub(super) fill: &'a F,
    pub(super) piece: &'a Piece,
    pub(super) one: &'a mut [MaybeUninit<F::One>],
    pub(super) other: &'a mut [MaybeUninit<F::Other>],
}

impl<F: Fill> vector::Task for Filling<'_, F> {
    #[inline(always)]
    fn run(self) {
        self.fill.fill(self.piece, self.one, self.other);
    }
}

/// Two arrays, each of `indptr.len() - 1` rows of `width` values, filled in pieces on rayon's threads.
pub(super) fn fill_rows<F: Fill>(indptr: &[i32], width: usize, fill: &F) -> (Vec<F::One>, Vec<F::Other>) {
    let n_rows = indptr.len() - 1;
    let n_values = n_rows * width;
    let (mut one, mut other) = (Vec::with_capacity(n_values), Vec::with_capacity(n_values));
    if n_values == 0 {
        return (one, other);
    }
    // Nothing was written to these places: clearing them first would cost a pass over the output.
    let ones = &mut one.spare_capacity_mut()[..n_values];
    let others = &mut other.spare_capacity_mut()[..n_values];
    let n_edges = indptr[n_rows] as usize;
    if (n_rows + n_edges) * width <= MOST_ALONE || rayon::current_num_threads() == 1 {
        let piece = Piece { rows: 0..n_rows, columns: 0..width };
        vector::run(Filling { fill, piece: &piece, one: ones, other: others });
    } else {
        let pieces = pieces(indptr, width, rayon::current_num_threads());
        let places = cut(&pieces, ones).into_par_iter().zip(cut(&pieces, others));
        pieces.par_iter().zip(places).for_each(|(piece, (one, other))| {
            vector::run(Filling { fill, piece, one, other });
        });
    }
    // SAFETY: the piece is everything, or `cut` gives out all `n_values` places or panics; and a `Fill` writes
    // every place that it is given.
    unsafe {
        one.set_len(n_values);
        other.set_len(n_values);
    }
    (one, other)
}

/// Cuts the rows of a compressed adjacency into pieces of about equal numbers of edges. A row with more
/// edges than that is cut by columns. The order of the additions inside a row and column is never cut,
/// so that results do not depend on the pieces.
fn pieces(indptr: &[i32], width: usize, n_threads: usize) -> Vec<Piece> {
    let n_rows = indptr.len() - 1;
    let cost = |row: usize| indptr[row] as usize + row;
    let least = MIN_PIECE / width + 1;
    let target = (cost(n_rows) / (n_threads * PIECES_PER_THREAD)).max(least);
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < n_rows {
        let limit = cost(start) + target;
        let end = first_above(start + 1, n_rows + 1, |row| cost(row) <= limit).max(start + 2) - 1;
        let n_cuts = (cost(end) - cost(start)).div_ceil(target).min(width / MIN_COLUMNS);
        if end == start + 1 && 1 < n_cuts {
            let step = width.div_ceil(n_cuts).next_multiple_of(MIN_COLUMNS);
            let cuts = (0..width).step_by(step).map(|from| from..(from + step).min(width));
            pieces.extend(cuts.map(|columns| Piece { rows: start..end, columns }));
        } else {
            pieces.push(Piece { rows: start..end, columns: 0..width });
        }
        start = end;
    }
    pieces
}

/// The first row of a range that is not below, by halving; `below` holds for a first part of the range.
fn first_above(mut from: usize, mut to: usize, below: impl Fn(usize) -> bool) -> usize {
    while from < to {
        let middle = from + (to - from) / 2;
        if below(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

/// `n_rows` rows, each a copy of what `source(row, columns)` gives, or zeros for `None`.
pub(super) fn copied_rows<'a>(
    n_rows: usize,
    width: usize,
    source: impl Fn(usize, Range<usize>) -> Option<&'a [f32]> + Sync,
) -> Vec<f32> {
    let n_values = n_rows * width;
    let mut rows = Vec::with_capacity(n_values);
    if n_values == 0 {
        return rows;
    }
    let rows_per_task = (COPIED_VALUES / width).max(1);
    let places = &mut rows.spare_capacity_mut()[..n_values];
    places.par_chunks_mut(rows_per_task * width).enumerate().for_each(|(task, places)| {
        for (row, places) in (task * rows_per_task..).zip(places.chunks_exact_mut(width)) {
            match source(row, 0..width) {
                Some(values) => places.write_copy_of_slice(values),
                None => initialised(places, 0.0),
            };
        }
    });
    // SAFETY: the chunks are all places, and the loop writes each, or panics where a source is not as wide.
    unsafe { rows.set_len(n_values) };
    rows
}

/// The pieces' places in an array. They follow each other, so no two share a place.
///
/// # Panics
/// When the pieces do not make up the whole array.
fn cut<'a, T>(pieces: &[Piece], array: &'a mut [T]) -> Vec<&'a mut [T]> {
    let mut rest = array;
    let mut parts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let (part, after) = rest.split_at_mut(piece.n_values());
        parts.push(part);
        rest = after;
    }
    assert!(rest.is_empty(), "{} values are in no piece", rest.len());
    parts
}

/// The places, with this value in each.
#[inline(always)]
pub(super) fn initialised<T: Copy>(places: &mut [MaybeUninit<T>], value: T) -> &mut [T] {
    for place in &mut *places {
        place.write(value);
    }
    // SAFETY: the loop above wrote every place.
    unsafe { places.assume_init_mut() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of 0 to 6 edges, and a hub of a million at row 3,000.
    fn with_hub() -> Vec<i32> {
        let degree = |row: i32| if row == 3000 { 1_000_000 } else { row % 7 };
        let ends = (0..5000).scan(0, |end, row| {
            *end += degree(row);
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    #[test]
    fn every_value_is_in_one_piece_in_order() {
        for (width, n_threads) in [(1, 2), (5, 64), (100, 1), (100, 8), (256, 64)] {
            let (mut row, mut column) = (0, 0);
            for piece in pieces(&with_hub(), width, n_threads) {
                assert_eq!((piece.rows.start, piece.columns.start), (row, column));
                column = if piece.columns.end == width { 0 } else { piece.columns.end };
                row = if column == 0 { piece.rows.end } else { piece.rows.start };
            }
            assert_eq!((row, column), (5000, 0), "width {width}, {n_threads} threads");
        }
    }

    #[test]
    fn a_hub_is_cut_by_columns() {
        let pieces = pieces(&with_hub(), 256, 8);
        let hub = pieces.iter().filter(|piece| piece.rows.contains(&3000));
        let columns: Vec<usize> = hub.map(|piece| piece.columns.len()).collect();
        assert_eq!(columns, [16; 16]);
        assert!(pieces.len() < 200);
    }

    /// Writes to each place which row and column it is.
    struct Places;

    // SAFETY: the loops write every place of both arrays, or panic.
    unsafe impl Fill for Places {
        type One = usize;
        type Other = i32;

        fn fill(&self, piece: &Piece, one: &mut [MaybeUninit<usize>], other: &mut [MaybeUninit<i32>]) {
            let places =
                piece.rows.clone().flat_map(|row| piece.columns.clone().map(move |column| (row, column)));
            assert_eq!(places.clone().count(), one.len());
            for ((row, column), (one, other)) in places.zip(one.iter_mut().zip(other)) {
                one.write(row * 1000 + column);
                other.write(-(column as i32));
            }
        }
    }

    #[test]
    fn each_place_is_given_out_as_its_row_and_column() {
        // Alone, in pieces, and with a hub cut by columns.
        for indptr in [vec![0, 2, 2, 5], (0..=9000).collect(), with_hub()] {
            let n_rows = indptr.len() - 1;
            for width in [0, 1, 100] {
                let (one, other) = fill_rows(&indptr, width, &Places);
                let expected = (0..n_rows).flat_map(|row| (0..width).map(move |column| row * 1000 + column));
                assert!(one.into_iter().eq(expected), "{n_rows} rows of {width}");
                assert!(other.into_iter().eq((0..n_rows).flat_map(|_| (0..width as i32).map(|c| -c))));
            }
        }
    }

    #[test]
    fn copied_rows_are_copies_or_zeros() {
        let given = [1.0, 2.0, 3.0];
        let source = |row: usize, columns| (row % 3 == 1).then(|| &given[columns]);
        let rows = copied_rows(50_000, 3, source);
        assert_eq!(rows.len(), 150_000);
        assert!(rows.chunks(9).all(|rows| {
            rows.iter().zip([0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0]).all(|(got, want)| *got == want)
        }));
        assert!(copied_rows(4, 0, |_, _| None).is_empty());
    }

    #[test]
    #[should_panic(expected = "1 values are in no piece")]
    fn places_that_no_piece_fills_are_found() {
        cut(&[Piece { rows: 0..2, columns: 0..3 }], &mut [0; 7]);
    }
}

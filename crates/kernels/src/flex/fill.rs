//! Fills the rows of an output in parallel, cut so that pieces cost about the same.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

/// Fewest edges times columns that are worth a task of their own.
const MIN_PIECE: usize = 1 << 15;

/// Pieces for each thread, so that a slow one can be made up for.
const PIECES_PER_THREAD: usize = 8;

/// Columns that a long segment's piece has at least: one cache line.
const MIN_COLUMNS: usize = 16;

/// A piece of the output: whole rows, or some columns of one row that has very many edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    rows: Range<usize>,
    columns: Range<usize>,
}

/// A piece with its places in two arrays.
type Task<'a, T, U> = ((&'a Piece, &'a mut [MaybeUninit<T>]), &'a mut [MaybeUninit<U>]);

impl Piece {
    fn n_values(&self) -> usize {
        self.rows.len() * self.columns.len()
    }
}

/// Cuts the rows of a compressed adjacency into pieces of about equal numbers of edges. A row with more
/// edges than that is cut by columns. The order of the additions inside a row and column is never cut,
/// so that results do not depend on the pieces.
pub(super) fn pieces(indptr: &[i32], width: usize, n_threads: usize) -> Vec<Piece> {
    let n_rows = indptr.len() - 1;
    let cost = |row: usize| indptr[row] as usize + row;
    let least = MIN_PIECE / width.max(1) + 1;
    let target = (cost(n_rows) / (n_threads * PIECES_PER_THREAD)).max(least);
    if n_threads == 1 || cost(n_rows) <= target {
        return vec![Piece { rows: 0..n_rows, columns: 0..width }];
    }
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

/// Two arrays, each of `indptr.len() - 1` rows of `width` values: `body(row, columns, one, other)` is
/// called for every row, in pieces on rayon's threads, with the row's place in both arrays, which hold
/// the initial values. A second array of `()` costs nothing.
pub(super) fn fill_rows<T, U, F>(indptr: &[i32], width: usize, initial: (T, U), body: F) -> (Vec<T>, Vec<U>)
where
    T: Copy + Send + Sync,
    U: Copy + Send + Sync,
    F: Fn(usize, Range<usize>, &mut [T], &mut [U]) + Sync,
{
    let pieces = pieces(indptr, width, rayon::current_num_threads());
    let n_values = (indptr.len() - 1) * width;
    let mut one = Vec::with_capacity(n_values);
    let mut other = Vec::with_capacity(n_values);
    let ones = cut(&pieces, &mut one.spare_capacity_mut()[..n_values]);
    let others = cut(&pieces, &mut other.spare_capacity_mut()[..n_values]);
    let fill = |((piece, one), other): Task<'_, T, U>| {
        let width = piece.columns.len();
        for (idx, row) in piece.rows.clone().enumerate() {
            let values = idx * width..(idx + 1) * width;
            let one = initialised(&mut one[values.clone()], initial.0);
            let other = initialised(&mut other[values], initial.1);
            body(row, piece.columns.clone(), one, other);
        }
    };
    if let [_] = pieces[..] {
        pieces.iter().zip(ones).zip(others).for_each(fill);
    } else {
        pieces.par_iter().zip(ones).zip(others).for_each(fill);
    }
    // SAFETY: `cut` gives out all `n_values` places, or panics, and `fill` initialises every row of every
    // piece before it hands it to `body`.
    unsafe {
        one.set_len(n_values);
        other.set_len(n_values);
    }
    (one, other)
}

/// `n_rows` rows, each a copy of what `source(row, columns)` gives, or zeros for `None`.
pub(super) fn copied_rows<'a>(
    n_rows: usize,
    width: usize,
    source: impl Fn(usize, Range<usize>) -> Option<&'a [f32]> + Sync,
) -> Vec<f32> {
    // As an adjacency, every row has the one item that is itself.
    let n_rows = i32::try_from(n_rows).expect("there should be fewer than 2^31 rows");
    let indptr: Vec<i32> = (0..=n_rows).collect();
    let body = |row, columns, out: &mut [f32], _: &mut [()]| {
        if let Some(values) = source(row, columns) {
            out.copy_from_slice(values);
        }
    };
    fill_rows(&indptr, width, (0.0, ()), body).0
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

fn initialised<T: Copy>(places: &mut [MaybeUninit<T>], value: T) -> &mut [T] {
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
        for (width, n_threads) in [(0, 3), (1, 2), (5, 64), (100, 1), (100, 8), (256, 64)] {
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

    #[test]
    fn rows_start_from_the_initial_values_and_keep_what_is_written() {
        let body = |row: usize, columns: Range<usize>, one: &mut [u64], other: &mut [i32]| {
            for (column, value) in columns.zip(one) {
                *value += (row * 1000 + column) as u64;
            }
            other.iter_mut().step_by(2).for_each(|value| *value = 4);
        };
        let (one, other) = fill_rows(&with_hub(), 100, (7, -1), body);
        let expected = (0..5000).flat_map(|row| (0..100).map(move |column| 7 + row * 1000 + column));
        assert!(one.into_iter().eq(expected));
        assert!(other.chunks(2).all(|pair| pair == [4, -1]));
    }

    #[test]
    #[should_panic(expected = "1 values are in no piece")]
    fn places_that_no_piece_fills_are_found() {
        cut(&[Piece { rows: 0..2, columns: 0..3 }], &mut [0; 7]);
    }
}

//! Fills the rows of an output in parallel, in pieces of about equal cost.

use std::mem::MaybeUninit;
use std::ops::Range;

use kiln_mem::vector;
use rayon::prelude::*;

use crate::cpu::cost::{self, PASS_NS};
use crate::cpu::tasks::in_tasks;

/// The minimum work of a piece, in (edges + rows) times columns.
const MIN_PIECE: usize = 1 << 15;

/// The number of pieces per thread. It is larger than 1, so that other threads can take over the work of a slow one.
const PIECES_PER_THREAD: usize = 8;

/// The minimum number of columns of a piece of a long segment: one cache line.
const MIN_COLUMNS: usize = 16;

/// A piece of the output: whole rows, or some columns of a single row with very many edges.
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

/// A loop that computes the rows of one or two arrays. If there is only one array, the element type of the second is
/// `()`.
///
/// # Safety
/// `fill` must write every element of the slices that it is given.
pub(super) unsafe trait Fill: Sync {
    /// The element type of the first array.
    type One: Copy + Send;
    /// The element type of the second array, or `()` if there is only one array.
    type Other: Copy + Send;

    /// Fills a piece. The slices are the elements of the piece in both arrays, in row-major order, with at least one
    /// column. Implementations must be `#[inline(always)]` (see [`vector::VectorTask`]).
    fn fill(&self, piece: &Piece, one: &mut [MaybeUninit<Self::One>], other: &mut [MaybeUninit<Self::Other>]);
}

/// A piece with its elements in the two arrays, and the loop that fills them.
pub(super) struct Filling<'a, F: Fill> {
    pub(super) fill: &'a F,
    pub(super) piece: &'a Piece,
    pub(super) one: &'a mut [MaybeUninit<F::One>],
    pub(super) other: &'a mut [MaybeUninit<F::Other>],
}

impl<F: Fill> vector::VectorTask for Filling<'_, F> {
    #[inline(always)]
    fn run(self) {
        self.fill.fill(self.piece, self.one, self.other);
    }
}

/// Creates two arrays, each with `indptr.len() - 1` rows of `width` values, and fills them in pieces on rayon's
/// threads.
pub(super) fn fill_rows<F: Fill>(indptr: &[i32], width: usize, fill: &F) -> (Vec<F::One>, Vec<F::Other>) {
    let n_rows = indptr.len() - 1;
    let n_edges = indptr[n_rows] as usize;
    // Long rows are split into pieces, so no single piece limits the time.
    let is_parallel = cost::is_parallel((n_rows + n_edges) as f64 * cost::edge_ns(width), 0.0);
    let n_threads = if is_parallel { rayon::current_num_threads() } else { 1 };
    fill_rows_on(n_threads, indptr, width, fill)
}

/// Same as [`fill_rows`], but in the calling thread alone: for threads that must not wait for rayon's.
pub(super) fn fill_rows_alone<F: Fill>(
    indptr: &[i32],
    width: usize,
    fill: &F,
) -> (Vec<F::One>, Vec<F::Other>) {
    fill_rows_on(1, indptr, width, fill)
}

fn fill_rows_on<F: Fill>(
    n_threads: usize,
    indptr: &[i32],
    width: usize,
    fill: &F,
) -> (Vec<F::One>, Vec<F::Other>) {
    let n_rows = indptr.len() - 1;
    let n_values = n_rows * width;
    let mut one = Vec::with_capacity(n_values);
    let mut other = Vec::with_capacity(n_values);
    if n_values == 0 {
        return (one, other);
    }
    // The memory is uninitialised, because clearing it first would cost a pass over the output.
    let ones = &mut one.spare_capacity_mut()[..n_values];
    let others = &mut other.spare_capacity_mut()[..n_values];
    if n_threads == 1 {
        let piece = Piece { rows: 0..n_rows, columns: 0..width };
        vector::run(Filling { fill, piece: &piece, one: ones, other: others });
    } else {
        let pieces = pieces(indptr, width, n_threads);
        let places = cut(&pieces, ones).into_par_iter().zip(cut(&pieces, others));
        pieces.par_iter().zip(places).for_each(|(piece, (one, other))| {
            vector::run(Filling { fill, piece, one, other });
        });
    }
    // SAFETY: the single piece covers everything, or `cut` returns all `n_values` elements or panics; and a `Fill`
    // writes every element that it is given.
    unsafe {
        one.set_len(n_values);
        other.set_len(n_values);
    }
    (one, other)
}

/// Splits the rows of a compressed adjacency into pieces of about equal cost, which is the number of edges plus the
/// number of rows. A row whose edges cost more than one piece should is split by columns. The additions of one row and
/// column always stay in one piece, so the results do not depend on the pieces.
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

/// Returns the first row in `from..to` for which `below` is false, or `to` if there is none, by binary search. `below`
/// must be true up to some row and false from there on.
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

/// Creates `n_rows` rows, each a copy of the slice that `source(row, columns)` returns, or zeros for `None`.
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
    let places = &mut rows.spare_capacity_mut()[..n_values];
    in_tasks(places, width, PASS_NS, |start, places| {
        for (row, places) in (start / width..).zip(places.chunks_exact_mut(width)) {
            match source(row, 0..width) {
                Some(values) => places.write_copy_of_slice(values),
                None => initialised(places, 0.0),
            };
        }
    });
    // SAFETY: the chunks cover all elements, and the loop writes each one or panics if a source has another width.
    unsafe { rows.set_len(n_values) };
    rows
}

/// Splits an array into the elements of each piece, which follow each other.
///
/// # Panics
/// Panics if the pieces do not cover the whole array.
fn cut<'a, T>(pieces: &[Piece], array: &'a mut [T]) -> Vec<&'a mut [T]> {
    let mut rest = array;
    let mut parts = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let (part, after) = rest.split_at_mut(piece.n_values());
        parts.push(part);
        rest = after;
    }
    assert!(rest.is_empty(), "the pieces do not cover the last {} values", rest.len());
    parts
}

/// Sets every element to `value` and returns the initialised slice.
#[inline(always)]
pub(super) fn initialised<T: Copy>(places: &mut [MaybeUninit<T>], value: T) -> &mut [T] {
    for place in &mut *places {
        place.write(value);
    }
    // SAFETY: the loop above wrote every element.
    unsafe { places.assume_init_mut() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the `indptr` of 5,000 rows with 0 to 6 edges, and a hub with a million edges at row 3,000.
    fn with_hub() -> Vec<i32> {
        let degree = |row: i32| if row == 3000 { 1_000_000 } else { row % 7 };
        let ends = (0..5000).scan(0, |end, row| {
            *end += degree(row);
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    #[test]
    fn pieces_cover_each_value_once_in_order() {
        for (width, n_threads) in [(1, 2), (5, 64), (100, 1), (100, 8), (256, 64)] {
            let mut row = 0;
            let mut column = 0;
            for piece in pieces(&with_hub(), width, n_threads) {
                assert_eq!((piece.rows.start, piece.columns.start), (row, column));
                column = if piece.columns.end == width { 0 } else { piece.columns.end };
                row = if column == 0 { piece.rows.end } else { piece.rows.start };
            }
            assert_eq!((row, column), (5000, 0), "width {width}, {n_threads} threads");
        }
    }

    #[test]
    fn splits_a_hub_by_columns() {
        let pieces = pieces(&with_hub(), 256, 8);
        let hub = pieces.iter().filter(|piece| piece.rows.contains(&3000));
        let columns: Vec<usize> = hub.map(|piece| piece.columns.len()).collect();
        assert_eq!(columns, [16; 16]);
        assert!(pieces.len() < 200);
    }

    /// A loop that writes to each element its own row and column.
    struct Places;

    // SAFETY: the loops write every element of both arrays, or panic.
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
    fn fill_rows_passes_each_element_with_its_row_and_column() {
        // The outputs are filled in one piece, in several pieces, and with a hub that is split by columns.
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

    /// A loop that writes 1 in the thread that created it, and 0 in others.
    struct InThread(std::thread::ThreadId);

    // SAFETY: the loops write every element of both arrays.
    unsafe impl Fill for InThread {
        type One = u8;
        type Other = ();

        fn fill(&self, _: &Piece, one: &mut [MaybeUninit<u8>], other: &mut [MaybeUninit<()>]) {
            initialised(one, u8::from(std::thread::current().id() == self.0));
            initialised(other, ());
        }
    }

    #[test]
    fn fill_rows_alone_runs_in_the_calling_thread() {
        let indptr = with_hub();
        let fill = InThread(std::thread::current().id());
        assert!(fill_rows_alone(&indptr, 100, &fill).0.iter().all(|in_thread| *in_thread == 1));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let in_pool = pool.install(|| fill_rows(&indptr, 100, &fill).0);
        assert!(
            in_pool.iter().all(|in_thread| *in_thread == 0),
            "the array should be large enough for the pool"
        );
    }

    #[test]
    fn copied_rows_are_copies_or_zeros() {
        let given = [1.0, 2.0, 3.0];
        let rows = copied_rows(50_000, 3, |row: usize, columns| (row % 3 == 1).then(|| &given[columns]));
        assert_eq!(rows.len(), 150_000);
        assert!(rows.chunks(9).all(|rows| {
            rows.iter().zip([0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0]).all(|(got, want)| *got == want)
        }));
        assert!(copied_rows(4, 0, |_, _| None).is_empty());
    }

    #[test]
    #[should_panic(expected = "the pieces do not cover the last 1 values")]
    fn rejects_pieces_that_do_not_cover_the_array() {
        cut(&[Piece { rows: 0..2, columns: 0..3 }], &mut [0; 7]);
    }
}

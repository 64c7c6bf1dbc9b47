//! The inputs of the loops over edges: a compressed adjacency, and columns of the rows of a matrix.

use std::ops::Range;

use kiln_mem::{prefetch_range, prefetch_range_far};

use crate::cpu::row_value::RowValue;

/// How rows are prefetched.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    /// The distance in bytes of rows. With the best distance, many cache lines are in flight, and they are used before
    /// they are evicted.
    bytes: usize,
    /// True to prefetch into the L2 cache only, which supports more outstanding misses than the L1 cache.
    is_far: bool,
}

impl Ahead {
    /// Returns the prefetches that are fastest on this processor, as far as it was measured: AMD's, the only ones with the
    /// instructions SSE4a, prefetch faster into the L2 cache (`docs/benchmarks/helped.md`), Intel's do not
    /// (`docs/benchmarks/not-helped.md`).
    fn of_processor() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("sse4a") {
            return Self { bytes: 6 << 10, is_far: true };
        }
        Self { bytes: 3 << 10, is_far: false }
    }
}

/// The smallest and the largest prefetch distance, in edges.
const AHEAD_EDGES: Range<usize> = 2..32;

/// The prefetch distance in bytes of rows of a store, most of which are in no cache, and whose pages are in no buffer of
/// the address translation.
const FAR_BYTES: usize = 24 << 10;

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

/// A range of columns of a matrix: `width` columns from the column `first` on, in rows of `stride` values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a, E = f32> {
    values: &'a [E],
    first: usize,
    pub(super) width: usize,
    stride: usize,
    /// The prefetch distance in edges.
    ahead: usize,
    /// True to prefetch into the L2 cache only.
    is_far: bool,
}

impl<'a, E: RowValue> Rows<'a, E> {
    pub(super) fn new(values: &'a [E], first: usize, width: usize, stride: usize) -> Self {
        let row_bytes = width.max(1) * size_of::<E>();
        let Ahead { bytes, is_far } = Ahead::of_processor();
        let ahead = (bytes / row_bytes).clamp(AHEAD_EDGES.start, AHEAD_EDGES.end);
        Self { values, first, width, stride, ahead, is_far }
    }

    /// Returns all columns of the rows of a store, which are prefetched farther ahead than those of a batch.
    pub(super) fn of_store(values: &'a [E], width: usize) -> Self {
        let ahead = (FAR_BYTES / (width.max(1) * size_of::<E>())).max(AHEAD_EDGES.start);
        Self { ahead, is_far: true, ..Self::new(values, 0, width, width) }
    }

    #[inline(always)]
    pub(super) fn row(&self, row: usize, columns: &Range<usize>) -> &'a [E] {
        let start = row * self.stride + self.first;
        &self.values[start + columns.start..start + columns.end]
    }

    /// `N` values of a row, starting at a column.
    #[inline(always)]
    pub(super) fn chunk<const N: usize>(&self, row: usize, column: usize) -> &'a [E; N] {
        let start = row * self.stride + self.first + column;
        self.values[start..start + N].first_chunk().expect("the slice should have N values")
    }

    /// Prefetches these columns of the row of the item that is [`Rows::ahead`] positions after `position`, if there is
    /// such an item.
    #[inline(always)]
    pub(super) fn ask_ahead(&self, items: &[i32], position: usize, columns: &Range<usize>) {
        if let Some(&item) = items.get(position + self.ahead) {
            let start = item as usize * self.stride + self.first + columns.start;
            match self.is_far {
                true => prefetch_range_far(self.values, start, columns.len()),
                false => prefetch_range(self.values, start, columns.len()),
            }
        }
    }
}

//! The columns of sums: which weight of an item belongs to which columns of its row, and of the result.

use std::fmt::Debug;
use std::ops::Range;

/// The columns that each weight of an item belongs to. The columns of the result are divided into [`Columns::n_ranges`]
/// equal ranges, each of which is a sum of [`Columns::n_terms`] terms per item.
pub(super) trait Columns: Debug + Copy + Sync {
    /// Returns the number of ranges of the result.
    fn n_ranges(self) -> usize;

    /// Returns the number of terms of an item in each range. Term `t` is the range `t` of the columns of `x`.
    #[inline(always)]
    fn n_terms(self) -> usize {
        1
    }

    /// Returns the width of a range of the result, given the width of `x`.
    fn range_width(self, x_width: usize) -> usize;

    /// Returns the first column of `x` that a range of the result adds up.
    fn first_column(self, range: usize, x_width: usize) -> usize;

    /// Returns the columns of `x` to prefetch before the given columns of a range are summed.
    #[inline(always)]
    fn prefetched(self, _range: usize, columns: &Range<usize>, _x_width: usize) -> Range<usize> {
        columns.clone()
    }
}

/// One weight: the result is the sum of whole rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole;

/// A weight for each of this many ranges of columns of `x`, which are the ranges of the result.
#[derive(Debug, Clone, Copy)]
pub(super) struct PerHead(pub(super) usize);

/// This many weights: the result has a sum of whole rows for each of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct PerBasis(pub(super) usize);

/// A weight for each of this many ranges of columns of `x`: the result is one sum, over the items and the ranges.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverBases(pub(super) usize);

impl Columns for Whole {
    #[inline(always)]
    fn n_ranges(self) -> usize {
        1
    }

    #[inline(always)]
    fn range_width(self, x_width: usize) -> usize {
        x_width
    }

    #[inline(always)]
    fn first_column(self, _: usize, _: usize) -> usize {
        0
    }
}

impl Columns for PerHead {
    #[inline(always)]
    fn n_ranges(self) -> usize {
        self.0
    }

    #[inline(always)]
    fn range_width(self, x_width: usize) -> usize {
        x_width / self.0
    }

    #[inline(always)]
    fn first_column(self, range: usize, x_width: usize) -> usize {
        range * self.range_width(x_width)
    }
}

impl Columns for PerBasis {
    #[inline(always)]
    fn n_ranges(self) -> usize {
        self.0
    }

    #[inline(always)]
    fn range_width(self, x_width: usize) -> usize {
        x_width
    }

    #[inline(always)]
    fn first_column(self, _: usize, _: usize) -> usize {
        0
    }

    /// The first range leaves the rows in the caches.
    #[inline(always)]
    fn prefetched(self, range: usize, columns: &Range<usize>, _: usize) -> Range<usize> {
        if range == 0 { columns.clone() } else { 0..0 }
    }
}

impl Columns for OverBases {
    #[inline(always)]
    fn n_ranges(self) -> usize {
        1
    }

    #[inline(always)]
    fn n_terms(self) -> usize {
        self.0
    }

    #[inline(always)]
    fn range_width(self, x_width: usize) -> usize {
        x_width / self.0
    }

    #[inline(always)]
    fn first_column(self, _: usize, _: usize) -> usize {
        0
    }

    #[inline(always)]
    fn prefetched(self, _: usize, _: &Range<usize>, x_width: usize) -> Range<usize> {
        0..x_width
    }
}

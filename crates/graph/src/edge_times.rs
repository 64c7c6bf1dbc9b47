use std::path::Path;

use rayon::prelude::*;

use crate::{Error, Result, SharedArray};

/// The time of each edge, and the edges of each destination in the order of their times: the index by which temporal
/// sampling finds the edges before a time.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `times` | `i64` | `n_edges` | [`EdgeId`](crate::EdgeId) |
/// | `order` | `u32` | `n_edges` | `indptr[v] + i` for the edge into `v` that is number `i` by time |
///
/// An entry of `order` has the edge's position among the edges into `v` in its lower bits, as many as the largest position
/// has, and above them the upper bits of its scaled time ([`TimeScale`]). So a search by time reads few cache lines, and
/// reads `times` only for edges whose scaled time is that of the border.
///
/// Edges with equal times are in the order of their ids. Times are those from which an edge passes messages: the time of the
/// edge or, if it is later, that of its source. The unit is the caller's.
#[derive(Debug, Clone)]
pub struct EdgeTimes {
    times: SharedArray<i64>,
    order: SharedArray<u32>,
    scale: TimeScale,
}

/// The scale by which times become 32-bit numbers with the same order: `(time - first) >> shift`, limited to 32 bits.
///
/// ```
/// use kiln_graph::TimeScale;
/// let scale = TimeScale::of(&[-10, 1 << 40, 5]);
/// assert_eq!((scale.first, scale.shift), (-10, 9));
/// assert!(scale.scaled(5) <= scale.scaled(1 << 40));
/// assert_eq!((scale.scaled(i64::MIN), scale.scaled(i64::MAX)), (0, u32::MAX));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeScale {
    /// The first time.
    pub first: i64,
    /// The number of lower bits that are left out.
    pub shift: u32,
}

impl TimeScale {
    /// Returns the scale of some times, without [`EdgeTimes::ALWAYS`] and [`EdgeTimes::NEVER`].
    pub fn of(times: &[i64]) -> Self {
        let known = || times.par_iter().filter(|time| ![EdgeTimes::ALWAYS, EdgeTimes::NEVER].contains(time));
        Self::between(known().min().copied().unwrap_or(0), known().max().copied().unwrap_or(0))
    }

    /// Returns the scale of times from a first one to a last one; 0 and 0 if there are none.
    pub fn between(first: i64, last: i64) -> Self {
        let range = last.abs_diff(first);
        Self { first, shift: (u64::BITS - range.leading_zeros()).saturating_sub(u32::BITS) }
    }

    /// Returns the 32-bit number of a time. Later times never have smaller numbers.
    #[inline]
    pub fn scaled(self, time: i64) -> u32 {
        if time < self.first {
            return 0;
        }
        u32::try_from(time.abs_diff(self.first) >> self.shift).unwrap_or(u32::MAX)
    }
}

impl EdgeTimes {
    /// The time of an edge that was always known, such as an added self loop.
    pub const ALWAYS: i64 = i64::MIN;

    /// The time of an edge that is never known, because its time is missing.
    pub const NEVER: i64 = i64::MAX;

    /// Creates the index from arrays, for example mapped ones. Only the lengths are checked; samplers check that each position
    /// that they read is one of the destination's edges.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] unless both arrays have the same length, and [`Error::TooMany`] if the scale leaves out
    /// all bits.
    pub fn new(times: SharedArray<i64>, order: SharedArray<u32>, scale: TimeScale) -> Result<Self> {
        if u64::BITS <= scale.shift {
            let got = scale.shift.into();
            return Err(Error::TooMany {
                what: "left out bits of times",
                n: got,
                max: u64::from(u64::BITS - 1),
            });
        }
        let expected = times.len() as u64;
        let got = order.len() as u64;
        if expected != got {
            return Err(Error::LengthMismatch { what: "the order of edges by time", expected, got });
        }
        Ok(Self { times, order, scale })
    }

    /// Returns the time of each edge, in CSC order.
    #[inline]
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// Returns the order of each destination's edges by time.
    #[inline]
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns the scale of the times in the order.
    pub fn scale(&self) -> TimeScale {
        self.scale
    }

    /// Returns the number of lower bits of the entries of a destination that have the position of an edge.
    #[inline]
    pub fn position_bits(degree: usize) -> u32 {
        usize::BITS - degree.saturating_sub(1).leading_zeros()
    }

    /// Returns the border of a time in the order of a destination whose entries have this number of lower bits for positions:
    /// the edges of smaller entries are before the time, and those whose upper bits equal it may be.
    #[inline]
    pub fn border(&self, time: i64, position_bits: u32) -> u32 {
        upper_bits(self.scale.scaled(time), position_bits)
    }

    pub(crate) fn in_memory(&self) -> Self {
        Self { times: self.times.in_memory(), order: self.order.in_memory(), scale: self.scale }
    }

    pub(crate) fn owned_bytes(&self) -> usize {
        self.times.owned_bytes() + self.order.owned_bytes()
    }

    /// Returns the file from which the order is mapped; `None` if it is owned.
    pub fn order_path(&self) -> Option<&Path> {
        self.order.path()
    }
}

/// Returns a number without its lower bits, of which there are up to 32.
#[inline]
pub(crate) fn upper_bits(number: u32, n_lower: u32) -> u32 {
    number & u32::MAX.checked_shl(n_lower).unwrap_or(0)
}

use std::path::Path;

use rayon::prelude::*;

use crate::{Csc, Error, Result, SharedArray};

/// The number of edges that one task orders.
const EDGES_A_TASK: u64 = 1 << 16;

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
        let first = known().min().copied().unwrap_or(0);
        let range = known().max().copied().unwrap_or(0).abs_diff(first);
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
fn upper_bits(number: u32, n_lower: u32) -> u32 {
    number & u32::MAX.checked_shl(n_lower).unwrap_or(0)
}

impl Csc {
    /// Orders the edges of each destination by time, in parallel, so that samplers can leave out the edges that are not
    /// before a seed's time. `times` has the time of each edge, in CSC order, from which it passes messages. The order takes 4
    /// bytes per edge.
    ///
    /// ```
    /// use kiln_graph::CscBuilder;
    /// let graph = CscBuilder::new(3).build(&[0, 1, 2], &[2, 2, 2])?;
    /// let graph = graph.with_edge_times(vec![30_i64, 10, 20])?;
    /// let order = graph.edge_times().unwrap().order();
    /// assert_eq!(order.iter().map(|entry| entry & 3).collect::<Vec<u32>>(), [1, 2, 0]);
    /// # Ok::<(), kiln_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] unless there is one time per edge, [`Error::IndptrNotMonotone`] if `indptr`
    /// decreases, and [`Error::TooMany`] for a node with more than 2^32 - 1 edges.
    pub fn with_edge_times(self, times: impl Into<SharedArray<i64>>) -> Result<Self> {
        let times = times.into();
        self.check_edge_data("the times of edges", times.len())?;
        self.validate_indptr()?;
        let largest = self.indptr().windows(2).map(|bounds| bounds[1] - bounds[0]).max().unwrap_or(0);
        if u64::from(u32::MAX) < largest {
            return Err(Error::TooMany { what: "edges into a node", n: largest, max: u32::MAX.into() });
        }
        let scale = TimeScale::of(&times);
        let mut order = vec![0; times.len()];
        Lists { indptr: self.indptr(), times: &times, scale, order: &mut order }.sort();
        self.with_ordered_times(EdgeTimes::new(times, order.into(), scale)?)
    }

    /// Sets the times of the edges with their order, for example in mapped arrays ([`Csc::with_edge_times`]).
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] unless there is one time per edge.
    pub fn with_ordered_times(self, times: EdgeTimes) -> Result<Self> {
        self.check_edge_data("the times of edges", times.times.len())?;
        Ok(self.set_edge_times(Some(times)))
    }
}

/// The edges of consecutive destinations, whose ranges in the arrays begin at `indptr[0]`.
struct Lists<'a> {
    indptr: &'a [u64],
    times: &'a [i64],
    scale: TimeScale,
    order: &'a mut [u32],
}

impl Lists<'_> {
    fn sort(self) {
        let n_dsts = self.indptr.len() - 1;
        let first = self.indptr[0];
        if n_dsts < 2 || self.indptr[n_dsts] - first <= EDGES_A_TASK {
            return self.sort_each();
        }
        let Self { indptr, times, scale, order } = self;
        let half = n_dsts / 2;
        let n_before = (indptr[half] - first) as usize;
        let (before, after) = order.split_at_mut(n_before);
        let lower = Lists { indptr: &indptr[..=half], times: &times[..n_before], scale, order: before };
        let upper = Lists { indptr: &indptr[half..], times: &times[n_before..], scale, order: after };
        rayon::join(|| lower.sort(), || upper.sort());
    }

    fn sort_each(self) {
        let first = self.indptr[0];
        let mut keys = Vec::new();
        for bounds in self.indptr.windows(2) {
            let edges = (bounds[0] - first) as usize..(bounds[1] - first) as usize;
            let times = &self.times[edges.clone()];
            let order = &mut self.order[edges];
            let bits = EdgeTimes::position_bits(times.len());
            let entry =
                |position: u32| upper_bits(self.scale.scaled(times[position as usize]), bits) | position;
            if times.is_sorted() {
                order.iter_mut().zip(0..).for_each(|(place, position)| *place = entry(position));
                continue;
            }
            // A time and a position in one integer sort without a comparison of two fields. The flipped sign bit orders
            // negative times before the others.
            keys.clear();
            keys.extend(
                times
                    .iter()
                    .zip(0_u32..)
                    .map(|(time, position)| u128::from(*time as u64 ^ 1 << 63) << 32 | u128::from(position)),
            );
            keys.sort_unstable();
            order.iter_mut().zip(&keys).for_each(|(place, key)| *place = entry(*key as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CscBuilder;

    #[test]
    fn edges_are_in_the_order_of_their_times_and_then_of_their_ids() -> Result<()> {
        // Several tasks, a node without edges, times before 0, and equal times.
        let n_edges = 3 * EDGES_A_TASK as u32;
        let dsts: Vec<u32> = (0..n_edges).map(|edge| edge.wrapping_mul(0x9E37_79B9) >> 8 & 1022).collect();
        let graph = CscBuilder::new(1024).build(&vec![0; n_edges as usize], &dsts)?;
        let times: Vec<i64> =
            (0..n_edges).map(|edge| i64::from(edge.wrapping_mul(0x85EB_CA6B) >> 25) - 60).collect();
        let graph = graph.with_edge_times(times.clone())?;
        let order = graph.edge_times().expect("the graph should have times").order();
        for bounds in graph.indptr().windows(2) {
            let edges = bounds[0] as usize..bounds[1] as usize;
            let mut expected: Vec<u32> = (0..edges.len() as u32).collect();
            expected.sort_by_key(|position| times[edges.start + *position as usize]);
            let mask = (1 << EdgeTimes::position_bits(edges.len())) - 1;
            let positions: Vec<u32> = order[edges.clone()].iter().map(|entry| entry & mask).collect();
            assert_eq!(positions, expected);
            for entries in order[edges].windows(2) {
                assert!(entries[0] & !mask <= entries[1] & !mask, "the scaled times should ascend");
            }
        }
        let error = graph.with_edge_times(vec![0]).expect_err("one time should be too few").to_string();
        assert!(error.contains("the times of edges"), "{error}");
        Ok(())
    }
}

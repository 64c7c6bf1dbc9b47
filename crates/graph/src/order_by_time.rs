use crate::edge_times::upper_bits;
use crate::{Csc, EdgeTimes, Error, Result, SharedArray, TimeScale};

/// The number of edges that one task orders.
const EDGES_A_TASK: u64 = 1 << 16;

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
        scale.order_edges(self.indptr(), &times, &mut order);
        self.with_ordered_times(EdgeTimes::new(times, order.into(), scale)?)
    }

    /// Sets the times of the edges with their order, for example in mapped arrays ([`Csc::with_edge_times`]).
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`] unless there is one time per edge.
    pub fn with_ordered_times(self, times: EdgeTimes) -> Result<Self> {
        self.check_edge_data("the times of edges", times.times().len())?;
        Ok(self.set_edge_times(Some(times)))
    }
}

impl TimeScale {
    /// Orders the edges of some consecutive destinations by time, in parallel, as [`Csc::with_edge_times`] does for all of a graph:
    /// for an index that is made part by part. `indptr` has the offsets of the destinations' edges, and one more; the other arrays
    /// have an element per edge, from that at `indptr[0]` on.
    ///
    /// ```
    /// use kiln_graph::TimeScale;
    /// let mut order = [0; 3];
    /// TimeScale::of(&[30, 10, 20]).order_edges(&[7, 10], &[30, 10, 20], &mut order);
    /// assert_eq!(order.map(|entry| entry & 3), [1, 2, 0]);
    /// ```
    ///
    /// # Panics
    /// Panics unless the offsets ascend within the arrays, which have equal lengths, or if a destination has 2^32 edges or more.
    pub fn order_edges(self, indptr: &[u64], times: &[i64], order: &mut [u32]) {
        assert_eq!(times.len(), order.len(), "the numbers of times and entries differ");
        if 1 < indptr.len() {
            Lists { indptr, times, scale: self, order }.sort();
        }
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

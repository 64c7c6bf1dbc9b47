use std::ops::Range;
use std::path::Path;

use kiln_graph::{EdgeTimes, NodeId};
use kiln_mem::prefetch;

use crate::{DamagedGraphError, DstTimes, Error, KeyDomain, Result, RngKey, TimeLimits};

/// The number of edges below which times are counted one after the other, which is faster than a search.
const FEW_EDGES: usize = 96;

/// The number of 64-bit values in a cache line.
const LINE: usize = 8;

/// The times of the destinations of a hop, and the times of the edges if they have some.
#[derive(Debug)]
pub(crate) struct HopTimes<'a> {
    pub(crate) dsts: DstTimes<'a>,
    /// The times of the graph's edges; `None` if all are always known.
    pub(crate) edges: Option<&'a EdgeTimes>,
    /// The key of the draws at each distinct time.
    keys: Vec<RngKey>,
    /// The first known time, if there is a window, and the end of the known times, at each distinct time.
    ranges: Vec<(Option<i64>, i64)>,
}

/// The known edges of a destination, as ranks in its order by time: those that have no time, and a range.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KnownEdges {
    n_always: u32,
    first: u32,
    n: u32,
}

impl KnownEdges {
    /// Returns the number of known edges.
    #[inline]
    pub(crate) fn len(self) -> usize {
        (self.n_always + self.n) as usize
    }

    /// Returns the rank in the order by time of the known edge at a position.
    #[inline]
    pub(crate) fn rank(self, position: u32) -> u32 {
        if position < self.n_always { position } else { position - self.n_always + self.first }
    }

    /// Returns the position among the known edges of a rank in the order by time; `None` if the edge is not known.
    fn position(self, rank: u32) -> Option<u32> {
        if rank < self.n_always {
            return Some(rank);
        }
        let position = rank.checked_sub(self.first).filter(|position| *position < self.n)?;
        Some(self.n_always + position)
    }
}

impl<'a> HopTimes<'a> {
    /// Prepares a hop whose destinations draw from `key` with their times folded in.
    pub(crate) fn new(
        dsts: DstTimes<'a>,
        edges: Option<&'a EdgeTimes>,
        key: RngKey,
        limits: TimeLimits,
    ) -> Self {
        let times = dsts.distinct().iter();
        let keys = times.clone().map(|time| key.fold_in(KeyDomain::Time, *time as u64)).collect();
        let ranges = times.map(|time| limits.range(*time)).collect();
        Self { dsts, edges, keys, ranges }
    }

    /// Returns the key of the draws of the destination at a position.
    #[inline]
    pub(crate) fn key(&self, position: usize) -> RngKey {
        self.keys[self.dsts.index()[position] as usize]
    }

    /// Asks for the times that [`HopTimes::known`] reads first.
    #[inline]
    pub(crate) fn prefetch(&self, edges: &Range<usize>) {
        let Some(times) = self.edges else { return };
        if edges.len() <= FEW_EDGES {
            for edge in edges.clone().step_by(LINE) {
                prefetch(times.times(), edge);
            }
        } else {
            prefetch(times.order(), edges.start + edges.len() / 2);
        }
    }

    /// Returns the known edges of the destination at a position, whose edges are `edges`.
    #[inline]
    pub(crate) fn known(&self, position: usize, dst: NodeId, edges: &Range<usize>) -> Result<KnownEdges> {
        let Some(times) = self.edges else {
            return Ok(KnownEdges { n_always: 0, first: 0, n: edges.len() as u32 });
        };
        let (start, end) = self.ranges[self.dsts.index()[position] as usize];
        let n_before_end = n_before(times, dst, edges, end)?;
        let Some(start) = start else { return Ok(KnownEdges { n_always: 0, first: 0, n: n_before_end }) };
        let n_always = n_before(times, dst, edges, EdgeTimes::ALWAYS + 1)?.min(n_before_end);
        let first = n_before(times, dst, edges, start)?.clamp(n_always, n_before_end);
        Ok(KnownEdges { n_always, first, n: n_before_end - first })
    }

    /// Returns the position of an edge among the known edges of its destination; `None` if it is not known. `place` is its
    /// position among all edges of the destination.
    pub(crate) fn known_position(
        &self,
        known: KnownEdges,
        dst: NodeId,
        edges: &Range<usize>,
        place: u32,
    ) -> Result<Option<u32>> {
        let Some(times) = self.edges else { return Ok(known.position(place)) };
        let key = (times.times()[edges.start + place as usize], place);
        let rank = partition_point(times, dst, edges, |time, other| (time, other) < key)?;
        Ok(known.position(rank))
    }

    /// Returns the position among a destination's edges of the known edge at a position.
    #[inline]
    pub(crate) fn place(
        &self,
        known: KnownEdges,
        dst: NodeId,
        edges: &Range<usize>,
        position: u32,
    ) -> Result<u32> {
        let rank = known.rank(position);
        match self.edges {
            None => Ok(rank),
            Some(times) => place_at(times, dst, edges, rank as usize),
        }
    }
}

/// Returns the number of edges of a destination before a time.
#[inline]
fn n_before(times: &EdgeTimes, dst: NodeId, edges: &Range<usize>, time: i64) -> Result<u32> {
    if edges.len() <= FEW_EDGES {
        let times = &times.times()[edges.clone()];
        return Ok(times.iter().map(|of_edge| u32::from(*of_edge < time)).sum());
    }
    partition_point(times, dst, edges, |of_edge, _| of_edge < time)
}

/// Returns the number of a destination's edges, in their order by time, that are before a border. `is_before` gets the time of
/// an edge and its position among the destination's edges.
fn partition_point(
    times: &EdgeTimes,
    dst: NodeId,
    edges: &Range<usize>,
    is_before: impl Fn(i64, u32) -> bool,
) -> Result<u32> {
    let mut low = 0;
    let mut high = edges.len();
    while low < high {
        let middle = low.midpoint(high);
        let place = place_at(times, dst, edges, middle)?;
        if is_before(times.times()[edges.start + place as usize], place) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low as u32)
}

/// Returns the position, among a destination's edges, of the edge with a rank by time. It is checked, because a mapped order
/// may be damaged.
#[inline]
fn place_at(times: &EdgeTimes, dst: NodeId, edges: &Range<usize>, rank: usize) -> Result<u32> {
    let place = times.order()[edges.start + rank];
    if place as usize >= edges.len() {
        let file = times.order_path().map(Path::to_owned);
        let degree = edges.len();
        return Err(Error::DamagedGraph(DamagedGraphError::BadTimeOrder { node: dst, place, degree, file }));
    }
    Ok(place)
}

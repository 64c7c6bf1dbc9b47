use std::ops::Range;
use std::path::Path;

use kiln_graph::{EdgeTimes, NodeId};
use kiln_mem::{prefetch_far, prefetch_range_far};

use crate::lanes::MOST_DSTS;
use crate::{DamagedGraphError, DstTimes, Error, KeyDomain, Result, RngKey, TimeLimits};

/// The largest number of edges whose entries in the order are all asked for.
const FEW_EDGES: usize = 96;

/// The largest number of destinations whose known edges are searched together.
const GROUP: usize = MOST_DSTS;

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
///
/// A *rank* is a position in the order by time, a *place* one among the destination's edges, ascending by id, and a *position*
/// one among its known edges, in the order of their ranks.
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

    /// Asks for the entries of the order that a search reads: all of few edges, the middle of many.
    #[inline]
    pub(crate) fn prefetch(&self, edges: &Range<usize>) {
        let Some(times) = self.edges else { return };
        if edges.len() <= FEW_EDGES {
            prefetch_range_far(times.order(), edges.start, edges.len());
            return;
        }
        let quarter = edges.len() / 4;
        for position in [quarter, 2 * quarter, 3 * quarter] {
            prefetch_far(times.order(), edges.start + position);
        }
    }

    /// Finds the known edges of consecutive destinations, from the one at `first` on, whose edges are `edges`. There are at
    /// most [`MOST_DSTS`].
    pub(crate) fn known_of_group(
        &self,
        first: usize,
        dsts: &[NodeId],
        edges: &[Range<usize>],
        known: &mut Vec<KnownEdges>,
    ) -> Result<()> {
        known.clear();
        let has_window = self.ranges.first().is_some_and(|(start, _)| start.is_some());
        let Some(times) = self.edges.filter(|_| !has_window) else {
            for ((position, dst), edges) in (first..).zip(dsts).zip(edges) {
                known.push(self.known(position, *dst, edges)?);
            }
            return Ok(());
        };
        let ends = &self.dsts.index()[first..first + dsts.len()];
        let search = Search::new(times, edges, |at| self.ranges[ends[at] as usize].1);
        for (at, n_before) in search.run(times).into_iter().enumerate().take(dsts.len()) {
            let end = self.ranges[ends[at] as usize].1;
            let n = exact_n_before(times, dsts[at], &edges[at], end, n_before)?;
            known.push(KnownEdges { n_always: 0, first: 0, n });
        }
        Ok(())
    }

    /// Returns the known edges of the destination at a position, whose edges are `edges`.
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
        let ranks = 0..edges.len() as u32;
        let rank = partition_point(times, dst, edges, ranks, |time, other| (time, other) < key)?;
        // In a damaged order, two edges could have one rank.
        if edges.len() <= rank as usize || place_at(times, dst, edges, rank as usize)? != place {
            return Err(bad_order(times, dst, edges, place));
        }
        Ok(known.position(rank))
    }

    /// Replaces positions among the known edges of a destination by those among all its edges.
    #[inline]
    pub(crate) fn to_places<'p>(
        &self,
        known: KnownEdges,
        dst: NodeId,
        edges: &Range<usize>,
        positions: impl Iterator<Item = &'p mut u32>,
    ) -> Result<()> {
        let Some(times) = self.edges else { return Ok(()) };
        let order = &times.order()[edges.clone()];
        let mask = position_mask(edges.len());
        // The reads are cache misses, which the processor overlaps because nothing in the loop depends on them.
        let mut largest = 0;
        for position in positions {
            let place = order[known.rank(*position) as usize] & mask;
            largest = largest.max(place);
            *position = place;
        }
        check_place(times, dst, edges, largest)
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

/// A search in the orders of a group of destinations at once, so that the processor overlaps their cache misses.
struct Search {
    /// For each destination, the start of its order.
    firsts: [usize; GROUP],
    /// For each destination, the position in the order before which all entries are below the border.
    starts: [usize; GROUP],
    /// The number of entries from there on that may be below the border.
    lens: [usize; GROUP],
    borders: [u32; GROUP],
    longest: usize,
}

impl Search {
    fn new(times: &EdgeTimes, edges: &[Range<usize>], end: impl Fn(usize) -> i64) -> Self {
        let mut search = Self {
            firsts: [0; GROUP],
            starts: [0; GROUP],
            lens: [0; GROUP],
            borders: [0; GROUP],
            longest: 0,
        };
        for (at, edges) in edges.iter().enumerate() {
            let border = times.border(end(at), EdgeTimes::position_bits(edges.len()));
            search.firsts[at] = edges.start;
            search.starts[at] = edges.start;
            if edges.len() <= FEW_EDGES {
                // Few entries are counted faster than searched.
                let order = &times.order()[edges.clone()];
                let n_before: u32 = order.iter().map(|entry| u32::from(*entry < border)).sum();
                search.starts[at] += n_before as usize;
                continue;
            }
            search.lens[at] = edges.len();
            search.borders[at] = border;
            search.longest = search.longest.max(edges.len());
        }
        search
    }

    /// Returns the number of entries below the border of each destination. Each step halves all ranges, without a branch that
    /// depends on an entry.
    fn run(mut self, times: &EdgeTimes) -> [u32; GROUP] {
        let order = times.order();
        let mut most_left = self.longest;
        while 0 < most_left {
            for at in 0..GROUP {
                let half = self.lens[at].div_ceil(2);
                let is_before = 0 < half && order[self.starts[at] + half - 1] < self.borders[at];
                self.starts[at] += if is_before { half } else { 0 };
                self.lens[at] = if is_before { self.lens[at] - half } else { half.saturating_sub(1) };
            }
            most_left /= 2;
        }
        std::array::from_fn(|at| (self.starts[at] - self.firsts[at]) as u32)
    }
}

/// Returns the number of edges of a destination before a time.
fn n_before(times: &EdgeTimes, dst: NodeId, edges: &Range<usize>, time: i64) -> Result<u32> {
    let border = times.border(time, EdgeTimes::position_bits(edges.len()));
    let n_below = times.order()[edges.clone()].partition_point(|entry| *entry < border);
    exact_n_before(times, dst, edges, time, n_below as u32)
}

/// Returns the number of edges of a destination before a time, of which `n_below` have entries below its border. Those with the
/// same upper bits are compared by their times.
#[inline]
fn exact_n_before(
    times: &EdgeTimes,
    dst: NodeId,
    edges: &Range<usize>,
    time: i64,
    n_below: u32,
) -> Result<u32> {
    let rest = &times.order()[edges.start + n_below as usize..edges.end];
    let bits = EdgeTimes::position_bits(edges.len());
    let border = times.border(time, bits);
    let is_at_border = |entry: &u32| u64::from(*entry) >> bits == u64::from(border) >> bits;
    if !rest.first().is_some_and(is_at_border) {
        return Ok(n_below);
    }
    let n_at_border = rest.partition_point(is_at_border) as u32;
    partition_point(times, dst, edges, n_below..n_below + n_at_border, |of_edge, _| of_edge < time)
}

/// Returns the number of a destination's edges, in their order by time, that are before a border, which is in a range of the
/// order. `is_before` gets the time of an edge and its position among the destination's edges.
fn partition_point(
    times: &EdgeTimes,
    dst: NodeId,
    edges: &Range<usize>,
    ranks: Range<u32>,
    is_before: impl Fn(i64, u32) -> bool,
) -> Result<u32> {
    let mut low = ranks.start as usize;
    let mut high = ranks.end as usize;
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

/// Returns the position, among a destination's edges, of the edge with a rank by time.
#[inline]
fn place_at(times: &EdgeTimes, dst: NodeId, edges: &Range<usize>, rank: usize) -> Result<u32> {
    let place = times.order()[edges.start + rank] & position_mask(edges.len());
    check_place(times, dst, edges, place)?;
    Ok(place)
}

/// Returns the bits of an entry of the order that have the position of an edge.
#[inline]
pub(crate) fn position_mask(degree: usize) -> u32 {
    ((1_u64 << EdgeTimes::position_bits(degree)) - 1) as u32
}

/// Checks that a position is one of a destination's edges, because a mapped order may be damaged.
#[inline]
fn check_place(times: &EdgeTimes, dst: NodeId, edges: &Range<usize>, place: u32) -> Result<()> {
    if (place as usize) < edges.len() {
        return Ok(());
    }
    Err(bad_order(times, dst, edges, place))
}

pub(crate) fn bad_order(times: &EdgeTimes, dst: NodeId, edges: &Range<usize>, place: u32) -> Error {
    let file = times.order_path().map(Path::to_owned);
    let degree = edges.len();
    Error::DamagedGraph(DamagedGraphError::BadTimeOrder { node: dst, place, degree, file })
}

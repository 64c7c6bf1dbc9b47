use std::ops::Range;
use std::path::Path;

use kiln_graph::{EdgeTimes, NodeId};
use kiln_mem::{prefetch, prefetch_far, prefetch_range_far};

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

/// The edges that a destination knows, as ranks in its order by time: those that have no time, and a range.
///
/// A *rank* is a position in the order by time, a *place* one among the destination's edges, ascending by id, and a *position*
/// one among its known edges, in the order of their ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownEdges {
    dst: NodeId,
    /// The range of all edges of the destination.
    pub(crate) edges: Range<usize>,
    n_always: u32,
    first: u32,
    n: u32,
}

impl KnownEdges {
    /// Returns the number of known edges.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        (self.n_always + self.n) as usize
    }

    /// Returns the rank in the order by time of the known edge at a position.
    #[inline]
    pub(crate) fn rank(&self, position: u32) -> u32 {
        if position < self.n_always { position } else { position - self.n_always + self.first }
    }

    /// Returns the position among the known edges of a rank in the order by time; `None` if the edge is not known.
    fn position(&self, rank: u32) -> Option<u32> {
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

    /// Asks for the entries of the order at which picks were drawn, at these positions among the known edges. Those of few edges
    /// have been asked for.
    #[inline]
    pub(crate) fn prefetch_picks(&self, known: &KnownEdges, positions: impl Iterator<Item = u32>) {
        let Some(times) = self.edges.filter(|_| FEW_EDGES < known.edges.len()) else { return };
        for position in positions {
            prefetch(times.order(), known.edges.start + known.rank(position) as usize);
        }
    }

    /// Appends the known edges of consecutive destinations, from the one at `first` on, whose edges are `edges`, each without a
    /// place of picks. There are at most [`MOST_DSTS`].
    pub(crate) fn known_of_group(
        &self,
        first: usize,
        dsts: &[NodeId],
        edges: &[Range<usize>],
        known: &mut Vec<(KnownEdges, Option<usize>)>,
    ) -> Result<()> {
        let has_window = self.ranges.first().is_some_and(|(start, _)| start.is_some());
        let Some(times) = self.edges.filter(|_| !has_window) else {
            for ((position, dst), edges) in (first..).zip(dsts).zip(edges) {
                known.push((self.known(position, *dst, edges.clone())?, None));
            }
            return Ok(());
        };
        let ends = &self.dsts.index()[first..first + dsts.len()];
        let search = Search::new(times, edges, |at| self.ranges[ends[at] as usize].1);
        for (at, n_before) in search.run(times, edges).into_iter().enumerate().take(dsts.len()) {
            let order = DstOrder { times, dst: dsts[at], edges: &edges[at] };
            let n = order.exact_n_before(self.ranges[ends[at] as usize].1, n_before)?;
            let edges = edges[at].clone();
            known.push((KnownEdges { dst: dsts[at], edges, n_always: 0, first: 0, n }, None));
        }
        Ok(())
    }

    /// Returns the known edges of the destination at a position, whose edges are `edges`.
    pub(crate) fn known(&self, position: usize, dst: NodeId, edges: Range<usize>) -> Result<KnownEdges> {
        let Some(times) = self.edges else {
            let n = edges.len() as u32;
            return Ok(KnownEdges { dst, edges, n_always: 0, first: 0, n });
        };
        let (start, end) = self.ranges[self.dsts.index()[position] as usize];
        let order = DstOrder { times, dst, edges: &edges };
        let n_before_end = order.n_before(end)?;
        let Some(start) = start else {
            return Ok(KnownEdges { dst, edges, n_always: 0, first: 0, n: n_before_end });
        };
        let n_always = order.n_before(EdgeTimes::ALWAYS + 1)?.min(n_before_end);
        let first = order.n_before(start)?.clamp(n_always, n_before_end);
        Ok(KnownEdges { dst, edges, n_always, first, n: n_before_end - first })
    }

    /// Returns the order of the edges of a destination; `None` if they have no times.
    #[inline]
    fn order<'k>(&self, known: &'k KnownEdges) -> Option<DstOrder<'k>>
    where
        'a: 'k,
    {
        Some(DstOrder { times: self.edges?, dst: known.dst, edges: &known.edges })
    }

    /// Returns the position of an edge among the known edges of its destination; `None` if it is not known. `place` is its
    /// position among all edges of the destination.
    pub(crate) fn known_position(&self, known: &KnownEdges, place: u32) -> Result<Option<u32>> {
        match self.order(known) {
            None => Ok(known.position(place)),
            Some(order) => Ok(known.position(order.rank(place)?)),
        }
    }

    /// Replaces positions among the known edges of a destination by those among all its edges.
    #[inline]
    pub(crate) fn to_places<'p>(
        &self,
        known: &KnownEdges,
        positions: impl Iterator<Item = &'p mut u32>,
    ) -> Result<()> {
        let Some(of_dst) = self.order(known) else { return Ok(()) };
        let order = &of_dst.times.order()[known.edges.clone()];
        let mask = position_mask(known.edges.len());
        // The reads are cache misses, which the processor overlaps because nothing in the loop depends on them.
        let mut largest = 0;
        for position in positions {
            let place = order[known.rank(*position) as usize] & mask;
            largest = largest.max(place);
            *position = place;
        }
        of_dst.check_place(largest)
    }

    /// Returns the position among a destination's edges of the known edge at a position.
    #[inline]
    pub(crate) fn place(&self, known: &KnownEdges, position: u32) -> Result<u32> {
        let rank = known.rank(position);
        match self.order(known) {
            None => Ok(rank),
            Some(order) => order.place(rank as usize),
        }
    }
}

/// A search in the orders of a group of destinations at once, so that the processor overlaps their cache misses.
struct Search {
    /// The number of edges below the border of each destination, once it is known.
    n_below: [u32; GROUP],
    /// The destinations with many edges, which are searched, and their number. The other arrays have an element for each.
    searched: [u8; GROUP],
    n_searched: usize,
    /// The position in the order before which all entries are below the border.
    starts: [usize; GROUP],
    /// The number of entries from there on that may be below the border.
    lens: [usize; GROUP],
    borders: [u32; GROUP],
}

impl Search {
    fn new(times: &EdgeTimes, edges: &[Range<usize>], end: impl Fn(usize) -> i64) -> Self {
        let mut search = Self {
            n_below: [0; GROUP],
            searched: [0; GROUP],
            n_searched: 0,
            starts: [0; GROUP],
            lens: [0; GROUP],
            borders: [0; GROUP],
        };
        for (at, edges) in edges.iter().enumerate() {
            let border = times.border(end(at), EdgeTimes::position_bits(edges.len()));
            if edges.len() <= FEW_EDGES {
                // Few entries are counted faster than searched.
                let order = &times.order()[edges.clone()];
                search.n_below[at] = order.iter().map(|entry| u32::from(*entry < border)).sum();
                continue;
            }
            let lane = search.n_searched;
            search.searched[lane] = at as u8;
            search.starts[lane] = edges.start;
            search.lens[lane] = edges.len();
            search.borders[lane] = border;
            search.n_searched += 1;
        }
        search
    }

    /// Returns the number of entries below the border of each destination. Each step halves all ranges, without a branch that
    /// depends on an entry.
    fn run(mut self, times: &EdgeTimes, edges: &[Range<usize>]) -> [u32; GROUP] {
        let order = times.order();
        let n_searched = self.n_searched.min(GROUP);
        let mut most_left = self.lens[..n_searched].iter().copied().max().unwrap_or(0);
        while 0 < most_left {
            for lane in 0..n_searched {
                let half = self.lens[lane].div_ceil(2);
                let is_before = 0 < half && order[self.starts[lane] + half - 1] < self.borders[lane];
                self.starts[lane] += if is_before { half } else { 0 };
                self.lens[lane] = if is_before { self.lens[lane] - half } else { half.saturating_sub(1) };
            }
            most_left /= 2;
        }
        for (at, start) in self.searched[..n_searched].iter().zip(self.starts) {
            let at = usize::from(*at);
            self.n_below[at] = (start - edges[at].start) as u32;
        }
        self.n_below
    }
}

/// The order by time of the edges of a destination.
struct DstOrder<'a> {
    times: &'a EdgeTimes,
    dst: NodeId,
    edges: &'a Range<usize>,
}

impl DstOrder<'_> {
    /// Returns the number of edges before a time.
    fn n_before(&self, time: i64) -> Result<u32> {
        let border = self.times.border(time, EdgeTimes::position_bits(self.edges.len()));
        let n_below = self.times.order()[self.edges.clone()].partition_point(|entry| *entry < border);
        self.exact_n_before(time, n_below as u32)
    }

    /// Returns the number of edges before a time, of which `n_below` have entries below its border. Those with the same upper bits
    /// are compared by their times.
    #[inline]
    fn exact_n_before(&self, time: i64, n_below: u32) -> Result<u32> {
        let rest = &self.times.order()[self.edges.start + n_below as usize..self.edges.end];
        let bits = EdgeTimes::position_bits(self.edges.len());
        let border = self.times.border(time, bits);
        let is_at_border = |entry: &u32| u64::from(*entry) >> bits == u64::from(border) >> bits;
        if !rest.first().is_some_and(is_at_border) {
            return Ok(n_below);
        }
        let n_at_border = rest.partition_point(is_at_border) as u32;
        self.partition_point(n_below..n_below + n_at_border, |of_edge, _| of_edge < time)
    }

    /// Returns the rank of the edge at a place.
    fn rank(&self, place: u32) -> Result<u32> {
        let key = (self.times.times()[self.edges.start + place as usize], place);
        let ranks = 0..self.edges.len() as u32;
        let rank = self.partition_point(ranks, |time, other| (time, other) < key)?;
        // In a damaged order, two edges could have one rank.
        if self.edges.len() <= rank as usize || self.place(rank as usize)? != place {
            return Err(self.bad(place));
        }
        Ok(rank)
    }

    /// Returns the number of edges, in the order by time, that are before a border, which is in a range of the order. `is_before`
    /// gets the time of an edge and its place.
    fn partition_point(&self, ranks: Range<u32>, is_before: impl Fn(i64, u32) -> bool) -> Result<u32> {
        let mut low = ranks.start as usize;
        let mut high = ranks.end as usize;
        while low < high {
            let middle = low.midpoint(high);
            let place = self.place(middle)?;
            if is_before(self.times.times()[self.edges.start + place as usize], place) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low as u32)
    }

    /// Returns the place of the edge with a rank.
    #[inline]
    fn place(&self, rank: usize) -> Result<u32> {
        let place = self.times.order()[self.edges.start + rank] & position_mask(self.edges.len());
        self.check_place(place)?;
        Ok(place)
    }

    /// Checks that a place is one of the destination's edges, because a mapped order may be damaged.
    #[inline]
    fn check_place(&self, place: u32) -> Result<()> {
        match (place as usize) < self.edges.len() {
            true => Ok(()),
            false => Err(self.bad(place)),
        }
    }

    fn bad(&self, place: u32) -> Error {
        bad_order(self.times, self.dst, self.edges, place)
    }
}

/// Returns the bits of an entry of the order that have the position of an edge.
#[inline]
pub(crate) fn position_mask(degree: usize) -> u32 {
    ((1_u64 << EdgeTimes::position_bits(degree)) - 1) as u32
}

/// Returns the error of an order whose entry has a place that is wrong.
pub(crate) fn bad_order(times: &EdgeTimes, dst: NodeId, edges: &Range<usize>, place: u32) -> Error {
    let file = times.order_path().map(Path::to_owned);
    let degree = edges.len();
    Error::DamagedGraph(DamagedGraphError::BadTimeOrder { node: dst, place, degree, file })
}

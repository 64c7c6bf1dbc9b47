//! The edges that a destination knows at its time, on a device: part of the kernels that pick from them.
//!
//! A *rank* is a position in the order of a destination's edges by time, a *place* one among all its edges, and a *position* one
//! among those that it knows, in the order of their ranks, as on the host (`crates/sample/src/known_edges.rs`).

use cubecl::prelude::*;
use kiln_graph::EdgeTimes;

use crate::cube::edge_times::DstTimes;
use crate::cube::excluded::{excluded_of, n_below_from};
use crate::cube::graph::{Graph, HopNodes};
use crate::cube::launch;

/// The neighbour lists of a hop whose destinations have times.
#[derive(CubeType, CubeLaunch)]
pub(super) struct TimedLists {
    indptr: Box<[u64]>,
    indices: Box<[u32]>,
    /// The order of each destination's edges by time; any array without `has_order`.
    order: Box<[u32]>,
    /// The time of each edge; any array without `has_order`.
    edge_times: Box<[i64]>,
    rows: Box<[u32]>,
    pub(super) nodes: Box<[u32]>,
    excluded: Box<[u32]>,
    /// For each destination, the position of its time.
    time_index: Box<[u32]>,
    /// For each time, the first known one and the end of the known ones.
    ranges: Box<[i64]>,
    /// For each time, the scaled ends of its range, and the words of its key.
    of_times: Box<[u32]>,
    /// [`EdgeTimes::ALWAYS`].
    always: i64,
    /// False if all edges are known at all times.
    #[cube(comptime)]
    has_order: bool,
    #[cube(comptime)]
    has_window: bool,
    #[cube(comptime)]
    excludes: bool,
}

/// Returns the lists as an argument of a launch.
pub(super) fn timed_lists(graph: &Graph, hop: &HopNodes, times: &DstTimes) -> TimedListsLaunch {
    let HopNodes { nodes, rows, excluded, .. } = hop;
    let (order, edge_times) = match &graph.times {
        Some(of_edges) => (&of_edges.order, &of_edges.times),
        None => (nodes, &times.ranges),
    };
    TimedListsLaunch::new(
        launch::buffer(&graph.indptr),
        launch::buffer(&graph.indices),
        launch::buffer(order),
        launch::buffer(edge_times),
        launch::buffer(rows),
        launch::buffer(nodes),
        launch::buffer(hop.excluded_or_any()),
        launch::buffer(&times.index),
        launch::buffer(&times.ranges),
        launch::buffer(&times.words),
        EdgeTimes::ALWAYS,
        graph.times.is_some(),
        times.has_window,
        excluded.is_some(),
    )
}

/// All edges of one destination with a time.
#[derive(CubeType)]
pub(super) struct TimedDst {
    node: u32,
    first_edge: u64,
    n_all: u32,
    /// The position of its time.
    time: u32,
}

/// Returns the edges of the destination at a position.
#[cube]
pub(super) fn timed_dst(lists: &TimedLists, dst: usize) -> TimedDst {
    let row = lists.rows[dst] as usize;
    let first_edge = lists.indptr[row];
    TimedDst {
        node: lists.nodes[dst],
        first_edge,
        n_all: u32::cast_from(lists.indptr[row + 1] - first_edge),
        time: lists.time_index[dst],
    }
}

/// The known edges of a destination, as ranks: those that have no time, and a range.
#[derive(CubeType)]
pub(super) struct Known {
    n_always: u32,
    first: u32,
    n: u32,
    /// The number of known edges that are left out.
    n_removed: u32,
}

#[cube]
impl Known {
    /// Returns the known edges of the destination at a position, as [`Known::store`] wrote them.
    pub(super) fn load(known: &[u32], dst: usize) -> Known {
        Known {
            n_always: known[4 * dst],
            first: known[4 * dst + 1],
            n: known[4 * dst + 2],
            n_removed: known[4 * dst + 3],
        }
    }

    /// Writes the known edges of the destination at a position.
    pub(super) fn store(&self, known: &mut [u32], dst: usize) {
        known[4 * dst] = self.n_always;
        known[4 * dst + 1] = self.first;
        known[4 * dst + 2] = self.n;
        known[4 * dst + 3] = self.n_removed;
    }

    /// Returns the number of known edges without those that are left out.
    pub(super) fn degree(&self) -> u32 {
        self.n_always + self.n - self.n_removed
    }
}

/// Finds the known edges of a destination.
#[cube]
pub(super) fn known_edges(lists: &TimedLists, of_dst: &TimedDst) -> Known {
    let mut n_always = 0u32;
    let mut first = 0u32;
    let mut end = of_dst.n_all;
    if comptime!(lists.has_order) {
        end = n_before(
            lists,
            of_dst,
            lists.ranges[(2 * of_dst.time + 1) as usize],
            lists.of_times[(4 * of_dst.time + 1) as usize],
        );
        if comptime!(lists.has_window) {
            // No scaled time is below that of an edge that was always known.
            n_always = min(n_before(lists, of_dst, lists.always + 1, 0u32), end);
            first = n_before(
                lists,
                of_dst,
                lists.ranges[(2 * of_dst.time) as usize],
                lists.of_times[(4 * of_dst.time) as usize],
            );
            first = min(max(first, n_always), end);
        }
    }
    let mut n_removed = 0u32;
    if comptime!(lists.excludes) {
        n_removed = n_removed_to(lists, of_dst, lists.ranges[(2 * of_dst.time + 1) as usize], u32::MAX);
    }
    Known { n_always, first, n: end - first, n_removed }
}

/// Returns the lower bits of the entries of an order that have the place of an edge ([`EdgeTimes::position_bits`]).
#[cube]
fn place_mask(n_all: u32) -> u32 {
    let mut mask = max(n_all, 1u32) - 1;
    mask |= mask >> 1;
    mask |= mask >> 2;
    mask |= mask >> 4;
    mask |= mask >> 8;
    mask | (mask >> 16)
}

/// Returns the number of edges of a destination before a time, by binary search. `scaled` is the scaled time.
#[cube]
fn n_before(lists: &TimedLists, of_dst: &TimedDst, time: i64, scaled: u32) -> u32 {
    let mask = place_mask(of_dst.n_all);
    let border = scaled - (scaled & mask);
    let mut low = 0u32;
    let mut high = of_dst.n_all;
    while low < high {
        let middle = low + (high - low) / 2;
        let entry = lists.order[usize::cast_from(of_dst.first_edge + u64::cast_from(middle))];
        let place = entry & mask;
        let mut is_before = entry - place < border;
        if entry - place == border {
            is_before = time_at(lists, of_dst, place) < time;
        }
        if is_before {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cube]
fn time_at(lists: &TimedLists, of_dst: &TimedDst, place: u32) -> i64 {
    lists.edge_times[usize::cast_from(of_dst.first_edge + u64::cast_from(place))]
}

/// Returns true if a destination knows its edge at a place.
#[cube]
fn is_known(lists: &TimedLists, of_dst: &TimedDst, place: u32) -> bool {
    let mut is_known = true;
    if comptime!(lists.has_order) {
        let time = time_at(lists, of_dst, place);
        is_known = time < lists.ranges[(2 * of_dst.time + 1) as usize];
        if comptime!(lists.has_window) {
            let is_recent = time >= lists.ranges[(2 * of_dst.time) as usize] || time == lists.always;
            is_known = is_known && is_recent;
        }
    }
    is_known
}

/// Returns true if a destination knows its edge at a place and does not leave it out.
#[cube]
pub(super) fn is_listed(lists: &TimedLists, of_dst: &TimedDst, place: u32) -> bool {
    let mut is_listed = is_known(lists, of_dst, place);
    if comptime!(lists.excludes) {
        let src = lists.indices[usize::cast_from(of_dst.first_edge + u64::cast_from(place))];
        let range = excluded_of(&lists.excluded, of_dst.node);
        let found = n_below_from(&lists.excluded, 0u64, range.start, range.end, src);
        if found < range.end {
            is_listed = is_listed && lists.excluded[found as usize] != src;
        }
    }
    is_listed
}

/// Returns the number of known edges that a destination leaves out and that are not behind an edge in the order by time, which has a
/// time and a place.
#[cube]
fn n_removed_to(lists: &TimedLists, of_dst: &TimedDst, last_time: i64, last_place: u32) -> u32 {
    let range = excluded_of(&lists.excluded, of_dst.node);
    let mut n_removed = 0u32;
    // The sources ascend, so each search begins where the last one ended.
    let mut n_until = 0u32;
    for number in range.start..range.end {
        let src = lists.excluded[number as usize];
        let first = n_below_from(&lists.indices, of_dst.first_edge, n_until, of_dst.n_all, src);
        n_until = n_below_from(&lists.indices, of_dst.first_edge, first, of_dst.n_all, src + 1);
        for place in first..n_until {
            let mut counts = place <= last_place;
            if comptime!(lists.has_order) {
                let time = time_at(lists, of_dst, place);
                counts = time < last_time || (time == last_time && counts);
                counts = counts && is_known(lists, of_dst, place);
            }
            n_removed += u32::cast_from(counts);
        }
    }
    n_removed
}

/// Returns the place of the known edge at a position, of those that are left out or not.
#[cube]
fn place_of(lists: &TimedLists, of_dst: &TimedDst, known: &Known, position: u32) -> u32 {
    let mut place = select(position < known.n_always, position, position - known.n_always + known.first);
    if comptime!(lists.has_order) {
        let entry = lists.order[usize::cast_from(of_dst.first_edge + u64::cast_from(place))];
        place = entry & place_mask(of_dst.n_all);
    }
    place
}

/// Returns the place of the known edge at a position among those that are not left out.
#[cube]
pub(super) fn place_of_remaining(lists: &TimedLists, of_dst: &TimedDst, known: &Known, position: u32) -> u32 {
    let mut low = position;
    if comptime!(lists.excludes) {
        // The first edge with `position` others before it that are not left out, by binary search.
        let mut high = position + known.n_removed;
        while low < high {
            let middle = low + (high - low) / 2;
            let place = place_of(lists, of_dst, known, middle);
            let mut time = lists.always;
            if comptime!(lists.has_order) {
                time = time_at(lists, of_dst, place);
            }
            if middle - position < n_removed_to(lists, of_dst, time, place) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    place_of(lists, of_dst, known, low)
}

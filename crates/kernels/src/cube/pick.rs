//! Picks of one hop: the in-edges that are sampled for each destination.
//!
//! ```text
//! offsets[d + 1] - offsets[d] = the number of picked edges of nodes[d]
//! edge_ids[offsets[d]..offsets[d + 1]] = these edges, ascending
//! srcs[offsets[d]..offsets[d + 1]] = their sources
//! ```
//!
//! * *Contract.* The picks are identical to those of [`kiln_sample::NeighborSampler`] for the same key: draws come from
//!   the counter-based generator, keyed by the node, and are bounded and sorted in integer arithmetic (`docs/rng.md`).
//!   Outputs are overwritten up to the number of picks. Kernels do not check ids; the host checked them before the
//!   upload.
//! * *Work distribution.* One unit per destination, which inserts one pick after the other into a sorted list. If all
//!   edges are taken, one unit per edge, so that many units share the work of a hub.
//! * *Cost.* For each destination, a random read of two entries of `indptr`, and about `fanout^2 / 4` moves in a list
//!   that stays in the L1 cache. This suits fanouts of up to a few dozen. If edges are left out, also a binary search
//!   for the destination, and two in its neighbour list per edge to leave out, for the destination and for each pick.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::edge_times::Keys;
use crate::cube::excluded::{excluded_of, in_whole_list};
use crate::cube::graph::{Graph, HopNodes};
use crate::cube::launch::{self, launch_units};
use crate::cube::neighborhood::{How, Neighborhood, Picked, neighborhood, store_picks};
use crate::cube::philox::{draw4, word};
use crate::cube::rule::DeviceRule;
use crate::cube::scan::{Values, running_sums_of};
use crate::cube::segments::segment_of;

/// The number of edges that are picked for each destination.
pub(super) struct PickCounts;

#[derive(CubeType, CubeLaunch)]
pub(super) struct PickCountsInputs {
    indptr: Box<[u64]>,
    indices: Box<[u32]>,
    rows: Box<[u32]>,
    nodes: Box<[u32]>,
    excluded: Box<[u32]>,
    fanout: u32,
    #[cube(comptime)]
    how: How,
    #[cube(comptime)]
    excludes: bool,
}

#[cube]
impl Values for PickCounts {
    type Inputs = PickCountsInputs;

    fn value(inputs: &PickCountsInputs, position: usize) -> u32 {
        let row = inputs.rows[position];
        let node = inputs.nodes[position];
        let indptr = &inputs.indptr;
        let indices = &inputs.indices;
        let excluded = &inputs.excluded;
        let of_dst = neighborhood(indptr, indices, excluded, row, node, inputs.how, inputs.excludes);
        match comptime!(inputs.how) {
            How::All => of_dst.degree,
            How::WithReplacement => select(of_dst.degree == 0, 0u32, inputs.fanout),
            _ => of_dst.n_loops + min(of_dst.degree - of_dst.n_loops, inputs.fanout),
        }
    }
}

/// Inserts a number into the sorted list of `n` numbers that begins at `start`. If the numbers must be distinct and the
/// list already contains `number`, inserts `otherwise` instead, which must be larger than all numbers of the list.
#[cube]
pub(super) fn insert(
    sorted: &mut [u32],
    start: u32,
    n: u32,
    number: u32,
    otherwise: u32,
    #[comptime] is_distinct: bool,
) {
    let mut n_before = 0u32;
    let mut is_there = false;
    for place in start..start + n {
        let other = sorted[place as usize];
        n_before += u32::cast_from(other < number);
        if comptime!(is_distinct) {
            is_there = is_there || other == number;
        }
    }
    if is_there {
        sorted[(start + n) as usize] = otherwise;
    } else {
        let mut place = start + n;
        while place > start + n_before {
            sorted[place as usize] = sorted[(place - 1) as usize];
            place -= 1;
        }
        sorted[place as usize] = number;
    }
}

/// Draws the picks of a destination into a sorted list: without replacement by Floyd's algorithm, or with replacement.
#[cube]
fn draw(
    picks: &mut [u32],
    start: u32,
    n_picks: u32,
    degree: u32,
    node: u32,
    key_low: u32,
    key_high: u32,
    #[comptime] how: How,
) {
    for group in 0..n_picks.div_ceil(4) {
        let words = draw4(key_low, key_high, 0u32, node, group);
        for lane in 0..min(n_picks - 4 * group, 4u32) {
            let n = 4 * group + lane;
            let drawn = word(&words, lane);
            if comptime!(how == How::WithReplacement) {
                insert(picks, start, n, drawn.mul_hi(degree), 0u32, false);
            } else {
                let last = degree - n_picks + n;
                insert(picks, start, n, drawn.mul_hi(last + 1), last, true);
            }
        }
    }
}

/// Same as [`draw`], but takes all edges if there are no more than picks without replacement.
#[cube]
pub(super) fn draw_or_take_all(
    picks: &mut [u32],
    start: u32,
    n_picks: u32,
    degree: u32,
    node: u32,
    key_low: u32,
    key_high: u32,
    #[comptime] how: How,
) {
    if comptime!(how == How::WithReplacement) || n_picks < degree {
        draw(picks, start, n_picks, degree, node, key_low, key_high, how);
    } else {
        for position in 0..n_picks {
            picks[(start + position) as usize] = position;
        }
    }
}

/// Writes the positions of a destination's picks among its edges to `picks[start..end]`, ascending.
#[cube]
pub(super) fn pick_positions(
    of_dst: &Neighborhood,
    picks: &mut [u32],
    start: u32,
    end: u32,
    node: u32,
    key_low: u32,
    key_high: u32,
    #[comptime] how: How,
) {
    let n_picks = end - start;
    // The first `n_loops` entries are reserved for the loops, which are merged in below.
    let n_others = of_dst.degree - of_dst.n_loops;
    let n_drawn = n_picks - of_dst.n_loops;
    let drawn = start + of_dst.n_loops;
    draw_or_take_all(picks, drawn, n_drawn, n_others, node, key_low, key_high, how);
    if comptime!(how == How::WithLoop) {
        // Positions were drawn as if there were no loops, so the positions from that of the first loop on are moved
        // behind the loops.
        let mut n_before = 0u32;
        for number in 0..n_drawn {
            let position = picks[(drawn + number) as usize];
            if position < of_dst.loops {
                picks[(start + number) as usize] = position;
                n_before += 1;
            } else {
                picks[(drawn + number) as usize] = position + of_dst.n_loops;
            }
        }
        for number in 0..of_dst.n_loops {
            picks[(start + n_before + number) as usize] = of_dst.loops + number;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn pick(
    indptr: &[u64],
    indices: &[u32],
    rows: &[u32],
    nodes: &[u32],
    excluded: &[u32],
    offsets: &[u32],
    edge_ids: &mut [i64],
    srcs: &mut [u32],
    key_low: u32,
    key_high: u32,
    #[comptime] how: How,
    #[comptime] excludes: bool,
) {
    let dst = ABSOLUTE_POS;
    if dst >= nodes.len() {
        terminate!();
    }
    let node = nodes[dst];
    let of_dst = neighborhood(indptr, indices, excluded, rows[dst], node, how, excludes);
    let start = offsets[dst];
    let end = offsets[dst + 1];
    pick_positions(&of_dst, srcs, start, end, node, key_low, key_high, how);
    store_picks(indices, excluded, &of_dst, edge_ids, srcs, start, end, excludes);
}

/// Same as [`pick`], from all edges, with the key of the time of each destination: word 2 and 3 of four words of each time.
#[cube(launch, address_type = "dynamic")]
fn pick_by_time(
    indptr: &[u64],
    indices: &[u32],
    rows: &[u32],
    nodes: &[u32],
    offsets: &[u32],
    edge_ids: &mut [i64],
    srcs: &mut [u32],
    time_index: &[u32],
    of_times: &[u32],
    #[comptime] how: How,
) {
    let dst = ABSOLUTE_POS;
    if dst >= nodes.len() {
        terminate!();
    }
    let node = nodes[dst];
    let key = 4 * time_index[dst] as usize + 2;
    // No edge is left out, so the list of such edges is not read: any array can stand for it.
    let of_dst = neighborhood(indptr, indices, indices, rows[dst], node, how, false);
    let start = offsets[dst];
    let end = offsets[dst + 1];
    pick_positions(&of_dst, srcs, start, end, node, of_times[key], of_times[key + 1], how);
    store_picks(indices, indices, &of_dst, edge_ids, srcs, start, end, false);
}

/// Lists all edges of all destinations, without those that are left out.
#[cube(launch, address_type = "dynamic")]
fn take_all(
    indptr: &[u64],
    indices: &[u32],
    rows: &[u32],
    nodes: &[u32],
    excluded: &[u32],
    offsets: &[u32],
    edge_ids: &mut [i64],
    srcs: &mut [u32],
    #[comptime] excludes: bool,
) {
    let n_edges = offsets[offsets.len() - 1];
    if ABSOLUTE_POS >= n_edges as usize {
        terminate!();
    }
    let dst = segment_of(offsets, ABSOLUTE_POS as u32);
    let mut position = ABSOLUTE_POS as u32 - offsets[dst];
    let first_edge = indptr[rows[dst] as usize];
    if comptime!(excludes) {
        let n_all = u32::cast_from(indptr[rows[dst] as usize + 1] - first_edge);
        let range = excluded_of(excluded, nodes[dst]);
        position = in_whole_list(indices, first_edge, n_all, excluded, range.start, range.end, position);
    }
    let edge = first_edge + u64::cast_from(position);
    edge_ids[ABSOLUTE_POS] = i64::cast_from(edge);
    srcs[ABSOLUTE_POS] = indices[usize::cast_from(edge)];
}

/// The parameters of the picks of one hop.
pub(super) struct Picking<'a> {
    pub(super) graph: &'a Graph,
    pub(super) hop: &'a HopNodes,
    pub(super) how: How,
    /// The rule of [`How::ByRule`].
    pub(super) rule: Option<&'a DeviceRule>,
    pub(super) fanout: u32,
}

impl Picking<'_> {
    /// Computes the first edge of each destination, `[n_dst + 1]`; the last entry is the number of picked edges.
    pub(super) fn offsets(&self) -> CubeTensor {
        let Self { graph, hop, how, rule, fanout } = self;
        if let Some(rule) = rule {
            return rule.launches().offsets(graph, hop, *fanout);
        }
        let HopNodes { nodes, rows, excluded, .. } = hop;
        running_sums_of::<PickCounts>(nodes, launch::length(nodes), || {
            let [indptr, indices, rows, nodes, excluded_edges] =
                [&graph.indptr, &graph.indices, rows, nodes, hop.excluded_or_any()].map(launch::buffer);
            let excludes = excluded.is_some();
            PickCountsInputsLaunch::new(indptr, indices, rows, nodes, excluded_edges, *fanout, *how, excludes)
        })
    }

    /// Picks the edges. `offsets` has the first edge of each destination, and `most_edges` is an upper bound on the
    /// number of picked edges.
    /// With keys of times, no edge is left out.
    pub(super) fn edges(&self, offsets: &CubeTensor, most_edges: usize, keys: Keys<'_>) -> Picked {
        let Self { graph, hop, how, rule, fanout } = self;
        if let Some(rule) = rule {
            return rule.launches().edges(graph, hop, *fanout, offsets, most_edges, keys);
        }
        let HopNodes { nodes, rows, excluded, .. } = hop;
        let picked = Picked::new(nodes, most_edges);
        match keys {
            _ if *how == How::All => launch_units!(
                take_all,
                nodes,
                most_edges,
                launch::buffer(&graph.indptr),
                launch::buffer(&graph.indices),
                launch::buffer(rows),
                launch::buffer(nodes),
                launch::buffer(hop.excluded_or_any()),
                launch::buffer(offsets),
                launch::buffer(&picked.edge_ids),
                launch::buffer(&picked.srcs),
                excluded.is_some()
            ),
            Keys::OfHop(key) => {
                let [key_low, key_high] = key.words();
                launch_units!(
                    pick,
                    nodes,
                    launch::length(nodes),
                    launch::buffer(&graph.indptr),
                    launch::buffer(&graph.indices),
                    launch::buffer(rows),
                    launch::buffer(nodes),
                    launch::buffer(hop.excluded_or_any()),
                    launch::buffer(offsets),
                    launch::buffer(&picked.edge_ids),
                    launch::buffer(&picked.srcs),
                    key_low,
                    key_high,
                    *how,
                    excluded.is_some()
                );
            }
            Keys::OfTimes(times) => launch_units!(
                pick_by_time,
                nodes,
                launch::length(nodes),
                launch::buffer(&graph.indptr),
                launch::buffer(&graph.indices),
                launch::buffer(rows),
                launch::buffer(nodes),
                launch::buffer(offsets),
                launch::buffer(&picked.edge_ids),
                launch::buffer(&picked.srcs),
                launch::buffer(&times.index),
                launch::buffer(&times.words),
                *how
            ),
        }
        picked
    }
}

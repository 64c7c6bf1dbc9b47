//! Picks of one hop whose destinations have times: each picks only from the edges that it knows, as if the graph had no others.
//!
//! * *Contract.* As for picks without times (`pick.rs`), with the picks of [`kiln_sample::NeighborSampler`] for destinations with
//!   times. Rules that read only the number of edges pick in the order of the edges by time, the others in the lists of known edges
//!   (`known_lists.rs`).
//! * *Work distribution.* One unit per destination finds the range of its known edges by binary search, one draws the positions of its
//!   picks, and one sorts the picked edges; one unit per pick looks up the edge at its position.
//! * *Cost.* About `log(degree)` random reads of 4 bytes per destination, with a window three times as many, and per pick one of 4
//!   bytes besides those of picks without times. If a destination leaves out `n` edges, each of its picks walks over them `log(n)` times,
//!   because their ranks are not stored.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::edge_times::DstTimes;
use crate::cube::known_edges::{Known, TimedLists, known_edges, place_of_remaining, timed_dst, timed_lists};
use crate::cube::launch::{self, launch_units};
use crate::cube::neighborhood::{How, Picked};
use crate::cube::pick::{Picking, draw_or_take_all, insert};
use crate::cube::scan::{Values, running_sums_of};
use crate::cube::segments::segment_of;

/// Writes the known edges of each destination, four words each.
#[cube(launch, address_type = "dynamic")]
fn find_known(lists: &TimedLists, known: &mut [u32]) {
    let dst = ABSOLUTE_POS;
    if dst >= lists.nodes.len() {
        terminate!();
    }
    let of_dst = timed_dst(lists, dst);
    known_edges(lists, &of_dst).store(known, dst);
}

/// The number of known edges that are picked for each destination.
struct KnownCounts;

#[derive(CubeType, CubeLaunch)]
struct KnownCountsInputs {
    known: Box<[u32]>,
    fanout: u32,
    #[cube(comptime)]
    how: How,
}

#[cube]
impl Values for KnownCounts {
    type Inputs = KnownCountsInputs;

    fn value(inputs: &KnownCountsInputs, position: usize) -> u32 {
        let degree = Known::load(&inputs.known, position).degree();
        match comptime!(inputs.how) {
            How::WithReplacement => select(degree == 0, 0u32, inputs.fanout),
            How::Uniform | How::MostRecent => min(degree, inputs.fanout),
            // Those of rules that read neighbours are counted in the lists.
            _ => degree,
        }
    }
}

/// Writes the positions of the picks of each destination among its known edges to `picks`.
#[cube(launch, address_type = "dynamic")]
fn draw_known(
    nodes: &[u32],
    time_index: &[u32],
    of_times: &[u32],
    known: &[u32],
    offsets: &[u32],
    picks: &mut [u32],
    #[comptime] how: How,
) {
    let dst = ABSOLUTE_POS;
    if dst >= nodes.len() {
        terminate!();
    }
    let start = offsets[dst];
    let n_picks = offsets[dst + 1] - start;
    let degree = Known::load(known, dst).degree();
    if comptime!(how == How::MostRecent) {
        for number in 0..n_picks {
            picks[(start + number) as usize] = degree - n_picks + number;
        }
    } else {
        let key = 4 * time_index[dst] as usize + 2;
        draw_or_take_all(picks, start, n_picks, degree, nodes[dst], of_times[key], of_times[key + 1], how);
    }
}

/// Replaces the position of each pick by its place among all edges of the destination.
#[cube(launch, address_type = "dynamic")]
fn place_known(lists: &TimedLists, known: &[u32], offsets: &[u32], picks: &mut [u32]) {
    let pick = ABSOLUTE_POS;
    if pick >= offsets[offsets.len() - 1] as usize {
        terminate!();
    }
    let dst = segment_of(offsets, pick as u32);
    let of_dst = timed_dst(lists, dst);
    let known = Known::load(known, dst);
    picks[pick] = place_of_remaining(lists, &of_dst, &known, picks[pick]);
}

/// Sorts the places of each destination's picks, and replaces them by the sources of the edges, whose ids it writes.
#[cube(launch, address_type = "dynamic")]
fn store_known(
    indptr: &[u64],
    indices: &[u32],
    rows: &[u32],
    offsets: &[u32],
    edge_ids: &mut [i64],
    picks: &mut [u32],
) {
    let dst = ABSOLUTE_POS;
    if dst >= rows.len() {
        terminate!();
    }
    let first_edge = indptr[rows[dst] as usize];
    let start = offsets[dst];
    let end = offsets[dst + 1];
    for number in 0..end - start {
        let place = picks[(start + number) as usize];
        insert(picks, start, number, place, 0u32, false);
    }
    for slot in start..end {
        let edge = first_edge + u64::cast_from(picks[slot as usize]);
        edge_ids[slot as usize] = i64::cast_from(edge);
        picks[slot as usize] = indices[usize::cast_from(edge)];
    }
}

/// Computes the factor of the weights of each destination's picks, as that of picks without times (`pick_weights.rs`).
#[cube(launch, address_type = "dynamic")]
fn known_weight_factors(known: &[u32], offsets: &[u32], factors: &mut [f32]) {
    let dst = ABSOLUTE_POS;
    if dst >= factors.len() {
        terminate!();
    }
    let degree = Known::load(known, dst).degree();
    // Without picks, no edge reads the factor.
    let n_picks = max(offsets[dst + 1] - offsets[dst], 1u32);
    factors[dst] = f32::cast_from(degree) / f32::cast_from(n_picks);
}

/// The known edges of the destinations of a hop.
pub(super) struct KnownOfHop {
    /// Four words per destination.
    known: CubeTensor,
    n_dst: usize,
}

impl KnownOfHop {
    pub(super) fn new(picking: &Picking<'_>, times: &DstTimes) -> Self {
        let Picking { graph, hop, .. } = picking;
        let n_dst = launch::length(&hop.nodes);
        let known = launch::new_array(&hop.nodes, 4 * n_dst);
        launch_units!(find_known, &hop.nodes, n_dst, timed_lists(graph, hop, times), launch::buffer(&known));
        Self { known, n_dst }
    }

    /// Computes the first edge of each destination, `[n_dst + 1]`. For rules that read neighbours, all known edges count.
    pub(super) fn offsets(&self, fanout: u32, how: How) -> CubeTensor {
        running_sums_of::<KnownCounts>(&self.known, self.n_dst, || {
            KnownCountsInputsLaunch::new(launch::buffer(&self.known), fanout, how)
        })
    }

    /// Picks edges by a rule that reads only their number.
    pub(super) fn edges(
        &self,
        picking: &Picking<'_>,
        times: &DstTimes,
        offsets: &CubeTensor,
        most_edges: usize,
    ) -> Picked {
        let Picking { graph, hop, how, .. } = picking;
        let picked = Picked::new(&hop.nodes, most_edges);
        launch_units!(
            draw_known,
            &hop.nodes,
            self.n_dst,
            launch::buffer(&hop.nodes),
            launch::buffer(&times.index),
            launch::buffer(&times.words),
            launch::buffer(&self.known),
            launch::buffer(offsets),
            launch::buffer(&picked.srcs),
            *how
        );
        launch_units!(
            place_known,
            &hop.nodes,
            most_edges,
            timed_lists(graph, hop, times),
            launch::buffer(&self.known),
            launch::buffer(offsets),
            launch::buffer(&picked.srcs)
        );
        launch_units!(
            store_known,
            &hop.nodes,
            self.n_dst,
            launch::buffer(&graph.indptr),
            launch::buffer(&graph.indices),
            launch::buffer(&hop.rows),
            launch::buffer(offsets),
            launch::buffer(&picked.edge_ids),
            launch::buffer(&picked.srcs)
        );
        picked
    }

    /// Returns the factor of the weights of each destination's picks.
    pub(super) fn weight_factors(&self, offsets: &CubeTensor) -> CubeTensor {
        let factors = launch::new_tensor(offsets, Shape::new([self.n_dst]), DType::F32);
        launch_units!(
            known_weight_factors,
            offsets,
            self.n_dst,
            launch::buffer(&self.known),
            launch::buffer(offsets),
            launch::buffer(&factors)
        );
        factors
    }
}

//! Picks of one hop by a rule that is written in CubeCL.
//!
//! ```text
//! offsets[d + 1] - offsets[d] = min(R::n_picks(degree(d), fanout), fanout)
//! edge_ids[offsets[d]..offsets[d + 1]] = the edges at the positions that R::pick writes, ascending
//! srcs[offsets[d]..offsets[d + 1]] = their sources
//! ```
//!
//! * *Contract.* As for the picks of built-in rules (`pick.rs`). A rule sees the neighbours without the edges that are left
//!   out, and is not called for a destination without neighbours.
//! * *Work distribution.* One unit per destination, which runs the rule and sorts its picks by insertion.
//! * *Cost.* That of the rule, and about `fanout^2 / 4` moves for picks that do not ascend. The host waits once more per hop,
//!   for whether all positions were below the degrees.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use kiln_sample::SamplingRule;

use crate::cube::edge_times::Keys;
use crate::cube::excluded::in_whole_list;
use crate::cube::graph::{Graph, HopNodes};
use crate::cube::launch;
use crate::cube::neighborhood::{How, Neighborhood, Picked, neighborhood, store_picks};
use crate::cube::philox::{draw4, word};
use crate::cube::scan::running_sums;

/// A sampling rule in CubeCL, for [`DeviceRule::new`]: the same rule as a [`SamplingRule`] in Rust, which picks on the host.
/// Both must pick the same positions for the same draws, so that batches do not depend on the device. A rule that
/// [keeps self loops](SamplingRule::keeps_self_loops) has no version for devices.
#[allow(missing_docs, reason = "the macro adds functions")]
#[cube]
pub trait CubeRule: Send + Sync + 'static {
    /// Returns the number of picks of a destination with `degree` neighbours, at least 1. Numbers above `fanout` count as
    /// `fanout`.
    fn n_picks(degree: u32, fanout: u32) -> u32;

    /// Writes the positions of the picked neighbours, each below [`DeviceNeighbors::degree`], to all places of `picks`, in any
    /// order. All random draws must come from `draws`. `lists` are the neighbour lists for [`DeviceNeighbors::id`].
    fn pick(neighbors: &DeviceNeighbors, lists: &NeighborLists, draws: &NodeDraws, picks: &mut [u32]);
}

/// The draws of one node on a device, those of [`kiln_sample::NodeKey::rng`] by their number.
#[derive(Debug, CubeType)]
pub struct NodeDraws {
    key_low: u32,
    key_high: u32,
    node: u32,
}

#[cube]
impl NodeDraws {
    /// Returns the draw with this number, uniform over all 32-bit numbers.
    pub fn next_u32(&self, number: u32) -> u32 {
        let words = draw4(self.key_low, self.key_high, 0u32, self.node, number / 4);
        word(&words, number % 4)
    }

    /// Returns a number below `n` from the draw with this number, as [`kiln_sample::NodeRng::below`] does.
    pub fn below(&self, number: u32, n: u32) -> u32 {
        self.next_u32(number).mul_hi(n)
    }

    /// Returns a number in `[0, 1)` from the draw with this number, as [`kiln_sample::NodeRng::unit_f32`] does.
    pub fn unit_f32(&self, number: u32) -> f32 {
        f32::cast_from(self.next_u32(number) >> 8) * (1.0f32 / 16_777_216.0f32)
    }
}

/// The in-neighbours of one destination on a device, without the edges that are left out, in ascending order of edge ids.
#[derive(Debug, CubeType)]
pub struct DeviceNeighbors {
    /// The destination.
    pub dst: u32,
    /// The number of neighbours.
    pub degree: u32,
    of_dst: Neighborhood,
}

#[cube]
impl DeviceNeighbors {
    /// Returns the node id of the neighbour at a position below `degree`.
    pub fn id(&self, lists: &NeighborLists, position: u32) -> u32 {
        let of_dst = &self.of_dst;
        let mut place = position;
        if comptime!(lists.excludes) {
            place = in_whole_list(
                &lists.indices,
                of_dst.first_edge,
                of_dst.n_all,
                &lists.excluded,
                of_dst.first_excluded,
                of_dst.end_excluded,
                position,
            );
        }
        lists.indices[usize::cast_from(of_dst.first_edge + u64::cast_from(place))]
    }
}

/// The neighbour lists of a hop in a device's memory.
#[derive(Debug, CubeType, CubeLaunch)]
pub struct NeighborLists {
    indptr: Box<[u64]>,
    indices: Box<[u32]>,
    rows: Box<[u32]>,
    nodes: Box<[u32]>,
    excluded: Box<[u32]>,
    fanout: u32,
    #[cube(comptime)]
    excludes: bool,
}

/// Returns the neighbours of the destination at a position.
#[cube]
fn neighbors_of(lists: &NeighborLists, dst: usize) -> DeviceNeighbors {
    let node = lists.nodes[dst];
    let of_dst = neighborhood(
        &lists.indptr,
        &lists.indices,
        &lists.excluded,
        lists.rows[dst],
        node,
        How::ByRule,
        lists.excludes,
    );
    DeviceNeighbors { dst: node, degree: of_dst.degree, of_dst }
}

/// Writes the number of edges that a rule picks for each destination.
#[cube(launch, address_type = "dynamic")]
fn count_by_rule<R: CubeRule>(lists: &NeighborLists, counts: &mut [u32]) {
    let dst = ABSOLUTE_POS;
    if dst >= counts.len() {
        terminate!();
    }
    let neighbors = neighbors_of(lists, dst);
    let mut n_picks = 0u32;
    if neighbors.degree != 0 {
        n_picks = min(R::n_picks(neighbors.degree, lists.fanout), lists.fanout);
    }
    counts[dst] = n_picks;
}

/// Picks the edges of the destination at a position, with its key.
#[cube]
fn pick_for<R: CubeRule>(
    lists: &NeighborLists,
    dst: usize,
    offsets: &[u32],
    edge_ids: &mut [i64],
    srcs: &mut [u32],
    invalid: &mut [u32],
    key_low: u32,
    key_high: u32,
) {
    let start = offsets[dst];
    let end = offsets[dst + 1];
    // A rule is not called for a destination without picks.
    if start < end {
        let neighbors = neighbors_of(lists, dst);
        let draws = NodeDraws { key_low, key_high, node: neighbors.dst };
        // Until the end, `srcs` has the positions of the picks among the edges of the destination.
        R::pick(&neighbors, lists, &draws, srcs.slice_mut(start as usize, end as usize));
        for number in 0..end - start {
            let mut position = srcs[(start + number) as usize];
            if position >= neighbors.degree {
                // Any of the destinations with such a pick will do for the error.
                invalid[0] = neighbors.dst;
                position = 0u32;
            }
            let mut place = start + number;
            while place > start && srcs[(place - 1) as usize] > position {
                srcs[place as usize] = srcs[(place - 1) as usize];
                place -= 1;
            }
            srcs[place as usize] = position;
        }
        store_picks(
            &lists.indices,
            &lists.excluded,
            &neighbors.of_dst,
            edge_ids,
            srcs,
            start,
            end,
            lists.excludes,
        );
    }
}

#[cube(launch, address_type = "dynamic")]
fn pick_by_rule<R: CubeRule>(
    lists: &NeighborLists,
    offsets: &[u32],
    edge_ids: &mut [i64],
    srcs: &mut [u32],
    invalid: &mut [u32],
    key_low: u32,
    key_high: u32,
) {
    if ABSOLUTE_POS < lists.nodes.len() {
        pick_for::<R>(lists, ABSOLUTE_POS, offsets, edge_ids, srcs, invalid, key_low, key_high);
    }
}

/// Same as [`pick_by_rule`], with the key of the time of each destination, as in `pick.rs`.
#[cube(launch, address_type = "dynamic")]
fn pick_by_rule_and_time<R: CubeRule>(
    lists: &NeighborLists,
    offsets: &[u32],
    edge_ids: &mut [i64],
    srcs: &mut [u32],
    invalid: &mut [u32],
    time_index: &[u32],
    of_times: &[u32],
) {
    let dst = ABSOLUTE_POS;
    if dst < lists.nodes.len() {
        let key = 4 * time_index[dst] as usize + 2;
        pick_for::<R>(lists, dst, offsets, edge_ids, srcs, invalid, of_times[key], of_times[key + 1]);
    }
}

/// A rule that samplers on devices run ([`SamplingRule::device_rule`]).
#[derive(Clone)]
pub struct DeviceRule(Arc<dyn Launches>);

impl DeviceRule {
    /// Creates the rule that a type defines.
    pub fn new<R: CubeRule>() -> Self {
        Self(Arc::new(RuleOf::<R>(PhantomData)))
    }

    /// Returns the version for devices of a custom rule.
    pub(crate) fn of(rule: &dyn SamplingRule) -> Option<&Self> {
        rule.device_rule()?.downcast_ref()
    }

    pub(super) fn launches(&self) -> &dyn Launches {
        &*self.0
    }
}

impl fmt::Debug for DeviceRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// The launches of a rule.
pub(super) trait Launches: Send + Sync {
    fn name(&self) -> &'static str;

    /// Computes the first edge of each destination, as `Picking::offsets` does.
    fn offsets(&self, graph: &Graph, hop: &HopNodes, fanout: u32) -> CubeTensor;

    /// Picks the edges, as `Picking::edges` does.
    fn edges(
        &self,
        graph: &Graph,
        hop: &HopNodes,
        fanout: u32,
        offsets: &CubeTensor,
        most_edges: usize,
        keys: Keys<'_>,
    ) -> Picked;
}

struct RuleOf<R: CubeRule>(PhantomData<R>);

impl<R: CubeRule> Launches for RuleOf<R> {
    fn name(&self) -> &'static str {
        type_name::<R>()
    }

    fn offsets(&self, graph: &Graph, hop: &HopNodes, fanout: u32) -> CubeTensor {
        let nodes = &hop.nodes;
        let n_dst = launch::length(nodes);
        let counts = launch::new_array(nodes, n_dst);
        launch::launch_kernel!(
            count_by_rule[R],
            nodes,
            n_dst,
            launch::units(nodes, n_dst),
            lists(graph, hop, fanout),
            launch::buffer(&counts)
        );
        // The sums read stored counts, so that none of their kernels is compiled for the rule.
        running_sums(&counts)
    }

    fn edges(
        &self,
        graph: &Graph,
        hop: &HopNodes,
        fanout: u32,
        offsets: &CubeTensor,
        most_edges: usize,
        keys: Keys<'_>,
    ) -> Picked {
        let nodes = &hop.nodes;
        let picked = Picked::new(nodes, most_edges);
        let invalid = launch::upload_as(nodes, &[u32::MAX], DType::U32);
        let n_units = launch::length(nodes);
        match keys {
            Keys::OfHop(key) => {
                let [key_low, key_high] = key.words();
                launch::launch_kernel!(
                    pick_by_rule[R],
                    nodes,
                    n_units,
                    launch::units(nodes, n_units),
                    lists(graph, hop, fanout),
                    launch::buffer(offsets),
                    launch::buffer(&picked.edge_ids),
                    launch::buffer(&picked.srcs),
                    launch::buffer(&invalid),
                    key_low,
                    key_high
                );
            }
            Keys::OfTimes(times) => launch::launch_kernel!(
                pick_by_rule_and_time[R],
                nodes,
                n_units,
                launch::units(nodes, n_units),
                lists(graph, hop, fanout),
                launch::buffer(offsets),
                launch::buffer(&picked.edge_ids),
                launch::buffer(&picked.srcs),
                launch::buffer(&invalid),
                launch::buffer(&times.index),
                launch::buffer(&times.words)
            ),
        }
        Picked { invalid: Some(invalid), ..picked }
    }
}

fn lists(graph: &Graph, hop: &HopNodes, fanout: u32) -> NeighborListsLaunch {
    let HopNodes { nodes, rows, excluded, .. } = hop;
    let [indptr, indices, rows, nodes, excluded_edges] =
        [&graph.indptr, &graph.indices, rows, nodes, hop.excluded_or_any()].map(launch::buffer);
    NeighborListsLaunch::new(indptr, indices, rows, nodes, excluded_edges, fanout, excluded.is_some())
}

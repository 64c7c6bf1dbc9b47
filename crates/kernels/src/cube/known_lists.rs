//! The lists of the edges that the destinations of a hop know, in ascending order of their ids: the picks if all are taken, and the
//! neighbour lists for rules that read neighbours.
//!
//! * *Contract.* The edges of each destination that it knows at its time, without those that are left out. Outputs are overwritten up to
//!   the number of edges.
//! * *Work distribution.* One unit per edge of the destinations, known or not. Running sums over the listed ones give their places.
//! * *Cost.* About 50 bytes per edge of the destinations, of which 8 are the time of the edge.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use kiln_sample::EdgeWeights;

use crate::cube::edge_times::DstTimes;
use crate::cube::graph::{Graph, HopNodes};
use crate::cube::known_edges::{TimedLists, is_listed, timed_dst, timed_lists};
use crate::cube::launch::{self, launch_units};
use crate::cube::neighborhood::{How, Picked};
use crate::cube::pick::Picking;
use crate::cube::scan::running_sums;
use crate::cube::segments::segment_of;

/// Writes 1 for each edge of the destinations that is listed, and 0 for others and behind the last edge. `all_offsets` has the first
/// edge of each destination among those of all destinations, known or not.
#[cube(launch, address_type = "dynamic")]
fn find_listed(lists: &TimedLists, all_offsets: &[u32], is_edge_listed: &mut [u32]) {
    let position = ABSOLUTE_POS;
    if position >= is_edge_listed.len() {
        terminate!();
    }
    let mut counts = false;
    if position < all_offsets[all_offsets.len() - 1] as usize {
        let dst = segment_of(all_offsets, position as u32);
        let of_dst = timed_dst(lists, dst);
        counts = is_listed(lists, &of_dst, position as u32 - all_offsets[dst]);
    }
    is_edge_listed[position] = u32::cast_from(counts);
}

/// Writes the listed edges. `n_listed_before` has the number of listed edges before each edge of the destinations.
#[cube(launch, address_type = "dynamic")]
fn list_known(
    indptr: &[u64],
    indices: &[u32],
    rows: &[u32],
    all_offsets: &[u32],
    n_listed_before: &[u32],
    edge_ids: &mut [i64],
    srcs: &mut [u32],
) {
    let position = ABSOLUTE_POS;
    if position >= n_listed_before.len() - 1 {
        terminate!();
    }
    let slot = n_listed_before[position];
    if n_listed_before[position + 1] != slot {
        let dst = segment_of(all_offsets, position as u32);
        let place = position as u32 - all_offsets[dst];
        let edge = indptr[rows[dst] as usize] + u64::cast_from(place);
        edge_ids[slot as usize] = i64::cast_from(edge);
        srcs[slot as usize] = indices[usize::cast_from(edge)];
    }
}

/// Writes the `indptr` of the lists, and the row of each destination in them.
#[cube(launch, address_type = "dynamic")]
fn number_lists(offsets: &[u32], indptr: &mut [u64], rows: &mut [u32]) {
    if ABSOLUTE_POS < offsets.len() {
        indptr[ABSOLUTE_POS] = u64::cast_from(offsets[ABSOLUTE_POS]);
    }
    if ABSOLUTE_POS < rows.len() {
        rows[ABSOLUTE_POS] = ABSOLUTE_POS as u32;
    }
}

/// Looks up the ids of edges of the lists, of which there are `offsets[n_dst]`.
#[cube(launch, address_type = "dynamic")]
fn look_up_edges(listed: &[i64], positions: &[i64], offsets: &[u32], edge_ids: &mut [i64]) {
    if ABSOLUTE_POS < offsets[offsets.len() - 1] as usize {
        edge_ids[ABSOLUTE_POS] = listed[usize::cast_from(positions[ABSOLUTE_POS])];
    }
}

/// Returns the first edge of each destination among the edges of all destinations, known or not.
pub(super) fn all_offsets(picking: &Picking<'_>) -> CubeTensor {
    let hop = HopNodes { excluded: None, ..picking.hop.clone() };
    Picking { graph: picking.graph, hop: &hop, how: How::All, rule: None, fanout: u32::MAX }.offsets()
}

/// Lists the known edges, of which there are at most `most_listed`. The destinations have at most `most_edges` edges, known or not.
pub(super) fn listed(
    picking: &Picking<'_>,
    times: &DstTimes,
    all_offsets: &CubeTensor,
    most_edges: usize,
    most_listed: usize,
) -> Picked {
    let Picking { graph, hop, .. } = picking;
    let is_edge_listed = launch::new_array(&hop.nodes, most_edges);
    launch_units!(
        find_listed,
        &hop.nodes,
        most_edges,
        timed_lists(graph, hop, times),
        launch::buffer(all_offsets),
        launch::buffer(&is_edge_listed)
    );
    // The sums read stored numbers: computing them needs more registers than the kernels of sums have.
    let n_listed_before = running_sums(&is_edge_listed);
    let listed = Picked::new(&hop.nodes, most_listed);
    launch_units!(
        list_known,
        &hop.nodes,
        most_edges,
        launch::buffer(&graph.indptr),
        launch::buffer(&graph.indices),
        launch::buffer(&hop.rows),
        launch::buffer(all_offsets),
        launch::buffer(&n_listed_before),
        launch::buffer(&listed.edge_ids),
        launch::buffer(&listed.srcs)
    );
    listed
}

/// The lists of a hop as a graph, whose edges are positions in the lists.
pub(super) struct KnownLists {
    graph: Graph,
    hop: HopNodes,
    /// The id of each edge in the whole graph.
    edge_ids: CubeTensor,
}

impl KnownLists {
    /// `listed` are the lists, and `offsets` has the start of each.
    pub(super) fn new(
        picking: &Picking<'_>,
        listed: Picked,
        offsets: &CubeTensor,
        weights: EdgeWeights,
    ) -> Self {
        let Picking { graph, hop, .. } = picking;
        let n_dst = launch::length(&hop.nodes);
        let indptr = launch::new_tensor(&hop.nodes, Shape::new([n_dst + 1]), DType::U64);
        let rows = launch::new_array(&hop.nodes, n_dst);
        launch_units!(
            number_lists,
            &hop.nodes,
            n_dst + 1,
            launch::buffer(offsets),
            launch::buffer(&indptr),
            launch::buffer(&rows)
        );
        let weights =
            (weights != EdgeWeights::None).then(|| picking.weights_times(offsets, &listed.edge_ids, None));
        let lists = Graph {
            indptr,
            indices: listed.srcs,
            weights,
            edge_types: None,
            times: None,
            n_rows: n_dst,
            ..**graph
        };
        let hop = HopNodes { nodes: hop.nodes.clone(), rows, excluded: None, times: None };
        Self { graph: lists, hop, edge_ids: listed.edge_ids }
    }

    /// Returns the same picks, from the lists.
    pub(super) fn picking<'a>(&'a self, from_all: &Picking<'a>) -> Picking<'a> {
        Picking { graph: &self.graph, hop: &self.hop, ..*from_all }
    }

    /// Returns the ids in the whole graph of picked edges of the lists. `offsets` has the first edge of each destination.
    pub(super) fn edge_ids(&self, positions: &CubeTensor, offsets: &CubeTensor) -> CubeTensor {
        let n_edges = launch::length(positions);
        let edge_ids = launch::new_tensor(positions, Shape::new([n_edges]), DType::I64);
        launch_units!(
            look_up_edges,
            positions,
            n_edges,
            launch::buffer(&self.edge_ids),
            launch::buffer(positions),
            launch::buffer(offsets),
            launch::buffer(&edge_ids)
        );
        edge_ids
    }
}

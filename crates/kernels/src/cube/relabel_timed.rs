//! Finds the first place of each pair of a node and a time, when nodes have times: they are numbered once per time.
//!
//! * *Contract.* As for nodes without times (`relabel.rs`), of which only the search for first places differs. A source has the time of
//!   the edge's destination.
//! * *Work distribution.* One unit per place. A slot has a place instead of a node, that of the unit that claimed it: a pair of two
//!   numbers would need an atomic exchange of 64 bits. The units that look for a pair compare theirs with that of this place.
//! * *Cost.* Besides that without times, a binary search for the destination of each edge, and two random reads per place.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::edge_times::DstTimes;
use crate::cube::launch::{self, launch_units};
use crate::cube::places::{N_TOTALS, NOTHING, Places, SPREAD};
use crate::cube::segments::segment_of;

/// The multiplier of times in the hash.
const SPREAD_OF_TIMES: u32 = 2_246_822_519;

/// Writes the position of the time of each place.
#[cube(launch, address_type = "dynamic")]
fn find_place_times(dst_times: &[u32], offsets: &[u32], place_times: &mut [u32]) {
    let n_dst = dst_times.len();
    if ABSOLUTE_POS >= n_dst + offsets[n_dst] as usize {
        terminate!();
    }
    let mut dst = ABSOLUTE_POS;
    if ABSOLUTE_POS >= n_dst {
        dst = segment_of(offsets, (ABSOLUTE_POS - n_dst) as u32);
    }
    place_times[ABSOLUTE_POS] = dst_times[dst];
}

#[cube]
fn node_at(nodes: &[u32], srcs: &[u32], place: usize) -> u32 {
    let n_dst = nodes.len();
    if place < n_dst { nodes[place] } else { srcs[place - n_dst] }
}

/// Finds the slot of each place's pair, and the pair's first place. Sets the counts as the kernel without times does.
#[cube(launch, address_type = "dynamic")]
fn place_pairs_in_table(
    nodes: &[u32],
    srcs: &[u32],
    offsets: &[u32],
    place_times: &[u32],
    table: &[Atomic<u32>],
    slots: &mut [u32],
    counts: &mut [u32],
    shift: u32,
) {
    let n_dst = nodes.len();
    if ABSOLUTE_POS >= n_dst + offsets[n_dst] as usize {
        terminate!();
    }
    let place = ABSOLUTE_POS as u32;
    let node = node_at(nodes, srcs, ABSOLUTE_POS);
    let time = place_times[ABSOLUTE_POS];
    let last_slot = (table.len() / 2 - 1) as u32;
    let hash = (node * SPREAD) ^ (time * SPREAD_OF_TIMES);
    let mut slot = ((hash ^ (hash >> 15)) * SPREAD) >> shift;
    let mut is_looking = true;
    while is_looking {
        let mut held = table[2 * slot as usize].load();
        if held == NOTHING {
            // The weak exchange may fail spuriously, so its result is ignored and the slot is read again.
            table[2 * slot as usize].compare_exchange_weak(NOTHING, place);
            held = table[2 * slot as usize].load();
        }
        if held != NOTHING {
            if node_at(nodes, srcs, held as usize) == node && place_times[held as usize] == time {
                is_looking = false;
            } else {
                slot = (slot + 1) & last_slot;
            }
        }
    }
    if table[2 * slot as usize + 1].load() > place {
        table[2 * slot as usize + 1].fetch_min(place);
    }
    slots[ABSOLUTE_POS] = slot;
    counts[ABSOLUTE_POS] = 0u32;
    if ABSOLUTE_POS == 0 {
        counts[counts.len() - N_TOTALS] = 0u32;
    }
}

/// Writes the position of the time of each destination and of each other source, by local id.
#[cube(launch, address_type = "dynamic")]
fn number_times(place_times: &[u32], offsets: &[u32], indices: &[u32], times: &mut [u32]) {
    let n_dst = offsets.len() - 1;
    if ABSOLUTE_POS >= n_dst + offsets[n_dst] as usize {
        terminate!();
    }
    let mut local = ABSOLUTE_POS;
    if ABSOLUTE_POS >= n_dst {
        local = indices[ABSOLUTE_POS - n_dst] as usize;
    }
    // All edges of a source have its time, and so do those of a destination.
    times[local] = place_times[ABSOLUTE_POS];
}

/// Finds the slot of each place's pair, and the pair's first place. Returns the position of the time of each place.
pub(super) fn place_pairs(places: &Places<'_>, times: &DstTimes) -> CubeTensor {
    let Places { nodes, srcs, offsets, table, slots, counts, shift } = *places;
    let n_places = launch::length(slots);
    let place_times = launch::new_array(nodes, n_places);
    launch_units!(
        find_place_times,
        nodes,
        n_places,
        launch::buffer(&times.index),
        launch::buffer(offsets),
        launch::buffer(&place_times)
    );
    launch_units!(
        place_pairs_in_table,
        nodes,
        n_places,
        launch::buffer(nodes),
        launch::buffer(srcs),
        launch::buffer(offsets),
        launch::buffer(&place_times),
        launch::buffer(table),
        launch::buffer(slots),
        launch::buffer(counts),
        shift
    );
    place_times
}

/// Returns the position of the time of each node, by local id. `indices` has the local id of each edge's source.
pub(super) fn times_of_nodes(
    place_times: &CubeTensor,
    offsets: &CubeTensor,
    indices: &CubeTensor,
) -> CubeTensor {
    let n_places = launch::length(place_times);
    let times = launch::new_array(place_times, n_places);
    launch_units!(
        number_times,
        place_times,
        n_places,
        launch::buffer(place_times),
        launch::buffer(offsets),
        launch::buffer(indices),
        launch::buffer(&times)
    );
    times
}

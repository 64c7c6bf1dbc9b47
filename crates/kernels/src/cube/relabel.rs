//! Numbers for the nodes of a hop: destinations first, then the other sources by first appearance.
//!
//! * *Contract.* The numbers of [`kiln_sample::to_block`]. Places in the list "destinations, then the edges' sources" are
//!   counted; a node's first place decides its number.
//! * *Who computes what.* A unit has a place. It looks for its node in a hash table with open addressing, claims a slot by
//!   an atomic exchange where the node is not there, and lowers the slot's place to its own by an atomic minimum. Which
//!   slot a node gets depends on who came first; its least place does not. A source whose place is its node's first, and
//!   no destination, is new: running sums of the new ones are their numbers.
//! * *Cost.* The table has at least two slots a node, of 8 bytes; each edge reads a random slot three times, and mostly
//!   writes it at most once.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::launch::{self, launch_units};
use crate::cube::scan::running_sums;

/// What an empty slot holds for a node and for a place. No node has this id, since a graph has at most as many.
const NOTHING: u32 = u32::MAX;

/// Spreads ids over the table by the upper bits of their product with it (Knuth, "Sorting and searching", 6.4: the
/// golden ratio).
const SPREAD: u32 = 2_654_435_769;

#[cube(launch, address_type = "dynamic")]
fn empty(table: &mut [u32]) {
    if ABSOLUTE_POS < table.len() {
        table[ABSOLUTE_POS] = NOTHING;
    }
}

/// Finds the slot of each place's node, and the node's first place.
#[cube(launch, address_type = "dynamic")]
fn place_in_table(
    nodes: &[u32],
    srcs: &[u32],
    offsets: &[u32],
    table: &[Atomic<u32>],
    slots: &mut [u32],
    shift: u32,
) {
    let n_dst = nodes.len();
    let n_edges = offsets[n_dst] as usize;
    if ABSOLUTE_POS >= n_dst + n_edges {
        terminate!();
    }
    let place = ABSOLUTE_POS as u32;
    let node = if ABSOLUTE_POS < n_dst { nodes[ABSOLUTE_POS] } else { srcs[ABSOLUTE_POS - n_dst] };
    let last_slot = (table.len() / 2 - 1) as u32;
    let mut slot = (node * SPREAD) >> shift;
    let mut is_looking = true;
    while is_looking {
        let mut held = table[2 * slot as usize].load();
        if held == NOTHING {
            // It may fail without a reason, so that what is held now counts.
            table[2 * slot as usize].compare_exchange_weak(NOTHING, node);
            held = table[2 * slot as usize].load();
        }
        if held == node {
            is_looking = false;
        } else if held != NOTHING {
            slot = (slot + 1) & last_slot;
        }
    }
    if table[2 * slot as usize + 1].load() > place {
        table[2 * slot as usize + 1].fetch_min(place);
    }
    slots[ABSOLUTE_POS] = slot;
}

/// Whether each edge's source is new with it: 1 or 0, and 0 past the last edge.
#[cube(launch, address_type = "dynamic")]
fn new_with(offsets: &[u32], table: &[u32], slots: &[u32], is_new: &mut [u32]) {
    if ABSOLUTE_POS >= is_new.len() {
        terminate!();
    }
    let n_dst = offsets.len() - 1;
    let mut is_first = false;
    if ABSOLUTE_POS < offsets[n_dst] as usize {
        let place = n_dst + ABSOLUTE_POS;
        is_first = table[2 * slots[place] as usize + 1] == place as u32;
    }
    is_new[ABSOLUTE_POS] = u32::cast_from(is_first);
}

/// Writes each edge's number, and each new node behind the destinations.
#[cube(launch, address_type = "dynamic")]
fn number(
    nodes: &[u32],
    srcs: &[u32],
    offsets: &[u32],
    table: &[u32],
    slots: &[u32],
    n_new_before: &[u32],
    indices: &mut [u32],
    all_nodes: &mut [u32],
) {
    let n_dst = nodes.len();
    let n_edges = offsets[n_dst] as usize;
    if ABSOLUTE_POS >= n_dst + n_edges {
        terminate!();
    }
    if ABSOLUTE_POS < n_dst {
        all_nodes[ABSOLUTE_POS] = nodes[ABSOLUTE_POS];
    } else {
        let edge = ABSOLUTE_POS - n_dst;
        let first = table[2 * slots[ABSOLUTE_POS] as usize + 1] as usize;
        if first < n_dst {
            indices[edge] = first as u32;
        } else {
            let local = n_dst + n_new_before[first - n_dst] as usize;
            indices[edge] = local as u32;
            if first == ABSOLUTE_POS {
                all_nodes[local] = srcs[edge];
            }
        }
    }
}

/// A hop's numbers, in arrays that may have room for more.
pub(super) struct Relabelled {
    /// Each edge's source.
    pub(super) indices: CubeTensor,
    /// The nodes by their numbers.
    pub(super) nodes: CubeTensor,
    /// How many sources before each edge are no destinations; the last entry says how many there are.
    pub(super) n_new_before: CubeTensor,
}

/// Numbers the sources of edges, whose destinations are distinct and begin at these offsets. `n_nodes` bounds how many
/// there can be.
pub(super) fn relabel(
    nodes: &CubeTensor,
    srcs: &CubeTensor,
    offsets: &CubeTensor,
    n_nodes: usize,
) -> Relabelled {
    let most_edges = launch::length(srcs);
    let n_places = launch::length(nodes) + most_edges;
    let n_slots = (2 * n_places.min(n_nodes)).next_power_of_two().max(2);
    let table = launch::new_array(nodes, 2 * n_slots);
    let address = launch::address(&[&table]);
    launch_units!(empty, nodes, 2 * n_slots, address, launch::buffer(&table));
    let slots = launch::new_array(nodes, n_places);
    launch_units!(
        place_in_table,
        nodes,
        n_places,
        address,
        launch::buffer(nodes),
        launch::buffer(srcs),
        launch::buffer(offsets),
        launch::buffer(&table),
        launch::buffer(&slots),
        32 - n_slots.ilog2()
    );
    let is_new = launch::new_array(nodes, most_edges);
    launch_units!(
        new_with,
        nodes,
        most_edges,
        address,
        launch::buffer(offsets),
        launch::buffer(&table),
        launch::buffer(&slots),
        launch::buffer(&is_new)
    );
    let n_new_before = running_sums(&is_new);
    let indices = launch::new_array(nodes, most_edges);
    let all_nodes = launch::new_tensor(nodes, [n_places].into(), DType::U32);
    launch_units!(
        number,
        nodes,
        n_places,
        address,
        launch::buffer(nodes),
        launch::buffer(srcs),
        launch::buffer(offsets),
        launch::buffer(&table),
        launch::buffer(&slots),
        launch::buffer(&n_new_before),
        launch::buffer(&indices),
        launch::buffer(&all_nodes)
    );
    Relabelled { indices, nodes: all_nodes, n_new_before }
}

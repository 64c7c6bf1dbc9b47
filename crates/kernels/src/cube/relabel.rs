//! Relabels the nodes of a hop: destinations first, then the other sources by first appearance.
//!
//! * *Contract.* The local ids are those of [`kiln_sample::to_block`]. A place is an index in the list of the
//!   destinations followed by the edges' sources. The first place of a node determines its local id.
//! * *Work distribution.* One unit per place. It looks up the node of its place in a hash table with open addressing,
//!   claims a slot by an atomic exchange if the node is not in the table, and lowers the place in the slot to its own
//!   by an atomic minimum. The slot of a node depends on the order of the units, but the smallest place of the node
//!   does not. The source of an edge is new if the first place of its node is this edge. Running sums over the new
//!   sources give their local ids. Each edge is also counted for its source, from which [`Transposed`] lists the edges by
//!   source.
//! * *Cost.* The table has at least two slots of 8 bytes per node. Each edge reads a random slot three times and
//!   usually writes it at most once.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

#[cfg(doc)]
use crate::cube::by_source::{SourceCounts, Transposed};
use crate::cube::edge_times::DstTimes;
use crate::cube::launch::{self, launch_units};
use crate::cube::places::{N_TOTALS, NOTHING, Places, SPREAD};
use crate::cube::relabel_timed;
use crate::cube::scan::{Values, running_sums_of};

#[cube(launch, address_type = "dynamic")]
fn empty(table: &mut [u32]) {
    if ABSOLUTE_POS < table.len() {
        table[ABSOLUTE_POS] = NOTHING;
    }
}

/// Finds the slot of each place's node, and the node's first place. Also sets the counts that [`number`] increases to 0:
/// one per place, and the largest count, which is the first of the [`N_TOTALS`] numbers behind them.
#[cube(launch, address_type = "dynamic")]
fn place_in_table(
    nodes: &[u32],
    srcs: &[u32],
    offsets: &[u32],
    table: &[Atomic<u32>],
    slots: &mut [u32],
    counts: &mut [u32],
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
            // The weak exchange may fail spuriously, so its result is ignored and the slot is read again.
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
    counts[ABSOLUTE_POS] = 0u32;
    if ABSOLUTE_POS == 0 {
        counts[counts.len() - N_TOTALS] = 0u32;
    }
}

/// 1 for each edge at which a source that is not a destination appears first, and 0 for all other edges and for
/// positions after the last edge.
struct IsNew;

#[derive(CubeType, CubeLaunch)]
struct IsNewInputs {
    offsets: Box<[u32]>,
    table: Box<[u32]>,
    slots: Box<[u32]>,
}

#[cube]
impl Values for IsNew {
    type Inputs = IsNewInputs;

    fn value(inputs: &IsNewInputs, position: usize) -> u32 {
        let n_dst = inputs.offsets.len() - 1;
        let mut is_first = false;
        if position < inputs.offsets[n_dst] as usize {
            let place = n_dst + position;
            is_first = inputs.table[2 * inputs.slots[place] as usize + 1] == place as u32;
        }
        u32::cast_from(is_first)
    }
}

/// Writes the local id of each edge's source to `indices`, and the destinations followed by the new sources to
/// `all_nodes`. Counts the edges of each source, and writes the count before each edge to `arrivals`. Behind the counts
/// it writes the [`N_TOTALS`] numbers that the host reads: the largest count, the number of edges, and the number of new
/// sources.
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
    counts: &[Atomic<u32>],
    arrivals: &mut [u32],
) {
    let n_dst = nodes.len();
    let n_edges = offsets[n_dst] as usize;
    if ABSOLUTE_POS >= n_dst + n_edges {
        terminate!();
    }
    if ABSOLUTE_POS == 0 {
        let totals = counts.len() - N_TOTALS;
        counts[totals + 1].store(n_edges as u32);
        counts[totals + 2].store(n_new_before[n_new_before.len() - 1]);
    }
    if ABSOLUTE_POS < n_dst {
        all_nodes[ABSOLUTE_POS] = nodes[ABSOLUTE_POS];
    } else {
        let edge = ABSOLUTE_POS - n_dst;
        let first = table[2 * slots[ABSOLUTE_POS] as usize + 1] as usize;
        let mut local = first;
        if first >= n_dst {
            local = n_dst + n_new_before[first - n_dst] as usize;
            if first == ABSOLUTE_POS {
                all_nodes[local] = srcs[edge];
            }
        }
        indices[edge] = local as u32;
        let arrival = counts[local].fetch_add(1u32);
        arrivals[edge] = arrival;
        let largest = counts.len() - N_TOTALS;
        if counts[largest].load() <= arrival {
            counts[largest].fetch_max(arrival + 1);
        }
    }
}

/// The local ids of a hop, in arrays that may be longer than their contents.
pub(super) struct Relabelled {
    /// The local id of each edge's source.
    pub(super) indices: CubeTensor,
    /// The global ids of the nodes by local id.
    pub(super) nodes: CubeTensor,
    /// The positions of the nodes' times by local id; `None` without times.
    pub(super) times: Option<CubeTensor>,
    /// The number of edges of each source, by local id.
    pub(super) counts: CubeTensor,
    /// The arrival number of each edge (see [`SourceCounts`]).
    pub(super) arrivals: CubeTensor,
    /// The largest of the counts, the number of edges, and the number of sources that are not destinations.
    pub(super) totals: CubeTensor,
}

/// Finds the slot of each place's node, and the node's first place.
fn place_nodes(places: &Places<'_>) {
    let Places { nodes, srcs, offsets, table, slots, counts, shift } = *places;
    launch_units!(
        place_in_table,
        nodes,
        launch::length(slots),
        launch::buffer(nodes),
        launch::buffer(srcs),
        launch::buffer(offsets),
        launch::buffer(table),
        launch::buffer(slots),
        launch::buffer(counts),
        shift
    );
}

/// Relabels the sources of edges. `nodes` are the destinations, which are distinct, with `times` if they have some. `offsets` has
/// the first edge of each destination, and `n_nodes` is an upper bound on the number of distinct nodes.
pub(super) fn relabel(
    nodes: &CubeTensor,
    times: Option<&DstTimes>,
    srcs: &CubeTensor,
    offsets: &CubeTensor,
    n_nodes: usize,
) -> Relabelled {
    let most_edges = launch::length(srcs);
    let n_places = launch::length(nodes) + most_edges;
    let n_times = times.map_or(1, |times| times.n_times);
    let n_slots = (2 * n_places.min(n_nodes.saturating_mul(n_times))).next_power_of_two().max(2);
    let table = launch::new_array(nodes, 2 * n_slots);
    launch_units!(empty, nodes, 2 * n_slots, launch::buffer(&table));
    let slots = launch::new_array(nodes, n_places);
    let counts = launch::new_array(nodes, n_places + N_TOTALS);
    let shift = 32 - n_slots.ilog2();
    let places = Places { nodes, srcs, offsets, table: &table, slots: &slots, counts: &counts, shift };
    let place_times = match times {
        None => {
            place_nodes(&places);
            None
        }
        Some(times) => Some(relabel_timed::place_pairs(&places, times)),
    };
    let n_new_before = running_sums_of::<IsNew>(nodes, most_edges, || {
        let [offsets, table, slots] = [offsets, &table, &slots].map(launch::buffer);
        IsNewInputsLaunch::new(offsets, table, slots)
    });
    let [indices, arrivals] = [(); 2].map(|()| launch::new_array(nodes, most_edges));
    let all_nodes = launch::new_tensor(nodes, [n_places].into(), DType::U32);
    launch_units!(
        number,
        nodes,
        n_places,
        launch::buffer(nodes),
        launch::buffer(srcs),
        launch::buffer(offsets),
        launch::buffer(&table),
        launch::buffer(&slots),
        launch::buffer(&n_new_before),
        launch::buffer(&indices),
        launch::buffer(&all_nodes),
        launch::buffer(&counts),
        launch::buffer(&arrivals)
    );
    let times = place_times.map(|times| relabel_timed::times_of_nodes(&times, offsets, &indices));
    let totals = launch::values_from(&counts, n_places, N_TOTALS);
    Relabelled { indices, nodes: all_nodes, times, counts, arrivals, totals }
}

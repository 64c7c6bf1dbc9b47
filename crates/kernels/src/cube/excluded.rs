//! Edges that a hop leaves out, in a device's memory.
//!
//! One array of u32: the number `n` of destinations, their ids, ascending `[n]`, the positions in this array at which
//! the sources of each destination begin `[n + 1]`, and the sources, ascending for each destination.

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use kiln_sample::ExcludedEdges;

use crate::cube::launch;

/// Copies edges to the device of a tensor. Edges of nodes that a graph with `n_nodes` nodes does not have are omitted,
/// so the arithmetic of kernels on ids does not overflow.
pub(crate) fn upload(anchor: &CubeTensor, excluded: &ExcludedEdges, n_nodes: usize) -> CubeTensor {
    let mut dsts = Vec::new();
    let mut counts = Vec::new();
    let mut srcs = Vec::with_capacity(excluded.len());
    for (src, dst) in excluded.pairs().filter(|(src, dst)| src.index().max(dst.index()) < n_nodes) {
        if dsts.last() != Some(&dst.0) {
            dsts.push(dst.0);
            counts.push(0);
        }
        *counts.last_mut().expect("a source has a destination") += 1;
        srcs.push(src.0);
    }
    let mut first = (2 + 2 * dsts.len()) as u32;
    let mut values = Vec::with_capacity(first as usize + srcs.len());
    values.push(dsts.len() as u32);
    values.extend(dsts);
    values.push(first);
    values.extend(counts.into_iter().map(|count: u32| {
        first += count;
        first
    }));
    values.extend(srcs);
    launch::upload_as(anchor, &values, DType::U32)
}

/// A range of positions in the array of edges to leave out.
#[derive(CubeType)]
pub(super) struct ExcludedRange {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Returns the positions of the sources of a destination.
#[allow(clippy::collapsible_if, reason = "a kernel computes both operands of `&&`")]
#[cube]
pub(super) fn excluded_of(excluded: &[u32], node: u32) -> ExcludedRange {
    let n_dsts = excluded[0];
    let place = n_below(excluded, 1u64, n_dsts, node);
    let mut start = 0u32;
    let mut end = 0u32;
    // If all destinations are below the node, the next value is the position of the first source.
    if place < n_dsts {
        if excluded[(1 + place) as usize] == node {
            start = excluded[(1 + n_dsts + place) as usize];
            end = excluded[(2 + n_dsts + place) as usize];
        }
    }
    ExcludedRange { start, end }
}

/// Returns the number of ids below `limit` among `n` sorted ids that begin at `first`, by binary search.
#[cube]
pub(super) fn n_below(ids: &[u32], first: u64, n: u32, limit: u32) -> u32 {
    n_below_from(ids, first, 0u32, n, limit)
}

/// Returns the number of ids below `limit` among `n` sorted ids that begin at `first`, of which at least `least` are.
#[cube]
pub(super) fn n_below_from(ids: &[u32], first: u64, least: u32, n: u32, limit: u32) -> u32 {
    let mut low = least;
    let mut high = n;
    while low < high {
        let middle = low + (high - low) / 2;
        if ids[usize::cast_from(first + u64::cast_from(middle))] < limit {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the position in a neighbour list of `n_all` edges of the edge at `position` in the list without the edges
/// from the sources `excluded[start..end]`.
#[cube]
pub(super) fn in_whole_list(
    indices: &[u32],
    first_edge: u64,
    n_all: u32,
    excluded: &[u32],
    start: u32,
    end: u32,
    position: u32,
) -> u32 {
    let mut position = position;
    let mut n_before = 0u32;
    let mut place = start;
    while place < end {
        let src = excluded[place as usize];
        n_before = n_below_from(indices, first_edge, n_before, n_all, src);
        if n_before <= position {
            let n_until = n_below_from(indices, first_edge, n_before, n_all, src + 1);
            position += n_until - n_before;
            n_before = n_until;
            place += 1;
        } else {
            // The sources ascend, so the edges of the others are behind the position, too.
            place = end;
        }
    }
    position
}

/// Does the same as [`in_whole_list`] for the ascending positions `positions[first..last]`. Both lists are walked once.
#[cube]
pub(super) fn all_in_whole_list(
    indices: &[u32],
    first_edge: u64,
    n_all: u32,
    excluded: &[u32],
    start: u32,
    end: u32,
    positions: &mut [u32],
    first: u32,
    last: u32,
) {
    let mut place = start;
    let mut n_removed = 0u32;
    // The position of the first edge from the next source. After the last source it is the number of edges, which no
    // position reaches.
    let mut next = n_all;
    if place < end {
        next = n_below(indices, first_edge, n_all, excluded[place as usize]);
    }
    for number in first..last {
        let position = positions[number as usize];
        while next <= position + n_removed {
            let n_until = n_below_from(indices, first_edge, next, n_all, excluded[place as usize] + 1);
            n_removed += n_until - next;
            place += 1;
            next = n_all;
            if place < end {
                next = n_below_from(indices, first_edge, n_until, n_all, excluded[place as usize]);
            }
        }
        positions[number as usize] = position + n_removed;
    }
}

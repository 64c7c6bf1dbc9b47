//! The edges of a destination in a device's memory, among which a hop picks, and the picked edges.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use kiln_sample::{Fanout, Rule};

use crate::cube::excluded::{all_in_whole_list, excluded_of, n_below, n_below_from};
use crate::cube::launch;

/// The rule by which the edges of a destination are picked, as a compile-time parameter of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum How {
    All,
    Uniform,
    WithReplacement,
    WithLoop,
    /// The last edges in the order by time, of destinations with times.
    MostRecent,
    /// By a rule in CubeCL (`rule.rs`).
    ByRule,
}

impl How {
    /// `has_times` is true if the destinations and the edges have times. Without them, there are no most recent edges.
    pub(super) fn new(fanout: Fanout, rule: &Rule, has_times: bool) -> Self {
        match (fanout, rule) {
            (Fanout::All, _) => Self::All,
            (_, Rule::MostRecent) if has_times => Self::MostRecent,
            (_, Rule::Uniform | Rule::MostRecent) => Self::Uniform,
            (_, Rule::UniformWithReplacement) => Self::WithReplacement,
            (_, Rule::UniformKeepSelfLoops) => Self::WithLoop,
            (_, Rule::Custom { .. }) => Self::ByRule,
        }
    }
}

/// The edges of one destination without those that are left out. `n_loops` is 0 unless the rule keeps self loops.
#[derive(Debug, CubeType)]
pub(super) struct Neighborhood {
    pub(super) first_edge: u64,
    /// The number of edges in the graph.
    pub(super) n_all: u32,
    /// The number of edges without those that are left out.
    pub(super) degree: u32,
    /// The position of the first self loop among the edges that are not left out.
    pub(super) loops: u32,
    pub(super) n_loops: u32,
    /// The range of the sources of the edges that are left out.
    pub(super) first_excluded: u32,
    pub(super) end_excluded: u32,
}

/// Returns the edges of a destination. `excluded` is read only with `excludes`.
#[cube]
pub(super) fn neighborhood(
    indptr: &[u64],
    indices: &[u32],
    excluded: &[u32],
    row: u32,
    node: u32,
    #[comptime] how: How,
    #[comptime] excludes: bool,
) -> Neighborhood {
    let first_edge = indptr[row as usize];
    let n_all = u32::cast_from(indptr[row as usize + 1] - first_edge);
    let mut degree = n_all;
    let mut loops = 0u32;
    let mut n_loops = 0u32;
    if comptime!(how == How::WithLoop) {
        loops = n_below(indices, first_edge, n_all, node);
        n_loops = n_below(indices, first_edge, n_all, node + 1) - loops;
    }
    let mut first_excluded = 0u32;
    let mut end_excluded = 0u32;
    if comptime!(excludes) {
        let range = excluded_of(excluded, node);
        first_excluded = range.start;
        end_excluded = range.end;
        // The sources ascend, so each search begins where the last one ended.
        let mut n_until = 0u32;
        for place in first_excluded..end_excluded {
            let src = excluded[place as usize];
            let n_before = n_below_from(indices, first_edge, n_until, n_all, src);
            n_until = n_below_from(indices, first_edge, n_before, n_all, src + 1);
            let n_edges = n_until - n_before;
            degree -= n_edges;
            if comptime!(how == How::WithLoop) {
                // Parallel edges are left out together, so either all self loops remain or none.
                n_loops = select(src == node, 0u32, n_loops);
                loops -= select(src < node, n_edges, 0u32);
            }
        }
    }
    Neighborhood { first_edge, n_all, degree, loops, n_loops, first_excluded, end_excluded }
}

/// Replaces the picks `srcs[start..end]` of a destination, ascending positions among its edges that are not left out, by the
/// sources of the edges, and writes the ids of the edges. `excluded` is read only with `excludes`.
#[cube]
pub(super) fn store_picks(
    indices: &[u32],
    excluded: &[u32],
    of_dst: &Neighborhood,
    edge_ids: &mut [i64],
    srcs: &mut [u32],
    start: u32,
    end: u32,
    #[comptime] excludes: bool,
) {
    if comptime!(excludes) {
        all_in_whole_list(
            indices,
            of_dst.first_edge,
            of_dst.n_all,
            excluded,
            of_dst.first_excluded,
            of_dst.end_excluded,
            srcs,
            start,
            end,
        );
    }
    for place in start..end {
        let edge = of_dst.first_edge + u64::cast_from(srcs[place as usize]);
        edge_ids[place as usize] = i64::cast_from(edge);
        srcs[place as usize] = indices[usize::cast_from(edge)];
    }
}

/// Picked edges, in arrays that may be longer than the number of picked edges.
pub(super) struct Picked {
    pub(super) edge_ids: CubeTensor,
    pub(super) srcs: CubeTensor,
    /// A destination for which a custom rule picked a position that is not below its degree, `[1]`, or `u32::MAX`.
    pub(super) invalid: Option<CubeTensor>,
}

impl Picked {
    /// Allocates arrays for at most `most_edges` edges on the device of a tensor.
    pub(super) fn new(like: &CubeTensor, most_edges: usize) -> Self {
        Self {
            edge_ids: launch::new_tensor(like, Shape::new([most_edges]), DType::I64),
            srcs: launch::new_array(like, most_edges),
            invalid: None,
        }
    }
}

//! The weights of the edges that a hop picked: those of the graph, or scaled, so that a destination's weighted sum is an
//! unbiased estimate of the sum over all its edges.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::graph::HopNodes;
use crate::cube::launch::{self, launch_units};
use crate::cube::pick::{How, Picking, neighborhood};
use crate::cube::segments::segment_of;

/// Computes the factor of the weights of each destination's picks, except of self loops that are always kept, so that
/// the weighted sum is an unbiased estimate of the sum over all its edges.
#[cube(launch, address_type = "dynamic")]
fn weight_factors(
    indptr: &[u64],
    indices: &[u32],
    rows: &[u32],
    nodes: &[u32],
    excluded: &[u32],
    offsets: &[u32],
    factors: &mut [f32],
    #[comptime] how: How,
    #[comptime] excludes: bool,
) {
    let dst = ABSOLUTE_POS;
    if dst >= nodes.len() {
        terminate!();
    }
    let of_dst = neighborhood(indptr, indices, excluded, rows[dst], nodes[dst], how, excludes);
    let n_drawn = offsets[dst + 1] - offsets[dst] - of_dst.n_loops;
    let n_others = of_dst.degree - of_dst.n_loops;
    // Without draws, no edge reads the factor.
    factors[dst] = f32::cast_from(n_others) / f32::cast_from(max(n_drawn, 1u32));
}

/// Looks up the weights of the picked edges. With `is_scaled`, multiplies them by the factors of their destinations.
#[cube(launch, address_type = "dynamic")]
fn pick_weights(
    indices: &[u32],
    graph_weights: &[f32],
    nodes: &[u32],
    offsets: &[u32],
    edge_ids: &[i64],
    factors: &[f32],
    weights: &mut [f32],
    #[comptime] how: How,
    #[comptime] is_scaled: bool,
) {
    let n_edges = offsets[offsets.len() - 1];
    if ABSOLUTE_POS >= n_edges as usize {
        terminate!();
    }
    let edge = usize::cast_from(edge_ids[ABSOLUTE_POS]);
    let mut weight = graph_weights[edge];
    if comptime!(is_scaled) {
        let dst = segment_of(offsets, ABSOLUTE_POS as u32);
        // Loops that are always kept represent only themselves, so they are not scaled.
        let mut is_drawn = true;
        if comptime!(how == How::WithLoop) {
            is_drawn = indices[edge] != nodes[dst];
        }
        if is_drawn {
            weight *= factors[dst];
        }
    }
    weights[ABSOLUTE_POS] = weight;
}

impl Picking<'_> {
    /// Returns the weights of the picked edges.
    ///
    /// # Panics
    /// Panics if the graph has no weights.
    pub(super) fn weights(&self, offsets: &CubeTensor, edge_ids: &CubeTensor, is_scaled: bool) -> CubeTensor {
        let Self { graph, hop, how, .. } = self;
        let nodes = &hop.nodes;
        let n_edges = launch::length(edge_ids);
        let weights = launch::new_tensor(nodes, Shape::new([n_edges]), DType::F32);
        let graph_weights =
            graph.weights.as_ref().expect("a graph without weights should have been rejected");
        let is_scaled = is_scaled && *how != How::All;
        let factors = is_scaled.then(|| self.weight_factors(offsets));
        launch_units!(
            pick_weights,
            nodes,
            n_edges,
            graph.address(),
            launch::buffer(&graph.indices),
            launch::buffer(graph_weights),
            launch::buffer(nodes),
            launch::buffer(offsets),
            launch::buffer(edge_ids),
            launch::buffer(factors.as_ref().unwrap_or(graph_weights)),
            launch::buffer(&weights),
            *how,
            is_scaled
        );
        weights
    }

    /// Returns the factor of the weights of each destination's picks.
    fn weight_factors(&self, offsets: &CubeTensor) -> CubeTensor {
        let Self { graph, hop, how, .. } = self;
        let HopNodes { nodes, rows, excluded } = hop;
        let n_dsts = launch::length(nodes);
        let factors = launch::new_tensor(nodes, Shape::new([n_dsts]), DType::F32);
        launch_units!(
            weight_factors,
            nodes,
            n_dsts,
            graph.address(),
            launch::buffer(&graph.indptr),
            launch::buffer(&graph.indices),
            launch::buffer(rows),
            launch::buffer(nodes),
            launch::buffer(hop.excluded_or_any()),
            launch::buffer(offsets),
            launch::buffer(&factors),
            *how,
            excluded.is_some()
        );
        factors
    }
}

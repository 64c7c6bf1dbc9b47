//! The weights of the edges that a hop picked: those of the graph, or scaled, so that a destination's weighted sum is an
//! unbiased estimate of the sum over all its edges.

use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::graph::HopNodes;
use crate::cube::launch::{self, launch_units};
use crate::cube::neighborhood::{How, Neighborhood, neighborhood};
use crate::cube::pick::Picking;
use crate::cube::segments::segment_of;

/// How the weights of picked edges are scaled, as a compile-time parameter of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Scaling {
    None,
    /// Each edge computes the factor of its destination.
    OfEdge,
    /// Each edge reads the factor of its destination. Excluded edges make a factor expensive: computing it walks over
    /// all excluded edges of the destination, which may be a hub.
    OfDestination,
}

/// Returns the factor of the weights of a destination's picks, except of self loops that are always kept, so that the
/// weighted sum is an unbiased estimate of the sum over all its edges.
#[cube]
fn factor(neighborhood: &Neighborhood, n_picked: u32) -> f32 {
    let n_drawn = n_picked - neighborhood.n_loops;
    let n_others = neighborhood.degree - neighborhood.n_loops;
    // Without draws, no edge reads the factor.
    f32::cast_from(n_others) / f32::cast_from(max(n_drawn, 1u32))
}

/// Computes the factor of each destination, with excluded edges.
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
) {
    let dst = ABSOLUTE_POS;
    if dst >= nodes.len() {
        terminate!();
    }
    let of_dst = neighborhood(indptr, indices, excluded, rows[dst], nodes[dst], how, true);
    factors[dst] = factor(&of_dst, offsets[dst + 1] - offsets[dst]);
}

/// Looks up the weights of the picked edges and scales them. `factors` is read only with [`Scaling::OfDestination`].
#[cube(launch, address_type = "dynamic")]
fn pick_weights(
    indptr: &[u64],
    indices: &[u32],
    graph_weights: &[f32],
    rows: &[u32],
    nodes: &[u32],
    offsets: &[u32],
    edge_ids: &[i64],
    factors: &[f32],
    weights: &mut [f32],
    #[comptime] how: How,
    #[comptime] scaling: Scaling,
) {
    let n_edges = offsets[offsets.len() - 1];
    if ABSOLUTE_POS >= n_edges as usize {
        terminate!();
    }
    let edge = usize::cast_from(edge_ids[ABSOLUTE_POS]);
    let mut weight = graph_weights[edge];
    if comptime!(scaling != Scaling::None) {
        let dst = segment_of(offsets, ABSOLUTE_POS as u32);
        // Loops that are always kept represent only themselves, so they are not scaled.
        let mut is_drawn = true;
        if comptime!(how == How::WithLoop) {
            is_drawn = indices[edge] != nodes[dst];
        }
        if is_drawn {
            if comptime!(scaling == Scaling::OfDestination) {
                weight *= factors[dst];
            } else {
                // No edge is excluded, so the list of excluded edges is not read: any buffer can stand for it.
                let of_dst = neighborhood(indptr, indices, indices, rows[dst], nodes[dst], how, false);
                weight *= factor(&of_dst, offsets[dst + 1] - offsets[dst]);
            }
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
        match &self.hop.excluded {
            _ if !is_scaled || self.how == How::All => self.weights_times(offsets, edge_ids, None),
            None => self.scaled_weights(offsets, edge_ids, Scaling::OfEdge, None),
            Some(_) => self.weights_times(offsets, edge_ids, Some(&self.weight_factors(offsets))),
        }
    }

    /// Returns the weights of edges, multiplied by the factors of their destinations.
    ///
    /// # Panics
    /// Panics if the graph has no weights.
    pub(super) fn weights_times(
        &self,
        offsets: &CubeTensor,
        edge_ids: &CubeTensor,
        factors: Option<&CubeTensor>,
    ) -> CubeTensor {
        let scaling = if factors.is_some() { Scaling::OfDestination } else { Scaling::None };
        self.scaled_weights(offsets, edge_ids, scaling, factors)
    }

    fn scaled_weights(
        &self,
        offsets: &CubeTensor,
        edge_ids: &CubeTensor,
        scaling: Scaling,
        factors: Option<&CubeTensor>,
    ) -> CubeTensor {
        let Self { graph, hop, how, .. } = self;
        let HopNodes { nodes, rows, .. } = hop;
        let n_edges = launch::length(edge_ids);
        let weights = launch::new_tensor(nodes, Shape::new([n_edges]), DType::F32);
        let graph_weights =
            graph.weights.as_ref().expect("a graph without weights should have been rejected");
        launch_units!(
            pick_weights,
            nodes,
            n_edges,
            launch::buffer(&graph.indptr),
            launch::buffer(&graph.indices),
            launch::buffer(graph_weights),
            launch::buffer(rows),
            launch::buffer(nodes),
            launch::buffer(offsets),
            launch::buffer(edge_ids),
            launch::buffer(factors.unwrap_or(graph_weights)),
            launch::buffer(&weights),
            *how,
            scaling
        );
        weights
    }

    /// Returns the factor of each destination, with excluded edges.
    fn weight_factors(&self, offsets: &CubeTensor) -> CubeTensor {
        let Self { graph, hop, how, .. } = self;
        let HopNodes { nodes, rows, .. } = hop;
        let n_dsts = launch::length(nodes);
        let factors = launch::new_tensor(nodes, Shape::new([n_dsts]), DType::F32);
        launch_units!(
            weight_factors,
            nodes,
            n_dsts,
            launch::buffer(&graph.indptr),
            launch::buffer(&graph.indices),
            launch::buffer(rows),
            launch::buffer(nodes),
            launch::buffer(hop.excluded_or_any()),
            launch::buffer(offsets),
            launch::buffer(&factors),
            *how
        );
        factors
    }
}

use std::ops::Range;

use crate::most_recent::MostRecent;
use crate::uniform::{
    Uniform, UniformKeepSelfLoops, UniformWithReplacement, pick_besides, pick_with_replacement,
};
use crate::{Neighbors, NodeKey, SamplingRule, Selection, uniform};

/// A rule as the sampler of a hop calls it, also with some of a destination's edges left out.
///
/// Built-in rules read only the number of neighbours and the positions of self loops, so they need no copy of the list
/// without the edges that are left out. A custom rule gets such a copy.
pub(crate) trait HopRule: SamplingRule {
    /// Returns what the picks depend on.
    fn kind(&self) -> RuleKind {
        RuleKind::OfNeighbors
    }

    /// Adds the picks of [`SamplingRule::pick`] from the neighbours without those at the positions `removed`, which
    /// ascend. Picks are positions among the remaining neighbours, of which there is at least one.
    fn pick_remaining(
        &self,
        neighbors: Neighbors<'_>,
        removed: &[u32],
        key: NodeKey,
        fanout: u32,
        picks: &mut Selection,
    );
}

/// What the picks of a rule depend on, besides the key and the fanout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleKind {
    /// The number of edges, without replacement ([`Rule::Uniform`](crate::Rule::Uniform)): picks are made for many destinations
    /// at once.
    Uniform,
    /// The number of edges, with replacement.
    WithReplacement,
    /// The order of the edges by time.
    MostRecent,
    /// The neighbours: self loops, or what a custom rule reads.
    OfNeighbors,
}

impl HopRule for Uniform {
    fn kind(&self) -> RuleKind {
        RuleKind::Uniform
    }

    fn pick_remaining(
        &self,
        neighbors: Neighbors<'_>,
        removed: &[u32],
        key: NodeKey,
        fanout: u32,
        picks: &mut Selection,
    ) {
        uniform::pick_uniformly(n_remaining(neighbors, removed), fanout, key, picks);
    }
}

impl HopRule for MostRecent {
    fn kind(&self) -> RuleKind {
        RuleKind::MostRecent
    }

    fn pick_remaining(
        &self,
        neighbors: Neighbors<'_>,
        removed: &[u32],
        key: NodeKey,
        fanout: u32,
        picks: &mut Selection,
    ) {
        Uniform.pick_remaining(neighbors, removed, key, fanout, picks);
    }
}

impl HopRule for UniformWithReplacement {
    fn kind(&self) -> RuleKind {
        RuleKind::WithReplacement
    }

    fn pick_remaining(
        &self,
        neighbors: Neighbors<'_>,
        removed: &[u32],
        key: NodeKey,
        fanout: u32,
        picks: &mut Selection,
    ) {
        pick_with_replacement(n_remaining(neighbors, removed), fanout, key, picks);
    }
}

impl HopRule for UniformKeepSelfLoops {
    fn pick_remaining(
        &self,
        neighbors: Neighbors<'_>,
        removed: &[u32],
        key: NodeKey,
        fanout: u32,
        picks: &mut Selection,
    ) {
        let loops = remaining_self_loops(neighbors, removed);
        pick_besides(loops, n_remaining(neighbors, removed), fanout, key, picks);
    }
}

impl HopRule for dyn SamplingRule {
    fn pick_remaining(
        &self,
        neighbors: Neighbors<'_>,
        removed: &[u32],
        key: NodeKey,
        fanout: u32,
        picks: &mut Selection,
    ) {
        // Only destinations of excluded edges are copied, a few per batch.
        let ids = without(neighbors.ids, removed);
        let weights = neighbors.weights.map(|weights| without(weights, removed));
        let edge_types = neighbors.edge_types.map(|types| without(types, removed));
        let remaining = Neighbors {
            ids: &ids,
            weights: weights.as_deref(),
            edge_types: edge_types.as_deref(),
            removed,
            ..neighbors
        };
        self.pick(remaining, key, fanout, picks);
    }
}

fn n_remaining(neighbors: Neighbors<'_>, removed: &[u32]) -> u32 {
    (neighbors.degree() - removed.len()) as u32
}

/// Returns the positions of self loops among the neighbours without those at the positions `removed`. All parallel edges of a
/// pair are excluded together, but the times of some loops may not be known.
pub(crate) fn remaining_self_loops(neighbors: Neighbors<'_>, removed: &[u32]) -> Range<usize> {
    let loops = neighbors.self_loops();
    let n_before = removed.partition_point(|&position| (position as usize) < loops.start);
    let n_until_end = removed.partition_point(|&position| (position as usize) < loops.end);
    loops.start - n_before..loops.end - n_until_end
}

/// Copies a list without the values at the positions `removed`, which ascend.
fn without<T: Copy>(values: &[T], removed: &[u32]) -> Vec<T> {
    let mut remaining = Vec::with_capacity(values.len() - removed.len());
    let mut first = 0;
    for &position in removed {
        remaining.extend_from_slice(&values[first..position as usize]);
        first = position as usize + 1;
    }
    remaining.extend_from_slice(&values[first..]);
    remaining
}

use std::any::Any;
use std::ops::Range;

use kiln_graph::{EdgeId, NodeId};

use crate::{NodeKey, Selection};

/// The in-neighbours of one destination, in ascending order of edge ids: the input of a sampling rule. Excluded edges
/// ([`ExcludedEdges`](crate::ExcludedEdges)) are not in the list.
///
/// Parallel edges are separate entries. All arrays have the same length.
#[derive(Debug, Clone, Copy)]
pub struct Neighbors<'a> {
    /// The destination.
    pub dst: NodeId,
    /// The node ids of the neighbours.
    pub ids: &'a [NodeId],
    /// The id of the first edge; the other edges have the ids after it, except for `removed` edges.
    pub(crate) first_edge: EdgeId,
    /// The positions of edges that are left out, ascending, in the list with them. They are distinct.
    pub(crate) removed: &'a [u32],
    /// The edges' weights, if the graph has weights.
    pub weights: Option<&'a [f32]>,
    /// The edges' types, if the graph has types.
    pub edge_types: Option<&'a [u8]>,
}

impl<'a> Neighbors<'a> {
    /// Creates the in-neighbours of one destination, whose edges have consecutive ids from `first_edge` on. Weights and
    /// types are `None`; set the fields to provide them.
    pub fn new(dst: NodeId, ids: &'a [NodeId], first_edge: EdgeId) -> Self {
        Self { dst, ids, first_edge, removed: &[], weights: None, edge_types: None }
    }

    /// Returns the number of neighbours.
    pub fn degree(&self) -> usize {
        self.ids.len()
    }

    /// Returns the id of the edge from `ids[position]`.
    pub fn edge_id(&self, position: usize) -> EdgeId {
        // The number of edges before a removed one that are not removed does not decrease, so the number of removed
        // edges before this one is found by binary search.
        let mut low = 0;
        let mut high = self.removed.len();
        while low < high {
            let middle = low.midpoint(high);
            if self.removed[middle] as usize - middle <= position {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        EdgeId(self.first_edge.0 + (position + low) as u64)
    }

    /// Returns the range of the positions of self loops; empty if there are no self loops.
    ///
    /// The range is found by binary search, because neighbours ascend in every graph built by
    /// [`CscBuilder`](kiln_graph::CscBuilder). In other graphs self loops may be missed; they then count as ordinary
    /// neighbours.
    pub fn self_loops(&self) -> Range<usize> {
        let Ok(found) = self.ids.binary_search(&self.dst) else { return 0..0 };
        let is_other = |id: &NodeId| *id != self.dst;
        let start = self.ids[..found].iter().rposition(is_other).map_or(0, |last| last + 1);
        let n_after = self.ids[found..].iter().position(is_other);
        start..n_after.map_or(self.ids.len(), |n_after| found + n_after)
    }
}

/// A sampling rule: picks some of one destination's neighbours. It must be a pure function of its arguments, so that it
/// gives equal picks on the rank that owns the neighbours.
///
/// The sampler calls it only for destinations with at least one neighbour and for fanouts above 0 (also for fanout 0 if
/// the rule keeps self loops), but not for [`Fanout::All`](crate::Fanout::All). The number of neighbours may be below
/// the fanout: a rule that picks all neighbours in this case must check this itself. Closures with the signature of
/// [`SamplingRule::pick`] implement the trait.
pub trait SamplingRule: Send + Sync {
    /// Adds the positions of about `fanout` of the `neighbors` to `picks`. All random draws must come from `key`.
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection);

    /// Returns true if the rule always picks [`Neighbors::self_loops`], in addition to its draws among the others.
    /// [`EdgeWeights::Unbiased`](crate::EdgeWeights::Unbiased) does not scale the weights of these self loops.
    fn keeps_self_loops(&self) -> bool {
        false
    }

    /// Returns the same rule for samplers on devices, a `kiln_kernels::DeviceRule`. By default there is none. Without one, and if
    /// the rule [keeps self loops](Self::keeps_self_loops), it picks on the host in every mode, from a graph that is there.
    fn device_rule(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}

impl<F> SamplingRule for F
where
    F: Fn(Neighbors<'_>, NodeKey, u32, &mut Selection) + Send + Sync,
{
    fn pick(&self, neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
        self(neighbors, key, fanout, picks);
    }
}

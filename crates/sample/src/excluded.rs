use std::sync::Arc;

use kiln_graph::NodeId;

use crate::Result;

/// The edges that a batch leaves out of message passing, given as pairs of nodes: the links that the batch predicts.
///
/// All parallel edges of a pair are left out. A pair without an edge has no effect. Samples are those of a sampler on
/// the graph without these edges: the same sources, with the edge ids of this graph. This holds for every rule and for
/// whole neighbourhoods, because edges are left out before the draw.
///
/// The neighbours of a destination must ascend, as in every graph that [`CscBuilder`](kiln_graph::CscBuilder) builds or
/// [`Csc::sort_neighbors`](kiln_graph::Csc::sort_neighbors) returns; this is not checked.
///
/// ```
/// use kiln_graph::NodeId;
/// use kiln_sample::ExcludedEdges;
/// let excluded = ExcludedEdges::with_reverses([(NodeId(7), NodeId(2))]);
/// assert_eq!(excluded.srcs_into(NodeId(2)), [NodeId(7)]);
/// assert_eq!(excluded.srcs_into(NodeId(7)), [NodeId(2)]);
/// assert_eq!(excluded.srcs_into(NodeId(0)), []);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExcludedEdges {
    /// The destination of each pair. Pairs are distinct and ascend by destination, then by source.
    dsts: Vec<NodeId>,
    /// The source of each pair.
    srcs: Vec<NodeId>,
    /// A hash table with linear probing: 0, or the position of a destination's first pair plus 1. Its length is a power
    /// of two, at least twice the number of pairs; empty if there are no pairs.
    slots: Vec<u32>,
    /// A bit for each value of the upper bits of a hashed id: 1 if a destination has this hash. There are 16 bits per
    /// slot.
    filter: Vec<u64>,
}

/// The multiplier of Fibonacci hashing: 2^32 divided by the golden ratio (Knuth, "The Art of Computer Programming",
/// volume 3, section 6.4).
const GOLDEN: u32 = 0x9E37_79B9;

impl ExcludedEdges {
    /// Creates the set of the edges from `src` to `dst` of each pair `(src, dst)`. Pairs may repeat.
    pub fn new(pairs: impl IntoIterator<Item = (NodeId, NodeId)>) -> Self {
        // One integer for each pair sorts faster than two ids.
        let key = |(src, dst): (NodeId, NodeId)| u64::from(dst.0) << 32 | u64::from(src.0);
        let mut keys: Vec<u64> = pairs.into_iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut excluded = Self {
            dsts: keys.iter().map(|&key| NodeId((key >> 32) as u32)).collect(),
            srcs: keys.iter().map(|&key| NodeId(key as u32)).collect(),
            ..Self::default()
        };
        if !keys.is_empty() {
            excluded.fill_slots();
        }
        excluded
    }

    /// Creates the set of the edges of each pair in both directions.
    pub fn with_reverses(pairs: impl IntoIterator<Item = (NodeId, NodeId)>) -> Self {
        Self::new(pairs.into_iter().flat_map(|(src, dst)| [(src, dst), (dst, src)]))
    }

    fn fill_slots(&mut self) {
        self.slots = vec![0; (2 * self.dsts.len()).next_power_of_two().max(4)];
        self.filter = vec![0; self.slots.len() / 4];
        let mut last = None;
        for (position, &dst) in self.dsts.iter().enumerate() {
            if last.replace(dst) == Some(dst) {
                continue;
            }
            let bit = first_slot(dst, 64 * self.filter.len());
            self.filter[bit / 64] |= 1 << (bit % 64);
            let mut slot = first_slot(dst, self.slots.len());
            while self.slots[slot] != 0 {
                slot = (slot + 1) % self.slots.len();
            }
            self.slots[slot] = position as u32 + 1;
        }
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        self.srcs.len()
    }

    /// Returns true if there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.srcs.is_empty()
    }

    /// Returns false only if no edges into `dst` are left out. Nearly all destinations of a batch have none, and this
    /// test is cheaper than a search and predictable.
    #[inline]
    fn may_contain(&self, dst: NodeId) -> bool {
        let bit = first_slot(dst, 64 * self.filter.len());
        self.filter.get(bit / 64).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// Returns the sources whose edges into `dst` are left out, ascending. The time depends only on their number.
    #[inline]
    pub fn srcs_into(&self, dst: NodeId) -> &[NodeId] {
        if self.slots.is_empty() {
            return &[];
        }
        let mut slot = first_slot(dst, self.slots.len());
        loop {
            let first = match self.slots[slot] {
                0 => return &[],
                found => found as usize - 1,
            };
            if self.dsts[first] == dst {
                let n_srcs = self.dsts[first..].iter().take_while(|&&other| other == dst).count();
                return &self.srcs[first..first + n_srcs];
            }
            slot = (slot + 1) % self.slots.len();
        }
    }

    /// Returns the pairs as `(src, dst)`, in ascending order of the destinations and then of the sources.
    pub fn pairs(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        self.srcs.iter().copied().zip(self.dsts.iter().copied())
    }

    /// Appends the positions of the edges into `dst` that are left out, ascending. `neighbors` are the sources of all
    /// edges into `dst`, ascending.
    #[inline]
    fn push_positions(&self, dst: NodeId, neighbors: &[NodeId], positions: &mut Vec<u32>) {
        for &src in self.srcs_into(dst) {
            let first = neighbors.partition_point(|&other| other < src);
            let n_parallel = neighbors[first..].iter().take_while(|&&other| other == src).count();
            positions.extend((first..first + n_parallel).map(|position| position as u32));
        }
    }
}

/// The edges that a hop leaves out, as positions in the destinations' lists of neighbours.
///
/// They are found for all destinations of the hop in a loop that does nothing else, so the processor overlaps the
/// searches, whose reads are cache misses. The destinations of a hop are the first ones of the batch's next hop, so
/// their positions are kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemovedEdges {
    /// The sampler and the excluded edges to which the positions belong; `None` if there are no positions.
    origin: Option<(SamplerId, Arc<ExcludedEdges>)>,
    /// The destinations that may have such edges, with their positions in the hop's list, which ascend.
    dsts: Vec<(u32, NodeId)>,
    /// The end of each of these destinations' positions in `positions`.
    ends: Vec<usize>,
    /// The positions, ascending for each destination.
    positions: Vec<u32>,
    /// The number of destinations in `dsts` that [`RemovedEdges::next`] has passed.
    n_passed: usize,
    /// The `dsts` of the last hop, a buffer.
    last_dsts: Vec<(u32, NodeId)>,
}

/// The identity of a sampler, which all its clones share. Samplers with the same identity have the same graph and the
/// same global ids.
#[derive(Debug, Clone, Default)]
pub(crate) struct SamplerId(Arc<()>);

impl RemovedEdges {
    /// Finds the edges into `dsts`. `node` returns the global id of a destination, and `neighbors` the sources of its
    /// edges.
    pub(crate) fn find<'a>(
        &mut self,
        sampler: &SamplerId,
        excluded: Option<&Arc<ExcludedEdges>>,
        dsts: &[NodeId],
        node: impl Fn(NodeId) -> NodeId,
        neighbors: impl Fn(NodeId, usize) -> Result<&'a [NodeId]>,
    ) -> Result<()> {
        let Some(excluded) = excluded else {
            *self = Self::default();
            return Ok(());
        };
        std::mem::swap(&mut self.dsts, &mut self.last_dsts);
        self.dsts.clear();
        self.n_passed = 0;
        for (position, &dst) in dsts.iter().enumerate() {
            if excluded.may_contain(node(dst)) {
                self.dsts.push((position as u32, dst));
            }
        }
        let n_kept = match &self.origin {
            Some((of_sampler, edges))
                if Arc::ptr_eq(&of_sampler.0, &sampler.0) && Arc::ptr_eq(edges, excluded) =>
            {
                self.dsts.iter().zip(&self.last_dsts).take_while(|(dst, last)| dst == last).count()
            }
            _ => 0,
        };
        self.origin = Some((sampler.clone(), Arc::clone(excluded)));
        self.ends.truncate(n_kept);
        self.positions.truncate(self.ends.last().copied().unwrap_or(0));
        for &(position, dst) in &self.dsts[n_kept..] {
            excluded.push_positions(node(dst), neighbors(dst, position as usize)?, &mut self.positions);
            self.ends.push(self.positions.len());
        }
        Ok(())
    }

    /// Returns the positions of the edges into the destination at `position` of the hop's list. Destinations must be
    /// passed in their order.
    #[inline]
    pub(crate) fn next(&mut self, position: usize) -> &[u32] {
        if self.dsts.get(self.n_passed).is_none_or(|&(next, _)| next as usize != position) {
            return &[];
        }
        let first = if self.n_passed == 0 { 0 } else { self.ends[self.n_passed - 1] };
        let end = self.ends[self.n_passed];
        self.n_passed += 1;
        &self.positions[first..end]
    }
}

/// Returns the slot at which the search for a destination begins, in a table of `n_slots`. The upper bits of the product
/// depend on all bits of the id, so they select the slot.
#[inline]
fn first_slot(dst: NodeId, n_slots: usize) -> usize {
    ((u64::from(dst.0.wrapping_mul(GOLDEN)) * n_slots as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_sources_of_each_destination() {
        let pairs: Vec<_> = (0..3_000_u32).map(|i| (NodeId(i % 7), NodeId(i * 65_536 % 4_001))).collect();
        let excluded = ExcludedEdges::new(pairs.iter().copied());
        for dst in (0..4_100).map(NodeId) {
            let mut expected: Vec<_> = pairs.iter().filter(|pair| pair.1 == dst).map(|pair| pair.0).collect();
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(excluded.srcs_into(dst), expected, "{dst:?}");
        }
        assert_eq!(excluded.pairs().count(), excluded.len());
        assert_eq!(ExcludedEdges::new(excluded.pairs()), excluded);
    }

    /// Ids that follow each other, and multiples of a power of two, must not share few slots of a large table.
    #[test]
    fn destinations_spread_over_a_large_table() {
        let n_slots = 1 << 18;
        for stride in [1, 1 << 12] {
            let mut slots: Vec<_> =
                (0..100_000).map(|i| first_slot(NodeId(u32::wrapping_mul(i, stride)), n_slots)).collect();
            slots.sort_unstable();
            slots.dedup();
            assert!(60_000 < slots.len(), "{} slots with a stride of {stride}", slots.len());
        }
    }
}

use kiln_graph::NodeId;

/// The edges that a batch leaves out of message passing, given as pairs of nodes: the links that the batch predicts.
///
/// All parallel edges of a pair are left out. A pair without an edge has no effect. Samples are those of a sampler on
/// the graph without these edges: the same sources, with the edge ids of this graph.
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
    /// The destinations of the pairs, distinct and ascending.
    dsts: Vec<NodeId>,
    /// The offsets of the sources by destination, `[n_dsts + 1]`; empty if there are no pairs.
    indptr: Vec<u32>,
    /// The sources of each destination, distinct and ascending.
    srcs: Vec<NodeId>,
    /// A hash table with linear probing: 0, or a position in `dsts` plus 1. Its length is a power of two, at least
    /// twice the number of destinations.
    slots: Vec<u32>,
}

/// The multiplier of Fibonacci hashing: 2^32 divided by the golden ratio (Knuth, "The Art of Computer Programming",
/// volume 3, section 6.4).
const GOLDEN: u32 = 0x9E37_79B9;

impl ExcludedEdges {
    /// Creates the set of the edges from `src` to `dst` of each pair `(src, dst)`. Pairs may repeat.
    pub fn new(pairs: impl IntoIterator<Item = (NodeId, NodeId)>) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().map(|(src, dst)| (dst, src)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let mut excluded = Self { srcs: Vec::with_capacity(pairs.len()), ..Self::default() };
        for (dst, src) in pairs {
            if excluded.dsts.last() != Some(&dst) {
                excluded.dsts.push(dst);
                excluded.indptr.push(excluded.srcs.len() as u32);
            }
            excluded.srcs.push(src);
        }
        if !excluded.dsts.is_empty() {
            excluded.indptr.push(excluded.srcs.len() as u32);
            excluded.fill_slots();
        }
        excluded
    }

    /// Creates the set of the edges of each pair in both directions.
    pub fn with_reverses(pairs: impl IntoIterator<Item = (NodeId, NodeId)>) -> Self {
        Self::new(pairs.into_iter().flat_map(|(src, dst)| [(src, dst), (dst, src)]))
    }

    fn fill_slots(&mut self) {
        self.slots = vec![0; (2 * self.dsts.len()).next_power_of_two().max(2)];
        for (position, &dst) in self.dsts.iter().enumerate() {
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

    /// Returns the sources whose edges into `dst` are left out, ascending. Takes constant time.
    #[inline]
    pub fn srcs_into(&self, dst: NodeId) -> &[NodeId] {
        if self.slots.is_empty() {
            return &[];
        }
        let mut slot = first_slot(dst, self.slots.len());
        loop {
            match self.slots[slot] {
                0 => return &[],
                found if self.dsts[found as usize - 1] == dst => {
                    let position = found as usize - 1;
                    return &self.srcs[self.indptr[position] as usize..self.indptr[position + 1] as usize];
                }
                _ => slot = (slot + 1) % self.slots.len(),
            }
        }
    }

    /// Returns the pairs as `(src, dst)`, in ascending order of the destinations and then of the sources.
    pub fn pairs(&self) -> impl Iterator<Item = (NodeId, NodeId)> {
        let ranges = self.dsts.iter().zip(self.indptr.windows(2));
        ranges.flat_map(|(&dst, bounds)| {
            self.srcs[bounds[0] as usize..bounds[1] as usize].iter().map(move |&src| (src, dst))
        })
    }

    /// Fills `positions` with the positions of the edges into `dst` that are left out, ascending. `neighbors` are the
    /// sources of all edges into `dst`, ascending.
    #[inline]
    pub(crate) fn positions(&self, dst: NodeId, neighbors: &[NodeId], positions: &mut Vec<u32>) {
        positions.clear();
        for &src in self.srcs_into(dst) {
            let first = neighbors.partition_point(|&other| other < src);
            let n_parallel = neighbors[first..].iter().take_while(|&&other| other == src).count();
            positions.extend((first..first + n_parallel).map(|position| position as u32));
        }
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

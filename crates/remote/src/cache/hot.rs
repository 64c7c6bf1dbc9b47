use bytemuck::{Pod, Zeroable};
use kiln_graph::NodeId;

/// The number of nodes that one word of the bitmap represents.
const WORD: usize = 64;

/// A row of a cache: the position of a cached node in the cache's list and features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct CacheRow(u32);

impl CacheRow {
    /// Returns the rows as the ids that index the cache's feature store, without a copy.
    pub(crate) fn local_nodes(rows: &[Self]) -> &[NodeId] {
        bytemuck::cast_slice(rows)
    }
}

/// A map from cached nodes to cache rows: a bitmap with a prefix count per word. It takes 2 bits per node of the graph.
#[derive(Debug)]
pub(crate) struct NodeSet {
    words: Vec<Word>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Word {
    bits: u64,
    /// The number of members in the preceding words.
    n_before: u32,
}

impl NodeSet {
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&self.words[..])
    }

    /// Creates a set of nodes. Returns `None` unless they ascend strictly and are below `n_nodes`.
    pub(crate) fn new(n_nodes: usize, nodes: &[NodeId]) -> Option<Self> {
        if !nodes.is_sorted_by(|a, b| a < b) || nodes.last().is_some_and(|last| n_nodes <= last.index()) {
            return None;
        }
        let mut words = vec![Word::default(); n_nodes.div_ceil(WORD)];
        for node in nodes {
            words[node.index() / WORD].bits |= 1 << (node.index() % WORD);
        }
        let mut n_before = 0;
        for word in &mut words {
            word.n_before = n_before;
            n_before += word.bits.count_ones();
        }
        Some(Self { words })
    }

    /// Returns the row of a node, which is the number of members below the node, or `None` if the node is not a member.
    #[inline]
    pub(crate) fn row(&self, node: NodeId) -> Option<CacheRow> {
        let word = self.words.get(node.index() / WORD)?;
        let bit = 1_u64 << (node.index() % WORD);
        (word.bits & bit != 0).then(|| CacheRow(word.n_before + (word.bits & (bit - 1)).count_ones()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_of_a_hot_node_is_its_position_in_the_list() {
        let nodes: Vec<NodeId> =
            (0..1000).filter(|node| node % 7 == 3 || (128..200).contains(node)).map(NodeId).collect();
        let set = NodeSet::new(1000, &nodes).unwrap();
        for node in (0..1100).map(NodeId) {
            let row = nodes.binary_search(&node).ok().map(|row| CacheRow(row as u32));
            assert_eq!(set.row(node), row, "{node:?}");
        }
    }

    #[test]
    fn rejects_unsorted_duplicate_and_out_of_range_nodes() {
        assert!(NodeSet::new(10, &[NodeId(3), NodeId(3)]).is_none());
        assert!(NodeSet::new(10, &[NodeId(4), NodeId(3)]).is_none());
        assert!(NodeSet::new(10, &[NodeId(10)]).is_none());
        assert!(NodeSet::new(0, &[]).is_some_and(|set| set.row(NodeId(0)).is_none()));
    }
}

use std::sync::Arc;

use kiln_graph::{LocalId, NodeId};

use crate::ExcludedEdges;

/// The seeds of a batch: the nodes for which outputs are computed.
///
/// The list may contain duplicates. A duplicate node is one destination of the last block, at the position of its
/// first appearance. `SampledBlocks::seed_index` maps each entry of the list to its row of the model's output. Labels
/// align with the list, so a duplicate seed counts twice in the loss. With times, seeds are duplicates if both their nodes and
/// their times are equal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seeds {
    nodes: Vec<NodeId>,
    times: Option<Vec<i64>>,
    excluded: Option<Arc<ExcludedEdges>>,
}

impl Seeds {
    /// Creates seeds from node ids.
    pub fn nodes(nodes: Vec<NodeId>) -> Self {
        Self { nodes, times: None, excluded: None }
    }

    /// Sets the time of each seed. Its tree has only edges that are before it ([`TimeLimits`](crate::TimeLimits)), in every
    /// layer. Seeds of equal time share rows, others do not.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use kiln_graph::{CscBuilder, EdgeId, NodeId};
    /// use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, Scratch, Seeds};
    /// let graph = CscBuilder::new(3).build(&[0, 1], &[2, 2])?.with_edge_times(vec![10, 20])?;
    /// let sampler = NeighborSampler::new(Arc::new(graph), [Fanout::All]);
    /// let seeds = Seeds::nodes(vec![NodeId(2), NodeId(2)]).with_times(vec![15, 25]);
    /// let block = &sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?.blocks[0];
    /// assert_eq!(block.indptr(), [0, 1, 3]);
    /// assert_eq!(block.edge_ids(), [EdgeId(0), EdgeId(0), EdgeId(1)]);
    /// assert_eq!(block.src_times(), Some(&[15, 25, 15, 25, 25][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics unless there is one time per seed.
    #[must_use]
    pub fn with_times(self, times: impl Into<Option<Vec<i64>>>) -> Self {
        let times = times.into();
        let n_times = times.as_ref().map_or(self.nodes.len(), Vec::len);
        assert_eq!(n_times, self.nodes.len(), "the numbers of times and seeds differ");
        Self { times, ..self }
    }

    /// Returns the time of each seed; `None` if they have none.
    pub fn times(&self) -> Option<&[i64]> {
        self.times.as_deref()
    }

    /// Sets the edges that samples leave out, in every layer.
    #[must_use]
    pub fn excluding(self, excluded: impl Into<Option<Arc<ExcludedEdges>>>) -> Self {
        Self { excluded: excluded.into(), ..self }
    }

    /// Returns the edges that samples leave out; `None` if there are none.
    pub fn excluded(&self) -> Option<&Arc<ExcludedEdges>> {
        self.excluded.as_ref()
    }

    /// Returns the node ids in the given order, including duplicates.
    pub fn as_nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the distinct nodes in the order of their first appearance. `rows` is the row of each entry
    /// ([`SampledBlocks::seed_index`](crate::SampledBlocks::seed_index)).
    pub fn distinct(&self, rows: &[LocalId]) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for (&node, row) in self.nodes.iter().zip(rows) {
            if row.index() == nodes.len() {
                nodes.push(node);
            }
        }
        nodes
    }

    /// Returns the number of seeds, including duplicates.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there are no seeds.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

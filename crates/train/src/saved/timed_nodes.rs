use std::sync::Arc;

use kiln_graph::NodeId;

/// The nodes whose rows a [`LinkScorer`](crate::LinkScorer) has, each once and ascending. Nodes that are sampled at several times
/// have a row for each: they are ordered by node and then by time.
///
/// ```
/// use kiln_graph::NodeId;
/// use kiln_train::TimedNodes;
/// let nodes = TimedNodes::at(vec![NodeId(4), NodeId(4), NodeId(1), NodeId(4)], &[20, 10, 20, 20]);
/// assert_eq!(nodes.nodes(), [NodeId(1), NodeId(4), NodeId(4)]);
/// assert_eq!(nodes.times().unwrap()[..], [20, 10, 20]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimedNodes {
    nodes: Arc<[NodeId]>,
    /// The time of each entry; `None` if nodes have one row.
    times: Option<Arc<[i64]>>,
}

impl TimedNodes {
    /// Returns nodes at the time of each, in any order and with repetitions.
    ///
    /// # Panics
    /// Panics unless there is one time per node.
    pub fn at(nodes: Vec<NodeId>, times: &[i64]) -> Self {
        assert_eq!(nodes.len(), times.len(), "expected one time per node");
        let mut items: Vec<(NodeId, i64)> = nodes.into_iter().zip(times.iter().copied()).collect();
        items.sort_unstable();
        items.dedup();
        let (nodes, times): (Vec<NodeId>, Vec<i64>) = items.into_iter().unzip();
        Self { nodes: nodes.into(), times: Some(times.into()) }
    }

    /// Returns the nodes, one for each row.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns the time of each row; `None` for nodes without times.
    pub fn times(&self) -> Option<&Arc<[i64]>> {
        self.times.as_ref()
    }

    /// Returns the number of the row of a node, at this time if nodes have times; `None` if it has no row.
    pub(crate) fn row(&self, node: NodeId, time: Option<i64>) -> Option<usize> {
        let Some(times) = &self.times else { return self.nodes.binary_search(&node).ok() };
        let start = self.nodes.partition_point(|other| *other < node);
        let end = self.nodes.partition_point(|other| *other <= node);
        times[start..end].binary_search(&time?).ok().map(|position| start + position)
    }
}

impl From<Vec<NodeId>> for TimedNodes {
    fn from(mut nodes: Vec<NodeId>) -> Self {
        nodes.sort_unstable();
        nodes.dedup();
        Self { nodes: nodes.into(), times: None }
    }
}

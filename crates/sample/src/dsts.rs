use std::ops::Range;

use kiln_graph::NodeId;

/// The destinations of a hop: distinct nodes or, if items have times, distinct pairs of a node and a time.
///
/// ```
/// use kiln_graph::NodeId;
/// use kiln_sample::Dsts;
/// let dsts = Dsts::from(&[NodeId(4), NodeId(2)]);
/// assert_eq!((dsts.len(), dsts.times()), (2, None));
/// let dsts = Dsts::with_times(&[NodeId(4), NodeId(4)], &[10, 20], &[1, 0]);
/// assert_eq!(dsts.times().unwrap().time(0), 20);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Dsts<'a> {
    nodes: &'a [NodeId],
    times: Option<DstTimes<'a>>,
}

/// The times of a hop's destinations, which are few distinct ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DstTimes<'a> {
    distinct: &'a [i64],
    index: &'a [u32],
}

impl<'a> Dsts<'a> {
    /// Creates destinations with times: that of `nodes[i]` is `distinct[index[i]]`.
    ///
    /// # Panics
    /// Panics unless there is one index per node.
    pub fn with_times(nodes: &'a [NodeId], distinct: &'a [i64], index: &'a [u32]) -> Self {
        assert_eq!(nodes.len(), index.len(), "the numbers of nodes and times differ");
        Self { nodes, times: Some(DstTimes { distinct, index }) }
    }

    /// Returns the nodes.
    #[inline]
    pub fn nodes(&self) -> &'a [NodeId] {
        self.nodes
    }

    /// Returns the times; `None` if items have none.
    #[inline]
    pub fn times(&self) -> Option<DstTimes<'a>> {
        self.times
    }

    /// Returns the number of destinations.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns true if there are no destinations.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the destinations at some positions.
    ///
    /// # Panics
    /// Panics if the range exceeds the destinations.
    pub fn slice(&self, positions: Range<usize>) -> Self {
        let times = self.times.map(|times| DstTimes { index: &times.index[positions.clone()], ..times });
        Self { nodes: &self.nodes[positions], times }
    }
}

impl<'a> DstTimes<'a> {
    /// Returns the distinct times.
    pub fn distinct(&self) -> &'a [i64] {
        self.distinct
    }

    /// Returns the position of each destination's time among the distinct ones.
    #[inline]
    pub fn index(&self) -> &'a [u32] {
        self.index
    }

    /// Returns the time of the destination at a position.
    ///
    /// # Panics
    /// Panics if there is no such destination.
    #[inline]
    pub fn time(&self, position: usize) -> i64 {
        self.distinct[self.index[position] as usize]
    }
}

impl<'a> From<&'a [NodeId]> for Dsts<'a> {
    fn from(nodes: &'a [NodeId]) -> Self {
        Self { nodes, times: None }
    }
}

impl<'a> From<&'a Vec<NodeId>> for Dsts<'a> {
    fn from(nodes: &'a Vec<NodeId>) -> Self {
        nodes.as_slice().into()
    }
}

impl<'a, const N: usize> From<&'a [NodeId; N]> for Dsts<'a> {
    fn from(nodes: &'a [NodeId; N]) -> Self {
        nodes.as_slice().into()
    }
}

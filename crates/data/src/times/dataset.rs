use std::sync::Arc;

use kiln_feature::PreparationStep;
use kiln_graph::{NodeId, Relations, SharedArray};
use kiln_store::check_count;

use super::{TimeError, TimeSplit, range_of, times_of};
use crate::error::missing;
use crate::{Dataset, Result};

impl Dataset {
    /// Returns the set with a time for each node of a type, `[n_nodes_of_type]`. The times of edges are the column
    /// [`EdgeColumns::TIMES`](kiln_graph::EdgeColumns::TIMES) ([`Dataset::with_edge_column`]).
    ///
    /// ```
    /// use kiln_data::synthetic;
    /// let ring = synthetic::ring(6)?.with_node_times(0, vec![10, 11, 12, 13, 14, 15])?;
    /// assert_eq!(ring.times.node_times(0).unwrap()[2], 12);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Inconsistent`] unless there is one time per node.
    ///
    /// # Panics
    /// Panics if there is no such type.
    pub fn with_node_times(mut self, node_type: usize, times: impl Into<SharedArray<i64>>) -> Result<Self> {
        let times = times.into();
        let types = self.graph.types();
        check_count(&self.name, "the number of node times", types.range(node_type).len(), times.len())?;
        self.times.nodes.resize(types.n_types(), None);
        self.times.nodes[node_type] = Some(times);
        Ok(self)
    }

    /// Returns the set whose nodes with targets are split by their times, and which records the split, so that loaders cut
    /// the messages of each phase ([`TimeSplit::cuts`]). A node without a target, or whose time is missing
    /// ([`DatasetTimes::NEVER`](crate::DatasetTimes::NEVER)), is in no part.
    ///
    /// ```
    /// use kiln_data::{TimeSplit, synthetic};
    /// let ring = synthetic::ring(6)?.with_node_times(0, vec![10, 11, 12, 13, 14, 15])?;
    /// let ring = ring.with_time_split(TimeSplit::new(None, 13, 14)?)?;
    /// assert_eq!(ring.split().parts().map(|(_, nodes)| nodes.len()), [3, 1, 2]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`BuildError::Missing`](crate::BuildError::Missing) for a set without targets, [`TimeError::NoTimes`] if their
    /// nodes have no times, [`TimeError::Scaled`] if the statistics of their features were already computed from later nodes, and the
    /// errors of [`TimeSplit::divide`].
    pub fn with_time_split(self, split: TimeSplit) -> Result<Self> {
        self.check_unscaled(&split)?;
        let nodes = self.target_nodes();
        let Some(targets) = &self.targets else {
            return Err(missing("targets", ".labels(classes, n_classes)").into());
        };
        let times = self.times.node_times(targets.node_type).ok_or_else(|| TimeError::NoTimes {
            items: format!("the nodes of the type `{}`", self.graph.types().names()[targets.node_type]),
        })?;
        let mut items = Vec::new();
        for (row, time) in (0_u32..).zip(times.iter()) {
            if targets.values.has_any(NodeId(row)) {
                items.push((NodeId(nodes.start + row), *time));
            }
        }
        let divided = split.divide(items, self.times.kind)?;
        let mut data = self.with_split(divided)?;
        data.times.split = Some(split);
        Ok(data)
    }

    /// Checks that features are not scaled by statistics of nodes that are later than the training items of a split.
    ///
    /// # Errors
    /// Returns [`TimeError::Scaled`] if they are.
    pub(crate) fn check_unscaled(&self, split: &TimeSplit) -> Result<()> {
        let is_scaled = self.preparation.steps.iter().any(|step| matches!(step, PreparationStep::Scale(_)));
        let has_times = self.times.nodes.iter().any(Option::is_some);
        // The set had the same split when it was scaled, or else it would not have got it.
        if is_scaled && has_times && self.times.split != Some(*split) {
            return Err(TimeError::Scaled { name: self.name.clone() }.into());
        }
        Ok(())
    }

    /// Returns true if edges or nodes have times.
    pub fn has_times(&self) -> bool {
        let has_edge_times = self.graph.iter().any(|relation| times_of(relation.graph.columns()).is_some());
        has_edge_times || self.times.nodes.iter().any(Option::is_some)
    }

    /// Returns the first and the last time of the edges of a relation; `None` if they have no times or there are no edges.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn edge_time_range(&self, relation: usize) -> Option<[i64; 2]> {
        range_of(times_of(self.graph.relation(relation).graph.columns())?)
    }

    /// Returns the first and the last time of the nodes of a type; `None` if they have no times or there are no nodes.
    pub fn node_time_range(&self, node_type: usize) -> Option<[i64; 2]> {
        range_of(self.times.node_times(node_type)?)
    }

    /// Returns the graph that was known before a time: without the edges whose time, or the time of whose source, is not
    /// before it. An edge or a node without a time was always known, and a node always knows itself: the time of a self loop is its
    /// own only. Edges have no times in it and keep their other columns and their order; a relation that loses no edge is shared.
    ///
    /// A late node has no edge to another node, so that it is reached only as a seed. The edges into it that have no times of
    /// their own stay: they come with the node, as the citations of a new paper do.
    ///
    /// ```
    /// use kiln_data::Dataset;
    /// use kiln_graph::{EdgeColumn, EdgeColumns};
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[2, 2])
    ///     .edge_column(EdgeColumns::TIMES, EdgeColumn::new(vec![5_i64, 9], 1)?)
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// assert_eq!(data.graph_before(9)?.n_edges(), 1);
    /// assert_eq!(data.graph_before(10)?.n_edges(), 2);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if a relation is damaged, or if the edges do not fit in memory.
    pub fn graph_before(&self, time: i64) -> Result<Arc<Relations>> {
        self.times.graph_before(&self.graph, time)
    }
}

//! Graphs whose edges are ordered by the times from which they pass messages.

use std::sync::Arc;

use kiln_graph::{Csc, EdgeTimes, NodeId, Relation, Relations, SharedArray};
use kiln_store::progress::{Progress, ProgressUnit};

use super::message_times::MessageTimes;
use super::{DatasetTimes, times_of};
use crate::Result;

impl DatasetTimes {
    /// Returns a graph with the nodes of the set whose edges are ordered by time, for seeds that have times
    /// ([`Csc::with_edge_times`](kiln_graph::Csc::with_edge_times)). An edge passes messages from its own time on or, if that is
    /// later, from the time of its source; a self loop from its own time on, because a node always knows itself. A relation
    /// without either is shared: its edges are always known.
    ///
    /// The order of a set that was opened from a folder in the kiln format is the one that the folder stores, mapped; of other sets
    /// and of changed edges, it is made here and takes 4 bytes per edge. Relations whose sources have times take 8 bytes more.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if a relation is damaged.
    pub fn graph_by_time(&self, graph: &Arc<Relations>) -> Result<Arc<Relations>> {
        graph.validate()?;
        let _progress = Progress::start("ordering edges by time", ProgressUnit::Edges, Some(graph.n_edges()));
        let mut relations = Vec::with_capacity(graph.n_relations());
        for (position, relation) in graph.iter().enumerate() {
            let by_time = match MessageTimes::new(graph, position, self) {
                Some(times) => Arc::new(self.relation_by_time(graph, position, times)?),
                None => Arc::clone(&relation.graph),
            };
            relations.push(Relation { graph: by_time, ..relation.clone() });
        }
        Ok(Arc::new(Relations::new(Arc::clone(graph.types()), relations)?))
    }

    /// Returns the edges of a relation, ordered by the times from which they pass messages
    /// ([`DatasetTimes::graph_by_time`]); `None` if all are always known. `graph` may have a part of the edges, as in
    /// [`DatasetTimes::edges_before`].
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the graph is damaged.
    pub fn edges_by_time(
        &self,
        graph: &Csc,
        src_type: usize,
        first_src: u32,
        node_of_row: impl Fn(NodeId) -> NodeId,
    ) -> Result<Option<Csc>> {
        graph.validate_indptr()?;
        let Some(times) = MessageTimes::edges(graph, src_type, first_src, self) else { return Ok(None) };
        Ok(Some(graph.clone().with_edge_times(all_times(graph, times, node_of_row))?))
    }

    /// Returns the graph of a relation whose edges are ordered by these times: in the stored order, if it has one.
    fn relation_by_time(&self, graph: &Relations, position: usize, times: MessageTimes<'_>) -> Result<Csc> {
        let relation = graph.relation(position);
        let first_dst = graph.types().range(relation.dst_type).start;
        let edges = relation.graph.as_ref().clone();
        // Rows of a relation count from the first node of the destinations' type.
        let times = all_times(&edges, times, |row| NodeId(first_dst + row.0));
        Ok(match self.orders.get(graph, position, self) {
            Some((order, scale)) => edges.with_ordered_times(EdgeTimes::new(times, order.clone(), scale)?)?,
            None => edges.with_edge_times(times)?,
        })
    }
}

/// Returns the times of all edges, which are shared if they do not depend on the sources. The offsets of the edges must ascend.
fn all_times(
    edges: &Csc,
    times: MessageTimes<'_>,
    node_of_row: impl Fn(NodeId) -> NodeId,
) -> SharedArray<i64> {
    match (times_of(edges.columns()), times.of_srcs) {
        (Some(of_edges), None) => of_edges.clone(),
        _ => times.row_times_at(0..edges.n_nodes(), node_of_row).into(),
    }
}

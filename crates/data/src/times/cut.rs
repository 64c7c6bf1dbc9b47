//! Graphs of what was known before a time.

use std::sync::Arc;

use kiln_graph::{Csc, EdgeColumn, EdgeColumns, NodeId, Relation, Relations, times_with_self_loops};
use kiln_store::progress::{Progress, ProgressUnit};

use super::{DatasetTimes, times_of};
use crate::Result;

impl DatasetTimes {
    /// Returns a graph with the nodes of the set without the edges that were not known before a time, as
    /// [`Dataset::graph_before`](crate::Dataset::graph_before) documents: the graph of the set, or one that passes the messages of
    /// links.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if a relation is damaged, or if the edges do not fit in memory.
    pub fn graph_before(&self, graph: &Arc<Relations>, time: i64) -> Result<Arc<Relations>> {
        let _progress = Progress::start("cutting messages", ProgressUnit::Edges, Some(graph.n_edges()));
        let relations = graph.iter().map(|relation| self.relation_before(graph, relation, time));
        let relations = relations.collect::<Result<Vec<Relation>>>()?;
        Ok(Arc::new(Relations::new(Arc::clone(graph.types()), relations)?))
    }

    /// Returns the positions of the edges of a relation that were known before a time ([`Csc::find_edges`]); `None` if all were.
    /// `graph` may have a part of the edges: its destinations are rows, of which `node_of_row` returns the node, and its sources
    /// are nodes of the whole graph, of which `first_src` is the first one of their type.
    ///
    /// An edge is known from its time on, and not before its source. A node always knows itself, so that the time of a self loop is its
    /// own only.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the graph is damaged.
    pub fn edges_before(
        &self,
        graph: &Csc,
        src_type: usize,
        first_src: u32,
        node_of_row: impl Fn(NodeId) -> NodeId + Sync,
        time: i64,
    ) -> Result<Option<Vec<u64>>> {
        let edges = times_of(graph.columns());
        let nodes = self.node_times(src_type);
        if edges.is_none() && nodes.is_none() {
            return Ok(None);
        }
        let kept = graph.find_edges(|edge, src, row| {
            // A source of another type is found by the sampler.
            let of_src = nodes.and_then(|nodes| nodes.get(src.0.wrapping_sub(first_src) as usize));
            edges.is_none_or(|times| times[edge] < time)
                && (of_src.is_none_or(|of_src| *of_src < time) || src == node_of_row(row))
        })?;
        Ok((kept.len() as u64 != graph.n_edges()).then_some(kept))
    }

    fn relation_before(&self, graph: &Relations, relation: &Relation, time: i64) -> Result<Relation> {
        let types = graph.types();
        let first_dst = types.range(relation.dst_type).start;
        let first_src = types.range(relation.src_type).start;
        let kept = self.edges_before(
            &relation.graph,
            relation.src_type,
            first_src,
            |row| NodeId(first_dst + row.0),
            time,
        )?;
        let whole = without_times(&relation.graph)?;
        let graph = match kept {
            Some(kept) => Arc::new(whole.select_edges(&kept)?),
            None => whole,
        };
        Ok(Relation { graph, ..relation.clone() })
    }
}

/// Returns a graph with the times of `before`, to which it has added self loops, and with [`DatasetTimes::ALWAYS`] for the loops.
pub(crate) fn with_times_of_loops(with_loops: Csc, before: &Csc) -> Result<Csc> {
    let Some(times) = times_of(before.columns()) else { return Ok(with_loops) };
    let all = times_with_self_loops(before, &with_loops, times);
    Ok(with_loops.with_column(EdgeColumns::TIMES, EdgeColumn::new(all, 1)?)?)
}

/// Returns a graph whose edges have no times.
fn without_times(graph: &Arc<Csc>) -> Result<Arc<Csc>> {
    if times_of(graph.columns()).is_none() {
        return Ok(Arc::clone(graph));
    }
    let columns = graph.columns().clone().without(EdgeColumns::TIMES);
    Ok(Arc::new(Csc::clone(graph).with_columns(&columns)?))
}

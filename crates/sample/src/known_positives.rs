use std::sync::Arc;

use kiln_graph::{ColumnValues, Csc, EdgeColumn, EdgeColumns, NodeId, SharedArray};

use crate::{Error, NegativesError, Result};

/// The edges that are no negatives, whose neighbours ascend, with their times if they have some.
#[derive(Debug, Clone)]
pub(crate) struct KnownPositives {
    graph: Arc<Csc>,
    times: Option<SharedArray<i64>>,
}

impl KnownPositives {
    /// Reads the whole graph once, and copies and sorts it unless neighbours ascend.
    pub(crate) fn new(graph: Arc<Csc>) -> Result<Self> {
        let graph = match graph.has_sorted_neighbors() {
            true => graph,
            false => Arc::new(graph.sort_neighbors()?),
        };
        let times = times_of(&graph).cloned();
        Ok(Self { graph, times })
    }

    pub(crate) fn n_edges(&self) -> u64 {
        self.graph.n_edges()
    }

    /// Returns true if there is an edge, for a link with a time one that is not later.
    pub(crate) fn contain(&self, src: NodeId, dst: NodeId, time: Option<i64>) -> Result<bool> {
        let node = src.max(dst);
        let n_nodes = self.graph.n_nodes();
        if n_nodes <= node.index() {
            return Err(Error::Negatives(NegativesError::NegativeOutOfRange { node, n_nodes }));
        }
        let neighbors = self.graph.in_neighbors(dst);
        let (Some(times), Some(time)) = (&self.times, time) else {
            return Ok(neighbors.binary_search(&src).is_ok());
        };
        let first_edge = self.graph.indptr()[dst.index()] as usize;
        let start = neighbors.partition_point(|neighbor| *neighbor < src);
        let parallel = neighbors[start..].iter().take_while(|neighbor| **neighbor == src);
        let of_pair = &times[first_edge + start..][..parallel.count()];
        Ok(of_pair.iter().any(|of_edge| *of_edge <= time))
    }
}

/// Returns the times of the edges of a graph; `None` if they have none.
pub(crate) fn times_of(graph: &Csc) -> Option<&SharedArray<i64>> {
    match graph.columns().get(EdgeColumns::TIMES).map(EdgeColumn::values) {
        Some(ColumnValues::I64(times)) => Some(times),
        _ => None,
    }
}

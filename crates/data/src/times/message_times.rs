use std::ops::Range;

use kiln_graph::{Csc, EdgeTimes, NodeId, Relations};

use super::{DatasetTimes, times_of};

/// The times from which the edges of a relation pass messages: the time of the edge or, if it is later, that of its source. A
/// self loop passes them from its own time on, because a node always knows itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageTimes<'a> {
    graph: &'a Csc,
    /// The time of each edge; `None` if all were always known.
    pub(crate) of_edges: Option<&'a [i64]>,
    /// The time of each node of the sources' type; `None` if all always existed.
    pub(crate) of_srcs: Option<&'a [i64]>,
    first_src: u32,
    /// The node of the first row: rows of a relation count from the first node of the destinations' type.
    first_dst: u32,
}

impl<'a> MessageTimes<'a> {
    /// Returns the times of the relation at a position; `None` if all edges are always known.
    pub(crate) fn new(graph: &'a Relations, position: usize, times: &'a DatasetTimes) -> Option<Self> {
        let relation = graph.relation(position);
        let first_src = graph.types().range(relation.src_type).start;
        let first_dst = graph.types().range(relation.dst_type).start;
        let of_edges = Self::edges(&relation.graph, relation.src_type, first_src, times)?;
        Some(Self { first_dst, ..of_edges })
    }

    /// Returns the times of edges from the nodes of a type, whose rows are nodes from 0; `None` if all are always known.
    pub(crate) fn edges(
        graph: &'a Csc,
        src_type: usize,
        first_src: u32,
        times: &'a DatasetTimes,
    ) -> Option<Self> {
        let of_edges = times_of(graph.columns()).map(|times| &**times);
        let of_srcs = times.node_times(src_type).map(|times| &**times);
        (of_edges.is_some() || of_srcs.is_some()).then_some(Self {
            graph,
            of_edges,
            of_srcs,
            first_src,
            first_dst: 0,
        })
    }

    /// Returns the offsets of the edges into each row.
    pub(crate) fn indptr(&self) -> &'a [u64] {
        self.graph.indptr()
    }

    /// Returns the times of the edges into some rows. The rows must be those of a graph whose offsets ascend.
    pub(crate) fn row_times(&self, rows: Range<usize>) -> Vec<i64> {
        self.row_times_at(rows, |row| NodeId(self.first_dst + row.0))
    }

    /// Same as [`MessageTimes::row_times`], where `node_of_row` returns the node of a row.
    pub(crate) fn row_times_at(
        &self,
        rows: Range<usize>,
        node_of_row: impl Fn(NodeId) -> NodeId,
    ) -> Vec<i64> {
        let offsets = &self.graph.indptr()[rows.start..=rows.end];
        let mut times = Vec::with_capacity((offsets[rows.len()] - offsets[0]) as usize);
        for (row, bounds) in rows.zip(offsets.windows(2)) {
            let edges = bounds[0] as usize..bounds[1] as usize;
            let dst = node_of_row(NodeId(row as u32));
            for (edge, src) in edges.clone().zip(&self.graph.indices()[edges]) {
                let of_edge = self.of_edges.map_or(EdgeTimes::ALWAYS, |times| times[edge]);
                // A source of another type is found by the sampler.
                let row_of_src = src.0.wrapping_sub(self.first_src) as usize;
                let of_src = self.of_srcs.filter(|_| *src != dst).and_then(|times| times.get(row_of_src));
                times.push(of_src.map_or(of_edge, |of_src| of_edge.max(*of_src)));
            }
        }
        times
    }
}

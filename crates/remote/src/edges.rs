use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{Csc, EdgeId, NodeId, SharedArray};
use kiln_partition::PartitionRow;
use kiln_sample::{
    DstTimes, Dsts, ExcludedEdges, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler, Rule,
    Scratch, in_edge_range,
};

use crate::wire::wanted::ExcludedEdge;

/// All in-edges of some nodes of a graph. The nodes are those of a partition, or nodes whose neighbour lists a server
/// has sent.
#[derive(Debug, Clone)]
pub(crate) struct Edges {
    /// The in-edges, with a row for each of `nodes`. Sources are node ids of the whole graph. The edges of each row are
    /// in the order of the whole graph.
    pub(crate) graph: Arc<Csc>,
    /// The node of each row.
    pub(crate) nodes: SharedArray<NodeId>,
    /// The id, in the whole graph, of each row's first edge.
    pub(crate) first_edges: SharedArray<u64>,
    /// The position of each edge of `graph` among all in-edges of its row, of edges that were known before a time; `None` for all
    /// edges.
    pub(crate) positions: Option<Arc<[u32]>>,
}

impl Edges {
    /// Returns these edges, in the same order, with other columns or times.
    pub(crate) fn with_graph(&self, graph: Csc) -> Self {
        Self { graph: Arc::new(graph), ..self.clone() }
    }

    /// Returns the id, in the whole graph, of a row's edge, which has an id in `graph`.
    fn id_of(&self, row: PartitionRow, edge: EdgeId) -> EdgeId {
        let first = self.first_edges[row.index()];
        let offset = match &self.positions {
            Some(positions) => u64::from(positions[edge.index()]),
            None => edge.0 - self.graph.indptr()[row.index()],
        };
        // A damaged first edge gives ids that no row has, which `Part::edge_position` reports.
        EdgeId(offset.wrapping_add(first))
    }

    /// Samples edges of rows exactly as a sampler of the whole graph does. Sources and edge ids are those of the whole
    /// graph. Rows may have times, if the edges are ordered by time or are always known.
    pub(crate) fn sample(
        &self,
        rows: &[PartitionRow],
        times: Option<DstTimes<'_>>,
        rule: &Rule,
        request: &HopRequest,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        let nodes = PartitionRow::local_nodes(rows);
        let dsts = match times {
            Some(times) => Dsts::with_times(nodes, times.distinct(), times.index()),
            None => nodes.into(),
        };
        NeighborSampler::with_rule(Arc::clone(&self.graph), [request.fanout], rule.clone())
            .with_global_ids(self.nodes.clone())
            .sample_frontier(request, dsts, scratch, out)?;
        self.number(rows, out);
        Ok(())
    }

    /// Returns the positions of each row's edges in `graph`. The positions are checked, because the graph may be a
    /// damaged file.
    ///
    /// # Errors
    /// Returns the errors of [`in_edge_range`].
    pub(crate) fn ranges(&self, rows: &[PartitionRow]) -> kiln_sample::Result<Vec<Range<usize>>> {
        rows.iter()
            .enumerate()
            .map(|(position, row)| in_edge_range(&self.graph, row.local_node(), position))
            .collect()
    }

    /// Returns the edges to leave out of a request for these rows; `None` if there are none.
    pub(crate) fn excluded(
        &self,
        rows: &[PartitionRow],
        edges: &[ExcludedEdge],
    ) -> Option<Arc<ExcludedEdges>> {
        let pairs =
            edges.iter().map(|&[position, src]| (NodeId(src), self.nodes[rows[position as usize].index()]));
        (!edges.is_empty()).then(|| Arc::new(ExcludedEdges::new(pairs)))
    }

    /// Returns true if `picked` is a possible sample of the rows: each row has only its own edges, none of those that
    /// the request leaves out, and enough of them for the fanout and the rule.
    ///
    /// # Errors
    /// Returns the errors of [`in_edge_range`].
    pub(crate) fn may_give(
        &self,
        rows: &[PartitionRow],
        request: &HopRequest,
        rule: &Rule,
        picked: &Frontier,
    ) -> kiln_sample::Result<bool> {
        let indices = self.graph.indices();
        for (position, (row, bounds)) in rows.iter().zip(picked.indptr.windows(2)).enumerate() {
            let edges = in_edge_range(&self.graph, row.local_node(), position)?;
            let ids = &picked.edge_ids[bounds[0] as usize..bounds[1] as usize];
            let node = self.nodes[row.index()];
            let excluded = request.excluded.as_ref().map_or(&[][..], |excluded| excluded.srcs_into(node));
            let n_left = edges.len() - n_edges_from(excluded, &indices[edges.clone()]);
            let is_whole = match (request.fanout, rule) {
                (Fanout::All, _) => ids.len() == n_left,
                // A custom rule may select fewer edges than the fanout.
                (_, Rule::Custom { .. }) => true,
                (Fanout::UpTo(fanout), _) => n_left.min(fanout as usize) <= ids.len(),
            };
            let may_pick = |edge: &EdgeId| {
                edges.contains(&edge.index()) && excluded.binary_search(&indices[edge.index()]).is_err()
            };
            if !is_whole || !ids.iter().all(may_pick) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Replaces the edge ids of a sample of these rows, which are positions in `graph`, by ids of the whole graph.
    pub(crate) fn number(&self, rows: &[PartitionRow], out: &mut Frontier) {
        for (dst, row) in rows.iter().enumerate() {
            let picked = out.indptr[dst] as usize..out.indptr[dst + 1] as usize;
            for edge in &mut out.edge_ids[picked] {
                *edge = self.id_of(*row, *edge);
            }
        }
    }
}

/// Counts the edges that come from `srcs`. `neighbors` are the sources of all edges, ascending.
fn n_edges_from(srcs: &[NodeId], neighbors: &[NodeId]) -> usize {
    let n_parallel = |src: &NodeId| {
        neighbors.partition_point(|other| other <= src) - neighbors.partition_point(|other| other < src)
    };
    srcs.iter().map(n_parallel).sum()
}

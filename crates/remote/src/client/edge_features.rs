use std::sync::Arc;

use kiln_feature::{EdgeFeatureStore, FeatureBuffer, FeatureDType};
use kiln_graph::{Block, EdgeId};
use kiln_partition::PartitionRow;

use crate::client::fetch_stats::count;
use crate::client::graph::DistGraph;
use crate::client::question::Question;
use crate::client::row_requests::{RowRequests, bytes_mut, fit};
use crate::wire::encoding::bytes_of;
use crate::wire::limits::MAX_EDGES;
use crate::wire::proto::GatherEdgesRequest;
use crate::wire::row_format::RowFormat;
use crate::wire::wanted::{EdgeOfRow, WantedRow};
use crate::{ContentError, Error, Result};

/// The edge features of a partitioned graph, by ids of the whole graph. Rows are bit-identical to those of the whole
/// graph's edge features.
///
/// An edge's row is in the partition of its destination. Rows of the local partition are read in place, all others are
/// requested from their servers, from all servers concurrently. Edge rows are not cached.
#[derive(Debug)]
pub struct DistEdgeFeatureStore {
    graph: Arc<DistGraph>,
    format: RowFormat,
}

/// Returns the edges of a block by the partition of their destination, with their positions in the block.
fn edges_by_part(graph: &DistGraph, block: &Block) -> Result<Vec<Vec<WantedRow<EdgeOfRow>>>> {
    let book = graph.books().of_type(0);
    let mut edges_of = vec![Vec::new(); book.n_parts()];
    for (&node, bounds) in block.dsts().iter().zip(block.indptr().windows(2)) {
        let n_rows = book.n_nodes();
        let place = book.place(node).ok_or(kiln_feature::Error::NodeOutOfRange { node, n_rows })?;
        let edges = &block.edge_ids()[bounds[0] as usize..bounds[1] as usize];
        edges_of[place.part].extend(edges.iter().map(|edge| (place.row, *edge)).zip(bounds[0]..));
    }
    Ok(edges_of)
}

impl DistEdgeFeatureStore {
    /// Creates a store of the edge features of a partitioned graph with one relation.
    ///
    /// # Errors
    /// Returns [`ContentError::NoEdgeFeatures`] if the edges have no features, as those of graphs with several relations.
    pub fn new(graph: Arc<DistGraph>) -> Result<Self> {
        let format = graph.edge_row_format().ok_or(Error::Content(ContentError::NoEdgeFeatures))?;
        Ok(Self { graph, format })
    }

    fn row_bytes(&self) -> usize {
        self.format.row_bytes()
    }

    fn gather_all(&self, block: &Block, out: &mut FeatureBuffer) -> Result<()> {
        let edges_of = edges_by_part(&self.graph, block)?;
        let own = self.graph.local_part().map_or(&[][..], |part| &edges_of[part.index]);
        let requests =
            RowRequests::new("feature rows of edges", &self.graph, &edges_of, self.row_bytes(), MAX_EDGES);
        let replies = requests.send(|edges| {
            let (rows, edges): (Vec<PartitionRow>, Vec<EdgeId>) = edges.into_iter().unzip();
            let (rows, edges) = (bytes_of(rows), bytes_of(edges));
            Question::GatherEdges(GatherEdgesRequest { lease: 0, rows, edges, relation: 0 })
        });
        self.gather_own(own, block.n_edges(), out)?;
        requests.receive(replies, bytes_mut(out)?, |_, _| ())?;
        let counters = &self.graph.counters;
        count(&counters.own_edge_rows, own.len());
        count(&counters.remote_edge_rows, requests.n_rows());
        Ok(())
    }

    /// Resizes the output to `n_edges` rows, and fills in the local ones.
    fn gather_own(
        &self,
        own: &[WantedRow<EdgeOfRow>],
        n_edges: usize,
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        match self.graph.own().filter(|_| !own.is_empty()) {
            // One gather is faster than many. It writes arbitrary rows for remote edges, which are overwritten later.
            Some(held) => held.gather_edges(0, own, n_edges, out),
            None => fit(out, self.format, n_edges),
        }
    }
}

impl EdgeFeatureStore for DistEdgeFeatureStore {
    fn dim(&self) -> usize {
        self.format.dim
    }

    fn n_edges(&self) -> u64 {
        self.graph.n_edges()
    }

    fn dtype(&self) -> FeatureDType {
        self.format.dtype
    }

    fn gather_block(&self, block: &Block, out: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        Ok(self.gather_all(block, out)?)
    }
}

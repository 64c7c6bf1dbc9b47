use std::sync::Arc;

use kiln_feature::{
    EdgeFeatureStore, FeatureBuffer, FeatureDType, RelationRows, check_column_name, copy_padded,
    padded_format,
};
use kiln_graph::{Block, EdgeId};
use kiln_partition::PartitionRow;

use crate::client::fetch_stats::count;
use crate::client::graph::DistGraph;
use crate::client::question::Question;
use crate::client::row_requests::RowRequests;
use crate::wire::encoding::bytes_of;
use crate::wire::limits::MAX_EDGES;
use crate::wire::proto::GatherEdgesRequest;
use crate::wire::row_format::RowFormat;
use crate::wire::wanted::{EdgeOfRow, WantedRow};
use crate::{ContentError, Error, Result};

/// The rows of the edges of a partitioned graph in one column, such as their features, by ids of the whole graph. Rows are
/// bit-identical to those of the whole graph, in the form of a [`RelationRows`].
///
/// An edge's row is in the partition of its destination. Rows of the local partition are read in place, all others are
/// requested from their servers, from all servers concurrently. Edge rows are not cached.
#[derive(Debug)]
pub struct DistEdgeFeatureStore {
    graph: Arc<DistGraph>,
    name: String,
    /// The format of the rows of batches.
    format: RowFormat,
    /// The format of the stored rows of each relation, `[n_relations]`; `None` for a relation without the column.
    formats: Vec<Option<RowFormat>>,
    rows: RelationRows,
}

/// The edges of a block in one relation, by the partition of their destination, with their positions in the block.
type EdgesByPart = Vec<Vec<WantedRow<EdgeOfRow>>>;

impl DistEdgeFeatureStore {
    /// Creates a store of a column of the edges of a partitioned graph, which the relations that have it have with one width and
    /// element type.
    ///
    /// # Errors
    /// Same as [`DistEdgeFeatureStore::with_rows`].
    pub fn new(graph: Arc<DistGraph>, name: &str) -> Result<Self> {
        Self::with_rows(graph, name, RelationRows::Equal)
    }

    /// Creates a store of a column with rows of this form; see [`kiln_feature::edge_rows_of`].
    ///
    /// # Errors
    /// Returns [`ContentError::NoEdgeFeatures`] or [`ContentError::NoEdgeColumn`] if no relation has the column, and
    /// [`Error::BadParts`] if two have it with other element types or widths, for [`RelationRows::Equal`].
    pub fn with_rows(graph: Arc<DistGraph>, name: &str, rows: RelationRows) -> Result<Self> {
        check_column_name(name)?;
        let formats = graph.edge_formats(name);
        let Some(first) = formats.iter().copied().flatten().next() else {
            return Err(ContentError::no_column(name).into());
        };
        let all = formats.iter().flatten().map(|format: &RowFormat| (format.dim, format.dtype));
        let (dim, dtype) = padded_format((first.dim, first.dtype), all);
        let format = RowFormat { dim, dtype };
        if rows == RelationRows::Equal && formats.iter().flatten().any(|other| *other != format) {
            let reason =
                format!("the relations have the edge column `{name}` in several element types or widths");
            return Err(Error::BadParts { reason });
        }
        Ok(Self { graph, name: name.to_owned(), format, formats, rows })
    }

    /// Returns the edges of a block that have the column, by relation.
    fn edges_by_relation(&self, block: &Block) -> Result<Vec<EdgesByPart>> {
        let books = self.graph.books();
        let schema = self.graph.schema();
        let n_relations = self.formats.len();
        let mut edges_of = vec![vec![Vec::new(); books.n_parts()]; n_relations];
        for (&node, bounds) in block.dsts().iter().zip(block.indptr().windows(2)) {
            let n_rows = self.graph.n_nodes();
            let place = books.place(node).ok_or(kiln_feature::Error::NodeOutOfRange { node, n_rows })?;
            let edges = &block.edge_ids()[bounds[0] as usize..bounds[1] as usize];
            for (edge, position) in edges.iter().zip(bounds[0]..) {
                let relation = schema.relation_of(*edge);
                if self.formats[relation].is_some() {
                    let edge = EdgeId(edge.0 - schema.first_edge(relation).0);
                    edges_of[relation][place.part].push(((place.row, edge), position));
                } else if schema.n_edges() <= edge.0 {
                    let n_rows = schema.n_edges();
                    return Err(kiln_feature::Error::EdgeOutOfRange { edge: *edge, n_rows }.into());
                }
            }
        }
        Ok(edges_of)
    }

    fn gather_all(&self, block: &Block, out: &mut FeatureBuffer) -> Result<()> {
        out.resize(self.format.dtype, block.n_edges() * self.format.dim);
        self.rows.fill(self.formats.iter().any(|format| *format != Some(self.format)), out);
        let edges_of = self.edges_by_relation(block)?;
        // One relation after the other: requests that wait for the bytes of another one, whose responses no client
        // reads yet, would never end.
        for (relation, edges) in edges_of.iter().enumerate() {
            let Some(format) = self.formats[relation] else { continue };
            if format == self.format {
                self.gather_relation(relation, format, edges, out)?;
                continue;
            }
            // The positions of the edges among those of the relation, so that the rows of the other relations take no memory.
            let mut positions = Vec::new();
            let mut numbered = edges.clone();
            for (_, position) in numbered.iter_mut().flatten() {
                let number = positions.len() as u32;
                positions.push(std::mem::replace(position, number) as usize);
            }
            let mut narrow = FeatureBuffer::empty(format.dtype);
            narrow.resize(format.dtype, positions.len() * format.dim);
            self.gather_relation(relation, format, &numbered, &mut narrow)?;
            copy_padded(narrow, format.dim, positions.into_iter(), out, self.format.dim);
        }
        Ok(())
    }

    /// Writes the rows of edges of a relation to their positions in `out`, in the format of the relation.
    fn gather_relation(
        &self,
        relation: usize,
        format: RowFormat,
        edges: &EdgesByPart,
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        let row_bytes = format.row_bytes();
        let requests = RowRequests::new("feature rows of edges", &self.graph, edges, row_bytes, MAX_EDGES);
        let replies = requests.send(|edges| self.question(relation, edges));
        self.gather_own(relation, format, edges, out)?;
        requests.receive(replies, out.as_bytes_mut(), |_, _| ())?;
        count(&self.graph.counters.remote_edge_rows, requests.n_rows());
        Ok(())
    }

    fn question(&self, relation: usize, edges: Vec<EdgeOfRow>) -> Question {
        let (rows, edges): (Vec<PartitionRow>, Vec<EdgeId>) = edges.into_iter().unzip();
        Question::GatherEdges(GatherEdgesRequest {
            lease: 0,
            rows: bytes_of(rows),
            edges: bytes_of(edges),
            relation: relation as u32,
            column: self.name.clone(),
        })
    }

    /// Fills in the rows of the local partition.
    fn gather_own(
        &self,
        relation: usize,
        format: RowFormat,
        edges: &EdgesByPart,
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        let Some(held) = self.graph.own() else { return Ok(()) };
        let own = &edges[held.part.index];
        let mut rows = FeatureBuffer::empty(format.dtype);
        held.gather_edges(relation, &self.name, own.iter().map(|(edge, _)| *edge), &mut rows)?;
        let row_bytes = format.row_bytes();
        let out = out.as_bytes_mut();
        for (row, (_, position)) in rows.as_bytes().chunks_exact(row_bytes).zip(own) {
            out[*position as usize * row_bytes..][..row_bytes].copy_from_slice(row);
        }
        count(&self.graph.counters.own_edge_rows, own.len());
        Ok(())
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

    fn relation_widths(&self) -> Vec<Option<usize>> {
        self.formats.iter().map(|format| format.map(|format| format.dim)).collect()
    }

    fn gather_block(&self, block: &Block, out: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        Ok(self.gather_all(block, out)?)
    }
}

use std::sync::Arc;

use kiln_graph::{Csc, EdgeColumns, NodeId};

use crate::{Part, PartOfRelation, Result};

/// The edges of a relation of a partition that were known before a time
/// ([`Dataset::graph_before`](kiln_data::Dataset::graph_before)), with their weights and types. Their ids are those of the whole relation,
/// with the later edges.
#[derive(Debug, Clone)]
pub struct KnownEdges {
    /// The edges: destinations are rows, and sources are nodes of the whole graph, as in [`PartOfRelation::graph`].
    pub graph: Arc<Csc>,
    /// The position of each edge among the in-edges of its row in [`PartOfRelation::graph`], `[n_edges]`.
    pub positions: Arc<[u32]>,
}

impl Part {
    /// Returns the edges of a relation that were known before a time; `None` if all were. Takes 4 bytes per edge in addition to the
    /// edges.
    ///
    /// # Errors
    /// Returns [`Error::BadBook`](crate::Error::BadBook) if the nodes of the destinations' type are damaged, and
    /// [`Error::Data`](crate::Error::Data) if the edges are.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn edges_before(&self, relation: usize, time: i64) -> Result<Option<KnownEdges>> {
        let PartOfRelation { graph, .. } = &self.relations[relation];
        let schema = &self.schema.relations()[relation];
        let nodes = &self.types[schema.dst_type].old_ids;
        self.books.check_rows(schema.dst_type, self.index, nodes)?;
        let first_src = self.schema.types().range(schema.src_type).start;
        let kept =
            self.times.edges_before(graph, schema.src_type, first_src, |row| nodes[row.index()], time)?;
        let Some(kept) = kept else { return Ok(None) };
        let mut sampled = EdgeColumns::default();
        for name in [EdgeColumns::WEIGHTS, EdgeColumns::TYPES] {
            if let Some(column) = graph.columns().get(name) {
                sampled = sampled.with(name, column.clone())?;
            }
        }
        let known = Csc::clone(graph).with_columns(&sampled)?.select_edges(&kept)?;
        let mut positions = Vec::with_capacity(kept.len());
        for row in (0..known.n_nodes() as u32).map(NodeId) {
            let first = graph.first_edge(row).0;
            let edges = known.first_edge(row).index()..;
            let of_row = &kept[edges][..known.in_degree(row) as usize];
            // A node has less than 2^32 edges, because blocks count them with 32 bits.
            positions.extend(of_row.iter().map(|edge| (edge - first) as u32));
        }
        Ok(Some(KnownEdges { graph: Arc::new(known), positions: positions.into() }))
    }

    /// Returns the edges of a relation, ordered by the times from which they pass messages
    /// ([`DatasetTimes::graph_by_time`](kiln_data::DatasetTimes::graph_by_time)); `None` if all are always known. Destinations are
    /// rows, and sources are nodes of the whole graph, as in [`PartOfRelation::graph`], whose arrays are shared. The order takes 4 bytes
    /// per edge, and 8 more if the sources have times.
    ///
    /// # Errors
    /// Returns the errors of [`Part::edges_before`].
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn edges_by_time(&self, relation: usize) -> Result<Option<Csc>> {
        let PartOfRelation { graph, .. } = &self.relations[relation];
        let schema = &self.schema.relations()[relation];
        let nodes = &self.types[schema.dst_type].old_ids;
        self.books.check_rows(schema.dst_type, self.index, nodes)?;
        let first_src = self.schema.types().range(schema.src_type).start;
        Ok(self.times.edges_by_time(graph, schema.src_type, first_src, |row| nodes[row.index()])?)
    }

    /// Returns the edges of a relation that were known before a time, indexed by **nodes of the whole graph**, as
    /// [`Part::graph_by_node`] returns all edges. Edge ids are those of [`KnownEdges::graph`].
    ///
    /// # Errors
    /// Returns the errors of [`Part::edges_before`] and [`Part::graph_by_node`].
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn graph_by_node_before(&self, relation: usize, time: i64) -> Result<Csc> {
        let Some(known) = self.edges_before(relation, time)? else { return self.graph_by_node(relation) };
        let nodes = &self.types[self.schema.relations()[relation].dst_type].old_ids;
        Ok(known.graph.scatter_rows(nodes, self.schema.n_nodes())?)
    }
}

//! The edges of the set to which rows are appended.

use kiln_data::convert::EdgeChunk;
use kiln_graph::{EdgeColumn, Relation};

/// The number of edges of a chunk.
pub(crate) const CHUNK_EDGES: usize = 1 << 13;

/// The edges of a relation of the set to which rows are appended, in the order of its arrays: by destination, by source, and
/// equal ones by their rows.
#[derive(Debug)]
pub(crate) struct KnownEdges<'a> {
    pub(crate) relation: &'a Relation,
    /// The id of the first node of the sources' type in the set.
    pub(crate) first_src: u32,
    /// The columns of the edges, in the order of the source.
    pub(crate) columns: Vec<&'a EdgeColumn>,
}

impl KnownEdges<'_> {
    /// Returns the number of edges of an undirected relation that are the reverse of another one: a pair of nodes has two edges, and
    /// a self-loop is one.
    pub(crate) fn n_reverses(&self) -> u64 {
        let graph = &self.relation.graph;
        let mut n_reverses = 0;
        for (dst, ends) in (0_u32..).zip(graph.indptr().windows(2)) {
            let srcs = &graph.indices()[ends[0] as usize..ends[1] as usize];
            // Sources ascend.
            n_reverses += srcs.partition_point(|src| src.0.wrapping_sub(self.first_src) < dst) as u64;
        }
        n_reverses
    }

    /// Calls `visit` with all edges. Sources and destinations count from 0 within their types.
    pub(crate) fn for_each_chunk(
        &self,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> kiln_data::Result<()>,
    ) -> kiln_data::Result<()> {
        let graph = &self.relation.graph;
        let indices = graph.indices();
        let mut chunk = EdgeChunk::of_columns(self.columns.len());
        for (dst, ends) in (0_u32..).zip(graph.indptr().windows(2)) {
            let mut edges = ends[0] as usize..ends[1] as usize;
            while !edges.is_empty() {
                let n_free = CHUNK_EDGES - chunk.srcs.len();
                let part = edges.start..edges.end.min(edges.start + n_free);
                chunk.srcs.extend(indices[part.clone()].iter().map(|src| src.0.wrapping_sub(self.first_src)));
                chunk.dsts.resize(chunk.srcs.len(), dst);
                for (to, column) in chunk.columns.iter_mut().zip(&self.columns) {
                    let row_bytes = column.row_bytes();
                    to.extend_from_slice(&column.as_bytes()[row_bytes * part.start..row_bytes * part.end]);
                }
                edges.start = part.end;
                if chunk.srcs.len() == CHUNK_EDGES {
                    visit(&mut chunk)?;
                    chunk = EdgeChunk::of_columns(self.columns.len());
                }
            }
        }
        if chunk.is_empty() { Ok(()) } else { visit(&mut chunk) }
    }
}

//! Edge features in the order of the edges of another graph.

use bytemuck::Pod;
use kiln_feature::{EdgeFeatures, FeatureArray};
use kiln_graph::{EdgeId, EdgeOrigin, TracedGraph};
use kiln_store::Error as StoreError;

use crate::{Error, Result};

/// Returns the rows of the edges of a graph, in CSC order, from the rows of the edge list from which it was built. The
/// reverse of an edge has the row of that edge. The rows are in memory.
pub(crate) fn in_csc_order(of_list: &EdgeFeatures, traced: &TracedGraph) -> Result<EdgeFeatures> {
    let n_edges = traced.graph.n_edges() as usize;
    rows_of_edges(of_list, (0..n_edges).map(|edge| EdgeId(position_in_list(traced, EdgeId(edge as u64)))))
}

/// Returns the position in the edge list of the entry from which an edge was made. An added self loop comes from no
/// entry: its position is above all others.
pub(crate) fn position_in_list(traced: &TracedGraph, edge: EdgeId) -> u64 {
    match traced.origin(edge) {
        EdgeOrigin::Forward(position) | EdgeOrigin::Reverse(position) => position,
        EdgeOrigin::AddedLoop => u64::MAX,
    }
}

/// Returns the rows of the given edges, in their order, in memory.
pub(crate) fn rows_of_edges(
    features: &EdgeFeatures,
    edges: impl ExactSizeIterator<Item = EdgeId>,
) -> Result<EdgeFeatures> {
    let dim = features.dim();
    let rows: FeatureArray = match features.rows() {
        FeatureArray::F32(rows) => copied(rows, dim, edges)?.into(),
        FeatureArray::F16(rows) => copied(rows, dim, edges)?.into(),
        FeatureArray::BF16(rows) => copied(rows, dim, edges)?.into(),
        other => return Err(Error::unknown_row_type(other.dtype())),
    };
    Ok(EdgeFeatures::new(rows, dim)?)
}

fn copied<T: Pod>(rows: &[T], dim: usize, edges: impl ExactSizeIterator<Item = EdgeId>) -> Result<Vec<T>> {
    let (n_edges, n_rows) = (edges.len(), rows.len() / dim);
    let mut values = Vec::new();
    let has_room = n_edges.checked_mul(dim).map(|n_values| values.try_reserve_exact(n_values));
    if !matches!(has_room, Some(Ok(()))) {
        let what = format!("{n_edges} rows of {dim} edge features");
        return Err(StoreError::OutOfMemory { what }.into());
    }
    for edge in edges {
        if n_rows as u64 <= edge.0 {
            return Err(kiln_feature::Error::EdgeOutOfRange { edge, n_rows: n_rows as u64 }.into());
        }
        values.extend_from_slice(&rows[edge.index() * dim..][..dim]);
    }
    Ok(values)
}

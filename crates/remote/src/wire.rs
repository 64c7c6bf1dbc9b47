//! How ids, edges and rows travel: see `proto/graph.proto`.

use std::sync::Arc;

use bytemuck::{Pod, pod_collect_to_vec};
use bytes::Bytes;
use kiln_feature::RowBuf;
use kiln_graph::{Buf, Csc, EdgeId, NodeId};
use kiln_sample::Frontier;

use crate::edges::Edges;

/// The most bytes of a message, but for a row that is longer: few enough to stay in a cache, too few for an
/// allocator to map each anew.
pub(crate) const CHUNK_BYTES: usize = 1 << 16;

/// Values as bytes, without a copy.
pub(crate) fn bytes_of<T: Pod + Send>(values: Vec<T>) -> Bytes {
    Bytes::from_owner(Owner(values))
}

/// Gathered rows as bytes, without a copy.
pub(crate) fn bytes_of_rows(rows: RowBuf) -> Option<Bytes> {
    match rows {
        RowBuf::F32(values) => Some(bytes_of(values)),
        RowBuf::F16(values) => Some(bytes_of(values)),
        RowBuf::BF16(values) => Some(bytes_of(values)),
        _ => None,
    }
}

struct Owner<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The ids that were sent; `None` for a part of one.
pub(crate) fn ids(bytes: &[u8]) -> Option<Vec<NodeId>> {
    bytes.len().is_multiple_of(size_of::<NodeId>()).then(|| pod_collect_to_vec(bytes))
}

/// Pieces of bytes that each fit a message.
pub(crate) fn chunks(arrays: impl IntoIterator<Item = Bytes>) -> impl Iterator<Item = Bytes> {
    arrays.into_iter().flat_map(|mut bytes| {
        std::iter::from_fn(move || {
            let n_bytes = bytes.len().min(CHUNK_BYTES);
            (0 < n_bytes).then(|| bytes.split_to(n_bytes))
        })
    })
}

/// The edges that were picked of these rows.
pub(crate) fn of_frontier(edges: &Edges, rows: &[NodeId], frontier: Frontier) -> Vec<Bytes> {
    let Frontier { indptr, srcs, edge_ids, weights } = frontier;
    let firsts: Vec<u64> = rows.iter().map(|row| edges.first_edges[row.index()]).collect();
    let mut positions = Vec::with_capacity(edge_ids.len());
    for (bounds, first) in indptr.windows(2).zip(&firsts) {
        let picked = &edge_ids[bounds[0] as usize..bounds[1] as usize];
        positions.extend(picked.iter().map(|edge| (edge.0 - first) as u32));
    }
    let counts: Vec<u32> = indptr.windows(2).map(|bounds| bounds[1] - bounds[0]).collect();
    let mut arrays = vec![bytes_of(counts), bytes_of(firsts), bytes_of(srcs), bytes_of(positions)];
    arrays.extend(weights.map(bytes_of));
    arrays
}

/// The edges that were picked of so many nodes; the error is what was expected.
pub(crate) fn frontier(bytes: &[u8], n_dst: usize, has_weights: bool) -> Result<Frontier, String> {
    let mut rest = Reader(bytes);
    let (indptr, firsts) = rest.ranges(n_dst)?;
    let n_edges = indptr[n_dst] as usize;
    let srcs = rest.take(n_edges)?;
    let positions: Vec<u32> = rest.take(n_edges)?;
    let weights = has_weights.then(|| rest.take(n_edges)).transpose()?;
    rest.end()?;
    let mut edge_ids = Vec::with_capacity(n_edges);
    for (bounds, first) in indptr.windows(2).zip(firsts) {
        let picked = &positions[bounds[0] as usize..bounds[1] as usize];
        edge_ids.extend(picked.iter().map(|position| EdgeId(first.wrapping_add(u64::from(*position)))));
    }
    Ok(Frontier { indptr, srcs, edge_ids, weights })
}

/// All edges of these rows.
pub(crate) fn of_lists(edges: &Edges, rows: &[NodeId]) -> Vec<Bytes> {
    let graph = &edges.graph;
    let indptr = graph.indptr();
    let range = |row: &NodeId| indptr[row.index()] as usize..indptr[row.index() + 1] as usize;
    let counts: Vec<u32> = rows.iter().map(|row| range(row).len() as u32).collect();
    let firsts: Vec<u64> = rows.iter().map(|row| edges.first_edges[row.index()]).collect();
    let mut arrays = vec![bytes_of(counts), bytes_of(firsts), listed(rows, range, graph.indices())];
    arrays.extend(graph.weights().map(|weights| listed(rows, range, weights)));
    arrays.extend(graph.edge_types().map(|types| listed(rows, range, types)));
    arrays
}

fn listed<T: Pod + Send>(
    rows: &[NodeId],
    range: impl Fn(&NodeId) -> std::ops::Range<usize>,
    values: &[T],
) -> Bytes {
    let mut listed = Vec::with_capacity(rows.iter().map(|row| range(row).len()).sum());
    rows.iter().for_each(|row| listed.extend_from_slice(&values[range(row)]));
    bytes_of(listed)
}

/// All edges of these nodes; the error is what was expected.
pub(crate) fn lists(
    bytes: &[u8],
    nodes: &[NodeId],
    has_weights: bool,
    has_types: bool,
) -> Result<Edges, String> {
    let mut rest = Reader(bytes);
    let (indptr, firsts) = rest.ranges(nodes.len())?;
    let n_edges = indptr[nodes.len()] as usize;
    let indptr: Vec<u64> = indptr.into_iter().map(u64::from).collect();
    let indices: Vec<NodeId> = rest.take(n_edges)?;
    let weights = has_weights.then(|| rest.take::<f32>(n_edges)).transpose()?;
    let types = has_types.then(|| rest.take::<u8>(n_edges)).transpose()?;
    rest.end()?;
    let told = |error: kiln_graph::Error| error.to_string();
    let mut graph = Csc::new(indptr.into(), indices.into()).map_err(told)?;
    if let Some(weights) = weights {
        graph = graph.with_weights(weights.into()).map_err(told)?;
    }
    if let Some(types) = types {
        graph = graph.with_edge_types(types.into()).map_err(told)?;
    }
    Ok(Edges { graph: Arc::new(graph), nodes: Buf::from(nodes.to_vec()), first_edges: firsts.into() })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// So many values.
    fn take<T: Pod>(&mut self, n: usize) -> Result<Vec<T>, String> {
        let n_bytes = n.saturating_mul(size_of::<T>());
        let short = || format!("{n_bytes} bytes more than the {} that are left", self.0.len());
        let (values, rest) = self.0.split_at_checked(n_bytes).ok_or_else(short)?;
        self.0 = rest;
        Ok(pod_collect_to_vec(values))
    }

    /// Where each node's edges start among all, and where in the whole graph.
    fn ranges(&mut self, n_nodes: usize) -> Result<(Vec<u32>, Vec<u64>), String> {
        let counts: Vec<u32> = self.take(n_nodes)?;
        let mut indptr = Vec::with_capacity(n_nodes + 1);
        indptr.push(0_u32);
        for count in counts {
            let end = indptr[indptr.len() - 1].checked_add(count);
            indptr.push(end.ok_or("edges that 32 bits count")?);
        }
        Ok((indptr, self.take(n_nodes)?))
    }

    fn end(&self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("{} bytes less", self.0.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(arrays: Vec<Bytes>) -> Vec<u8> {
        chunks(arrays).flatten().collect()
    }

    fn edges() -> Edges {
        let indptr: Vec<u64> = vec![0, 2, 2, 5];
        let indices = [7, 9, 1, 2, 3].map(NodeId).to_vec();
        let graph = Csc::new(indptr.into(), indices.into()).unwrap();
        let graph = graph.with_weights(vec![0.5, 1.5, 2.5, 3.5, 4.5].into()).unwrap();
        Edges {
            graph: Arc::new(graph),
            nodes: vec![NodeId(4), NodeId(5), NodeId(8)].into(),
            first_edges: vec![10, 12, 1 << 40].into(),
        }
    }

    #[test]
    fn edges_that_were_picked_come_as_they_were_sent() {
        let rows = [NodeId(2), NodeId(0)];
        let frontier = Frontier {
            indptr: vec![0, 2, 3],
            srcs: [2, 3, 9].map(NodeId).to_vec(),
            edge_ids: vec![EdgeId((1 << 40) + 1), EdgeId((1 << 40) + 2), EdgeId(11)],
            weights: Some(vec![3.5, 4.5, 1.5]),
        };
        let bytes = joined(of_frontier(&edges(), &rows, frontier.clone()));
        assert_eq!(super::frontier(&bytes, 2, true), Ok(frontier));
        for cut in 0..bytes.len() {
            assert!(super::frontier(&bytes[..cut], 2, true).is_err(), "{cut} bytes");
        }
        assert!(super::frontier(&bytes, 2, false).is_err());
        assert!(super::frontier(&bytes, 1, true).is_err());
    }

    #[test]
    fn lists_come_as_they_were_sent() {
        let rows = [NodeId(2), NodeId(1), NodeId(0)];
        let nodes = [8, 5, 4].map(NodeId);
        let bytes = joined(of_lists(&edges(), &rows));
        let got = lists(&bytes, &nodes, true, false).unwrap();
        assert_eq!(got.graph.indices(), [1, 2, 3, 7, 9].map(NodeId));
        assert_eq!(got.graph.weights(), Some(&[2.5, 3.5, 4.5, 0.5, 1.5][..]));
        assert_eq!(got.first_edges[..], [1 << 40, 12, 10]);
        assert!(lists(&bytes, &nodes, false, false).is_err());
    }

    #[test]
    fn long_arrays_go_in_pieces() {
        let pieces: Vec<Bytes> =
            chunks([bytes_of(vec![1_u8; CHUNK_BYTES + 3]), bytes_of::<u32>(Vec::new())]).collect();
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [CHUNK_BYTES, 3]);
    }
}

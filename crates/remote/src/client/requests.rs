//! The requests of one hop to the servers of a partitioned graph.

use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{NodeId, RelationSchema};
use kiln_partition::PartitionRow;
use kiln_sample::{Dsts, EdgeWeights, ExcludedEdges, Frontier, HopRequest};

use crate::client::graph::DistGraph;
use crate::client::peer::{Owner, Peer};
use crate::edges::Edges;
use crate::wire::limits::{MAX_DSTS, MAX_EXCLUDED};
use crate::wire::wanted::{ExcludedEdge, MessageEdges};
use crate::{ContentError, Error, Result};

/// The destinations of one hop, grouped by the partition that owns them.
pub(crate) struct Requests<'a> {
    graph: &'a DistGraph,
    relation: usize,
    /// The destinations of each partition.
    nodes: Vec<Vec<NodeId>>,
    /// The distinct times of the destinations; `None` if they have none.
    distinct_times: Option<&'a [i64]>,
    /// The positions of the times of `nodes` among the distinct ones; empty without times.
    times: Vec<Vec<u32>>,
    /// The rows of `nodes` in their partitions.
    rows: Vec<Vec<PartitionRow>>,
    /// The partition of each destination.
    parts: Vec<u16>,
}

/// The destinations of one request to a server.
pub(crate) struct Piece<'a> {
    /// The partition of the destinations.
    part: usize,
    pub(crate) peer: &'a Arc<Peer>,
    pub(crate) rows: Rows<'a>,
    /// The edges to leave out.
    pub(crate) excluded: Vec<ExcludedEdge>,
}

/// The edges to leave out of the first rows of a list.
#[derive(Debug)]
struct FirstExcluded {
    n_rows: usize,
    excluded: Vec<ExcludedEdge>,
}

/// Returns the edges to leave out of as many of these nodes as one request may have, from the first one on.
///
/// # Errors
/// Returns [`Error::TooManyExcluded`] if the first node has more edges to leave out than a request may have.
fn first_excluded(excluded: Option<&ExcludedEdges>, nodes: &[NodeId]) -> Result<FirstExcluded> {
    let mut edges = Vec::new();
    let Some(excluded) = excluded else { return Ok(FirstExcluded { n_rows: nodes.len(), excluded: edges }) };
    for (position, &node) in nodes.iter().enumerate() {
        let srcs = excluded.srcs_into(node);
        if MAX_EXCLUDED < srcs.len() {
            return Err(Error::TooManyExcluded { node, n_edges: srcs.len(), most: MAX_EXCLUDED });
        }
        if MAX_EXCLUDED < edges.len() + srcs.len() {
            return Ok(FirstExcluded { n_rows: position, excluded: edges });
        }
        edges.extend(srcs.iter().map(|src| [position as u32, src.0]));
    }
    Ok(FirstExcluded { n_rows: nodes.len(), excluded: edges })
}

/// Destinations of one partition and their rows.
pub(crate) struct Rows<'a> {
    pub(crate) dsts: Dsts<'a>,
    pub(crate) rows: &'a [PartitionRow],
}

impl<'a> Requests<'a> {
    /// Groups the destinations of a relation, which are nodes of the graph.
    ///
    /// # Errors
    /// Returns [`ContentError::NotOfType`] for a node of another type, and [`kiln_sample::Error::SeedOutOfRange`] for a
    /// node that does not exist.
    pub(crate) fn of(graph: &'a DistGraph, relation: usize, dsts: Dsts<'a>) -> Result<Self> {
        let RelationSchema { name, dst_type, .. } = &graph.schema().relations()[relation];
        let (book, n_nodes) = (graph.books().of_type(*dst_type), graph.n_nodes());
        let dst_nodes = graph.schema().types().range(*dst_type);
        let n_parts = book.n_parts();
        let (mut nodes, mut rows) = (vec![Vec::new(); n_parts], vec![Vec::new(); n_parts]);
        let mut times = vec![Vec::new(); n_parts];
        let mut parts = Vec::with_capacity(dsts.len());
        for (position, &node) in dsts.nodes().iter().enumerate() {
            let place = node.0.checked_sub(dst_nodes.start).and_then(|local| book.place(NodeId(local)));
            let place =
                place.ok_or_else(|| match n_nodes <= node.index() || dst_nodes.contains(&node.0) {
                    true => Error::Sample(kiln_sample::Error::SeedOutOfRange { node, position, n_nodes }),
                    false => {
                        let nodes = dst_nodes.clone();
                        ContentError::NotOfType { node, relation: name.clone(), nodes }.into()
                    }
                })?;
            nodes[place.part].push(node);
            rows[place.part].push(place.row);
            times[place.part].extend(dsts.times().map(|times| times.index()[position]));
            parts.push(place.part as u16);
        }
        let distinct_times = dsts.times().map(|times| times.distinct());
        Ok(Self { graph, relation, nodes, distinct_times, times, rows, parts })
    }

    /// Returns the destinations of a partition at some positions.
    fn rows(&self, part: usize, positions: Range<usize>) -> Rows<'_> {
        let nodes = &self.nodes[part][positions.clone()];
        let dsts = match self.distinct_times {
            Some(distinct) => Dsts::with_times(nodes, distinct, &self.times[part][positions.clone()]),
            None => nodes.into(),
        };
        Rows { dsts, rows: &self.rows[part][positions] }
    }

    /// Returns true if the destinations have times.
    pub(crate) fn has_times(&self) -> bool {
        self.distinct_times.is_some()
    }

    /// Returns the number of destinations.
    pub(crate) fn n_dsts(&self) -> usize {
        self.parts.len()
    }

    /// Returns the relation's edges of this kind in the local partition, and the destinations that it owns; `None` if there is no
    /// local partition.
    ///
    /// # Errors
    /// Returns [`ContentError::NoSuchPosition`] if the partition does not have the relation, and [`Error::Partition`] if it is damaged.
    pub(crate) fn here(&self, edges: MessageEdges) -> Result<Option<(Arc<Edges>, Rows<'_>)>> {
        let Some(held) = self.graph.own() else { return Ok(None) };
        let part = held.part.index;
        let edges = held.message_edges(self.relation, edges)?;
        Ok(Some((edges, self.rows(part, 0..self.nodes[part].len()))))
    }

    /// Returns the destinations that servers own, in groups of at most [`MAX_DSTS`] with at most [`MAX_EXCLUDED`] edges
    /// to leave out. Each group is one request. The groups of a partition follow each other.
    ///
    /// # Errors
    /// Returns [`Error::TooManyExcluded`] if a single destination has more edges to leave out than a request may have.
    pub(crate) fn there(&self, excluded: Option<&ExcludedEdges>) -> Result<Vec<Piece<'_>>> {
        let mut pieces = Vec::new();
        for (part, nodes) in self.nodes.iter().enumerate() {
            let Owner::Remote(peer) = self.graph.owner(part) else { continue };
            let mut start = 0;
            while start < nodes.len() {
                let limit = nodes.len().min(start + MAX_DSTS);
                let edges = first_excluded(excluded, &nodes[start..limit])?;
                let range = start..start + edges.n_rows;
                start = range.end;
                let rows = self.rows(part, range);
                pieces.push(Piece { part, peer, rows, excluded: edges.excluded });
            }
        }
        Ok(pieces)
    }

    /// Merges the local sample and the servers' samples in the order of the destinations. `there` has a sample for each
    /// of the pieces, which are those of [`Requests::there`]. All samples have the arrays that the request asks for.
    pub(crate) fn merge(
        &self,
        own: &Frontier,
        pieces: &[Piece<'_>],
        there: &[Frontier],
        request: &HopRequest,
        out: &mut Frontier,
    ) {
        let n_edges = own.srcs.len() + there.iter().map(|frontier| frontier.srcs.len()).sum::<usize>();
        out.indptr.clear();
        out.indptr.push(0);
        out.srcs.clear();
        out.srcs.reserve(n_edges);
        out.edge_ids.clear();
        out.edge_ids.reserve(n_edges);
        out.weights = (request.weights != EdgeWeights::None).then(|| Vec::with_capacity(n_edges));
        out.edge_types = request.edge_types.then(|| Vec::with_capacity(n_edges));
        // For each partition, the sample of its next destination, and the destination's position in the sample.
        let mut next: Vec<(usize, usize)> = (0..self.nodes.len())
            .map(|part| (pieces.partition_point(|piece| piece.part < part), 0))
            .collect();
        for part in &self.parts {
            let part = usize::from(*part);
            let (piece, dst) = &mut next[part];
            let frontier = match self.graph.owner(part) {
                Owner::Local(_) => own,
                Owner::Remote(_) => {
                    if *dst == there[*piece].n_dst() {
                        (*piece, *dst) = (*piece + 1, 0);
                    }
                    &there[*piece]
                }
            };
            let dst = std::mem::replace(dst, *dst + 1);
            let picked = frontier.indptr[dst] as usize..frontier.indptr[dst + 1] as usize;
            out.srcs.extend_from_slice(&frontier.srcs[picked.clone()]);
            out.edge_ids.extend_from_slice(&frontier.edge_ids[picked.clone()]);
            if let (Some(weights), Some(all)) = (&frontier.weights, &mut out.weights) {
                all.extend_from_slice(&weights[picked.clone()]);
            }
            if let (Some(edge_types), Some(all)) = (&frontier.edge_types, &mut out.edge_types) {
                all.extend_from_slice(&edge_types[picked]);
            }
            // The caller checks that the number of edges fits in 32 bits.
            out.indptr.push(out.srcs.len() as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_end_before_the_limit_of_excluded_edges() {
        // Each of the first two nodes has more than half of what one request may list.
        let n_srcs = MAX_EXCLUDED as u32 / 2 + 1;
        let of = |dst: u32, n_srcs: u32| (0..n_srcs).map(move |src| (NodeId(src), NodeId(dst)));
        let excluded = ExcludedEdges::new(of(7, n_srcs).chain(of(3, n_srcs)).chain(of(5, 1)));
        let nodes = [5, 7, 0, 3, 9].map(NodeId);
        let first = first_excluded(Some(&excluded), &nodes).unwrap();
        assert_eq!((first.n_rows, first.excluded.len()), (3, n_srcs as usize + 1));
        assert_eq!(first.excluded[..2], [[0, 0], [1, 0]]);
        let rest = first_excluded(Some(&excluded), &nodes[3..]).unwrap();
        assert_eq!((rest.n_rows, rest.excluded.len()), (2, n_srcs as usize));
        assert_eq!(first_excluded(None, &nodes).unwrap().n_rows, 5);
        let hub = ExcludedEdges::new(of(1, MAX_EXCLUDED as u32 + 1));
        let error = first_excluded(Some(&hub), &[NodeId(1)]).unwrap_err().to_string();
        assert!(error.contains("node 1 has 131073 edges to leave out"), "{error}");
    }
}

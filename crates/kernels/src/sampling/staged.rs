//! Sampling on a device from a graph in the host's memory: the device gets the neighbour lists that a hop needs.

use std::ops::Range;

use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use kiln_graph::{Csc, EdgeId, NodeId};
use kiln_sample::{EdgeWeights, Fanout, Frontier, HopRequest, Rule, in_edge_range};

use crate::cube::graph::{Bounds, Graph, HopNodes};
use crate::cube::hop::{HopError, MOST_DRAWN, without_edges};
use crate::cube::launch;
use crate::device::error::UploadError;

/// A copy of the neighbour lists of one hop's destinations. Edge types stay on the host, which looks up those of the
/// selected edges.
pub(crate) struct Staged<'a> {
    whole: &'a Csc,
    dsts: &'a [NodeId],
    indptr: Vec<u64>,
    indices: Vec<NodeId>,
    weights: Option<Vec<f32>>,
    /// The id of each edge, if some edges are left out; otherwise the edges of a list have adjacent ids.
    edge_ids: Option<Vec<EdgeId>>,
    bounds: Bounds,
}

/// An error of sampling a staged hop.
pub(crate) enum StagedError {
    Hop(HopError),
    Upload(UploadError),
}

impl From<HopError> for StagedError {
    fn from(error: HopError) -> Self {
        Self::Hop(error)
    }
}

impl From<UploadError> for StagedError {
    fn from(error: UploadError) -> Self {
        Self::Upload(match error {
            UploadError::TooLarge { n_bytes, most, .. } => UploadError::HopTooLarge { n_bytes, most },
            other => other,
        })
    }
}

/// Checks the fanout of a staged hop, independent of the degrees of its destinations, so that a rejection does not
/// depend on the batch.
///
/// # Errors
/// Returns [`HopError::FanoutTooLarge`] if the fanout exceeds [`MOST_DRAWN`].
pub(crate) fn check_fanout(fanout: Fanout) -> Result<(), HopError> {
    match fanout {
        Fanout::UpTo(fanout) if MOST_DRAWN < u64::from(fanout) => {
            Err(HopError::FanoutTooLarge { most: MOST_DRAWN })
        }
        _ => Ok(()),
    }
}

impl<'a> Staged<'a> {
    /// Copies the neighbour lists of `dsts` to new arrays in the host's memory, without the edges that the request
    /// leaves out.
    ///
    /// # Errors
    /// Returns an error if a destination is not a node of the graph, or if the graph is damaged.
    pub(crate) fn new(whole: &'a Csc, dsts: &'a [NodeId], request: &HopRequest) -> kiln_sample::Result<Self> {
        let edges_of = dsts.iter().enumerate().map(|(position, dst)| in_edge_range(whole, *dst, position));
        let edges_of = edges_of.collect::<kiln_sample::Result<Vec<_>>>()?;
        let n_edges = edges_of.iter().map(ExactSizeIterator::len).sum();
        let mut indptr = Vec::with_capacity(dsts.len() + 1);
        indptr.push(0);
        let mut indices = Vec::with_capacity(n_edges);
        let mut bounds = Bounds::default();
        let all_weights = whole.weights().filter(|_| request.weights != EdgeWeights::None);
        let mut weights = all_weights.map(|_| Vec::with_capacity(n_edges));
        let mut edge_ids = request.excluded.as_ref().map(|_| Vec::with_capacity(n_edges));
        for (&dst, edges) in dsts.iter().zip(edges_of) {
            let excluded = request.excluded.as_ref().map_or(&[][..], |excluded| excluded.srcs_into(dst));
            let first = indices.len();
            for edges in runs(&whole.indices()[edges.clone()], excluded).map(|run| offset(run, edges.start)) {
                indices.extend_from_slice(&whole.indices()[edges.clone()]);
                if let (Some(weights), Some(all)) = (&mut weights, all_weights) {
                    weights.extend_from_slice(&all[edges.clone()]);
                }
                if let Some(edge_ids) = &mut edge_ids {
                    edge_ids.extend(edges.map(|edge| EdgeId(edge as u64)));
                }
            }
            bounds = bounds.or(Bounds::of(dst, &indices[first..]));
            indptr.push(indices.len() as u64);
        }
        Ok(Self { whole, dsts, indptr, indices, weights, edge_ids, bounds })
    }

    /// Copies the lists to the device of a tensor, samples there, and reads the selected edges back.
    ///
    /// # Errors
    /// Returns a [`StagedError`] if the copy fails or the hop is too large.
    pub(crate) fn read_hop(
        &self,
        anchor: &CubeTensor,
        request: &HopRequest,
        rule: &Rule,
        out: &mut Frontier,
    ) -> Result<(), StagedError> {
        if self.indices.is_empty() {
            *out = without_edges(self.dsts.len(), request);
            return Ok(());
        }
        let graph =
            Graph::of_lists(anchor, &self.indptr, &self.indices, self.weights.as_deref(), &self.bounds)?;
        let rows: Vec<u32> = (0..self.dsts.len() as u32).collect();
        let rows = launch::upload_as(anchor, &rows, DType::U32);
        // The lists do not have the edges to leave out.
        let hop = HopNodes { nodes: graph.upload_nodes(self.dsts), rows, excluded: None, times: None };
        graph.read_hop(&hop, &HopRequest { edge_types: false, ..request.clone() }, rule, out)?;
        self.number(out);
        let types = self.whole.edge_types().filter(|_| request.edge_types);
        out.edge_types = types.map(|types| out.edge_ids.iter().map(|edge| types[edge.index()]).collect());
        Ok(())
    }

    /// Replaces the edge ids of a sample, which are positions in the lists, by ids of the whole graph.
    fn number(&self, out: &mut Frontier) {
        if let Some(edge_ids) = &self.edge_ids {
            out.edge_ids.iter_mut().for_each(|edge| *edge = edge_ids[edge.index()]);
            return;
        }
        let bounds = out.indptr.windows(2).map(|bounds| bounds[0] as usize..bounds[1] as usize);
        for ((picked, first_here), dst) in bounds.zip(&self.indptr).zip(self.dsts) {
            let first = self.whole.indptr()[dst.index()];
            out.edge_ids[picked].iter_mut().for_each(|edge| *edge = EdgeId(edge.0 - first_here + first));
        }
    }
}

/// Returns the ranges of a sorted neighbour list between the edges from the sources `excluded`, which ascend.
fn runs<'a>(neighbors: &'a [NodeId], excluded: &'a [NodeId]) -> impl Iterator<Item = Range<usize>> + 'a {
    let mut start = 0;
    let limits = excluded.iter().map(|src| {
        let first = neighbors.partition_point(|other| other < src);
        (first, first + neighbors[first..].partition_point(|other| other == src))
    });
    limits.chain([(neighbors.len(), neighbors.len())]).map(move |(end, next)| {
        let run = start..end;
        start = next;
        run
    })
}

fn offset(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_staged_hop_that_exceeds_the_largest_allocation() {
        let error = UploadError::TooLarge { what: "the graph's indices", n_bytes: 9, most: 8 };
        let StagedError::Upload(error) = error.into() else { panic!("expected an upload error") };
        assert_eq!(
            error.to_string(),
            "the neighbours of a hop's destinations need 9 bytes, but the device allocates at most 8 at once: \
             use smaller batches, or sample on the host"
        );
    }
}

use crate::{Dsts, Error, FrontierSampler, HopRequest, RelationScratch, Result};

/// The edges of one relation that are requested in one hop.
#[derive(Debug, Clone)]
pub struct RelationHop<'a> {
    /// The position of the relation.
    pub relation: usize,
    /// The key, the fanout and the other settings of the relation.
    pub request: HopRequest,
    /// The destinations: distinct nodes of the relation's destination type, as node ids of the graph.
    pub dsts: Dsts<'a>,
}

/// The samplers of a graph's relations. [`HeteroNeighborSampler`](crate::HeteroNeighborSampler) passes them all relations of a hop at once, so
/// that requests to other processes are sent together.
pub trait RelationSampler: Send + Sync {
    /// Returns true if destinations may have times ([`FrontierSampler::takes_times`]). The default implementation returns false.
    fn take_times(&self) -> bool {
        false
    }

    /// Returns true if the edges of any relation may have times ([`FrontierSampler::has_edge_times`]). The default implementation
    /// returns true.
    fn have_edge_times(&self) -> bool {
        true
    }

    /// Picks the edges of each relation in `hops`, which has a relation at most once. Fills the frontier of
    /// `out[hop.relation]` with sources of the graph and edge ids that count from 0 within the relation.
    ///
    /// # Errors
    /// Returns the errors of [`FrontierSampler::sample_frontier`], and [`Error::RelationSamplers`] for a relation without a
    /// sampler.
    fn sample_relations(&self, hops: &[RelationHop<'_>], out: &mut [RelationScratch]) -> Result<()>;
}

/// One sampler per relation, in this process or on a device. Each takes the node ids of the graph.
impl<S: FrontierSampler> RelationSampler for Vec<S> {
    fn take_times(&self) -> bool {
        self.iter().all(FrontierSampler::takes_times)
    }

    fn have_edge_times(&self) -> bool {
        self.iter().any(FrontierSampler::has_edge_times)
    }

    fn sample_relations(&self, hops: &[RelationHop<'_>], out: &mut [RelationScratch]) -> Result<()> {
        for RelationHop { relation, request, dsts } in hops {
            let RelationScratch { scratch, frontier } = &mut out[*relation];
            let n_samplers = self.len();
            let sampler =
                self.get(*relation).ok_or(Error::RelationSamplers { relation: *relation, n_samplers })?;
            sampler.sample_frontier(request, *dsts, scratch, frontier)?;
        }
        Ok(())
    }
}

use std::path::Path;

use crate::frontier_sampler::{Expansion, sample_hops};
use crate::{
    Dsts, EdgeWeights, Fanout, Frontier, FrontierSampler, HopRequest, Result, RngKey, SampledBlocks, Scratch,
    Seeds, TimeLimits,
};

/// A sampler whose blocks together are one subgraph, in which the neighbours of each node are picked once: in the hop after the
/// one that adds the node. PyG's `NeighborLoader` samples such subgraphs, and its models read all edges in every layer.
///
/// The sources of a block are those of a message-flow graph: the destinations, then the nodes that the hop adds. The destinations
/// that have their edges in a later block have none in this one. The edges of a hop are those that the sampler inside picks for
/// the same nodes, layer and key.
///
/// ```
/// use std::sync::Arc;
/// use kiln_graph::{CscBuilder, NodeId};
/// use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, Scratch, Seeds, SubgraphSampler};
/// let path = Arc::new(CscBuilder::new(3).build(&[1, 2], &[0, 1])?);
/// let sampler = SubgraphSampler::new(NeighborSampler::new(path, [Fanout::All, Fanout::All]));
/// let seeds = Seeds::nodes(vec![NodeId(0)]);
/// let blocks = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?.blocks;
/// assert_eq!(blocks[1].indptr(), [0, 1]);
/// // Node 0 has its edge in the block of the first hop.
/// assert_eq!(blocks[0].indptr(), [0, 0, 1]);
/// assert_eq!(blocks[0].srcs(), [NodeId(0), NodeId(1), NodeId(2)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SubgraphSampler<S> {
    sampler: S,
}

impl<S: FrontierSampler> SubgraphSampler<S> {
    /// Creates a sampler of subgraphs, whose hops `sampler` samples.
    pub fn new(sampler: S) -> Self {
        Self { sampler }
    }
}

impl<S: FrontierSampler> FrontierSampler for SubgraphSampler<S> {
    fn fanouts(&self) -> &[Fanout] {
        self.sampler.fanouts()
    }

    fn weights(&self) -> EdgeWeights {
        self.sampler.weights()
    }

    fn time_limits(&self) -> TimeLimits {
        self.sampler.time_limits()
    }

    fn has_edge_types(&self) -> bool {
        self.sampler.has_edge_types()
    }

    fn n_nodes(&self) -> usize {
        self.sampler.n_nodes()
    }

    fn indices_path(&self) -> Option<&Path> {
        self.sampler.indices_path()
    }

    fn takes_times(&self) -> bool {
        self.sampler.takes_times()
    }

    fn has_edge_times(&self) -> bool {
        self.sampler.has_edge_times()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        self.sampler.sample_frontier(request, dsts, scratch, out)
    }

    fn sample_blocks(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<SampledBlocks> {
        sample_hops(&self.sampler, seeds, key, scratch, Expansion::NewNodes)
    }
}

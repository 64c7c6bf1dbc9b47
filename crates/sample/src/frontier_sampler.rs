use std::path::Path;

use kiln_graph::{Block, BlockParts};

use crate::{
    Dsts, EdgeWeights, Error, Fanout, Frontier, HopRequest, Result, RngKey, SampledBlocks, Scratch, Seeds,
    TimeLimits, TimesError,
};

/// A neighbour sampler: picks the edges of one hop, and combines the hops of a batch to blocks. A sampler owns its
/// graph or the connection to it.
pub trait FrontierSampler: Send + Sync {
    /// Returns the fanout of each layer, input layer first.
    fn fanouts(&self) -> &[Fanout];

    /// Returns the kind of edge weights that the sampler's blocks have. The default implementation returns
    /// [`EdgeWeights::None`].
    fn weights(&self) -> EdgeWeights {
        EdgeWeights::None
    }

    /// Returns the edges that seeds with times may know. The default implementation returns those strictly before.
    fn time_limits(&self) -> TimeLimits {
        TimeLimits::default()
    }

    /// Returns true if the sampler's blocks have edge types. The default implementation returns false.
    fn has_edge_types(&self) -> bool {
        false
    }

    /// Returns the number of nodes in the graph; all node ids are below it.
    fn n_nodes(&self) -> usize;

    /// Returns the file from which the graph's `indices` are mapped, for error messages; `None` if they are not mapped.
    fn indices_path(&self) -> Option<&Path> {
        None
    }

    /// Returns true if [`FrontierSampler::sample_frontier`] takes destinations with times. The default implementation returns
    /// false, and seeds with times are an error.
    fn takes_times(&self) -> bool {
        false
    }

    /// Returns true if edges may have times. Without any, seeds with times are an error, because they would know all edges. The
    /// default implementation returns true.
    fn has_edge_times(&self) -> bool {
        true
    }

    /// Fills `out` with the edges picked for `dsts`, which must be distinct, and which may know only the edges that the time limits
    /// of the request allow. Overwrites the contents of `out` and
    /// reuses its memory. The fanout, the kind of weights and the edge types of the request apply, not those of the
    /// sampler; a sampler of several relations has a fanout for each, which that of the request limits. Edges that the
    /// request excludes must not be picked.
    ///
    /// # Errors
    /// Returns an error if a destination is not a node of the graph, if the graph is damaged, if weights or edge types
    /// are requested from a graph without them, or if there are more edges than a block can hold.
    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()>;

    /// Returns the number of layers, each of which is one hop and one block.
    fn n_layers(&self) -> usize {
        self.fanouts().len()
    }

    /// Samples one block per layer for `seeds`. All random draws come from `key`, the key of the step. Samplers that do
    /// not work hop by hop override this method.
    ///
    /// The last block's destinations are the distinct seeds in the order of their first appearance.
    ///
    /// # Errors
    /// Returns [`Error::SeedOutOfRange`] for a seed that the graph does not have, and the errors of
    /// [`sample_frontier`](Self::sample_frontier).
    fn sample_blocks(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<SampledBlocks> {
        sample_hops(self, seeds, key, scratch, Expansion::AllNodes)
    }
}

/// The nodes whose neighbours a hop picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expansion {
    /// All nodes of the batch so far, as layers of message-flow graphs need.
    AllNodes,
    /// The nodes that the hop before has added.
    NewNodes,
}

/// Samples one block (one hop) per layer, from the seeds to the input layer.
pub(crate) fn sample_hops<S: FrontierSampler + ?Sized>(
    sampler: &S,
    seeds: &Seeds,
    key: RngKey,
    scratch: &mut Scratch,
    expansion: Expansion,
) -> Result<SampledBlocks> {
    if seeds.times().is_some() {
        match (sampler.takes_times(), sampler.has_edge_times()) {
            (false, _) => return Err(Error::Times(TimesError::NotSupported)),
            (true, false) => return Err(Error::Times(TimesError::NoEdgeTimes)),
            (true, true) => {}
        }
    }
    // The frontier and the table are moved out of the scratch, because the sampler borrows the scratch mutably.
    let mut frontier = std::mem::take(&mut scratch.frontier);
    let mut relabel = std::mem::take(&mut scratch.relabel);
    let seed_index = relabel.begin_seeds(sampler.n_nodes(), seeds)?;
    let fanouts = sampler.fanouts();
    let mut blocks = Vec::with_capacity(fanouts.len());
    let mut n_expanded = 0;
    for (layer, &fanout) in fanouts.iter().enumerate().rev() {
        let request =
            HopRequest::new(key, layer, fanout, sampler.weights()).excluding(seeds.excluded().cloned());
        let edge_types = sampler.has_edge_types();
        let request = HopRequest { edge_types, time_limits: sampler.time_limits(), ..request };
        let n_dst = relabel.nodes.len();
        let dsts = relabel.dsts().slice(n_expanded..n_dst);
        sampler.sample_frontier(&request, dsts, scratch, &mut frontier)?;
        frontier.check(layer, dsts.len())?;
        if expansion == Expansion::NewNodes {
            frontier.indptr.splice(..0, std::iter::repeat_n(0, n_expanded));
            n_expanded = n_dst;
        }
        // The sources of the previous hop are the destinations of this hop and keep their local ids.
        let indices = relabel.number(&frontier, layer, sampler.indices_path())?;
        let src_times = relabel.src_times();
        // The input layer is the last hop, so its sources are moved instead of cloned.
        let srcs = if layer == 0 { std::mem::take(&mut relabel.nodes) } else { relabel.nodes.clone() };
        let block = Block::new(BlockParts {
            srcs,
            indptr: std::mem::replace(&mut frontier.indptr, vec![0]),
            indices,
            edge_ids: std::mem::take(&mut frontier.edge_ids),
            weights: frontier.weights.take(),
            edge_types: frontier.edge_types.take(),
        });
        blocks.push(match src_times {
            Some(times) => block.with_src_times(times),
            None => block,
        });
    }
    blocks.reverse();
    scratch.frontier = frontier;
    scratch.relabel = relabel;
    Ok(SampledBlocks { blocks, seed_index })
}

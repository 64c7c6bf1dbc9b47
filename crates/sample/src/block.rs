use kiln_graph::{Block, BlockParts, LocalId, NodeId};

use crate::relabel::Relabel;
use crate::{Error, Frontier, FrontierSampler, HopRequest, Result, RngKey, Seeds, Selection};

/// The sampled blocks of one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledBlocks {
    /// One block a layer, input layer first: `blocks[i].dsts()` equals `blocks[i + 1].srcs()`.
    pub blocks: Vec<Block>,
    /// For each seed, as given, its row among the last block's destinations.
    pub seed_index: Vec<LocalId>,
}

/// Relabels a frontier: destinations first, in the order given, then the other sources by first
/// appearance.
///
/// ```
/// use kiln_graph::{EdgeId, LocalId, NodeId};
/// use kiln_sample::{Frontier, Scratch, to_block};
/// // 7 -> 2, 9 -> 2 and 2 -> 7, for the destinations 2 and 7.
/// let frontier = Frontier {
///     indptr: vec![0, 2, 3],
///     srcs: vec![NodeId(7), NodeId(9), NodeId(2)],
///     edge_ids: vec![EdgeId(4), EdgeId(5), EdgeId(8)],
///     weights: None,
/// };
/// let block = to_block(&[NodeId(2), NodeId(7)], &frontier, 10, &mut Scratch::default())?;
/// assert_eq!(block.srcs(), [NodeId(2), NodeId(7), NodeId(9)]);
/// assert_eq!(block.indices(), [LocalId(1), LocalId(2), LocalId(0)]);
/// # Ok::<(), kiln_sample::Error>(())
/// ```
///
/// # Errors
/// [`Error::SeedOutOfRange`] or [`Error::NeighborOutOfRange`] for a node that is not below `n_nodes`.
///
/// # Panics
/// When the frontier's arrays do not fit each other or `dsts`, or a destination stands twice.
pub fn to_block(
    dsts: &[NodeId],
    frontier: &Frontier,
    n_nodes: usize,
    scratch: &mut Scratch,
) -> Result<Block> {
    let fits = frontier.check(0, dsts.len()).is_ok();
    assert!(fits, "the frontier's arrays do not fit {} destinations", dsts.len());
    let relabel = &mut scratch.relabel;
    relabel.begin(n_nodes);
    for (position, &node) in dsts.iter().enumerate() {
        let local = relabel.local(node).ok_or(Error::SeedOutOfRange { node, position, n_nodes })?;
        assert_eq!(local.index(), position, "destination {} stands twice", node.0);
    }
    let indices = relabel.number(frontier, None)?;
    Ok(Block::new(BlockParts {
        srcs: std::mem::take(&mut relabel.nodes),
        indptr: frontier.indptr.clone(),
        indices,
        edge_ids: frontier.edge_ids.clone(),
        weights: frontier.weights.clone(),
    }))
}

/// A worker's tables and buffers, used again for each batch. It holds no result: a fresh one gives the
/// same blocks.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) picks: Selection,
    frontier: Frontier,
    relabel: Relabel,
}

/// Samples one block a layer, one hop each, from the seeds to the input layer.
pub(crate) fn sample_blocks<S: FrontierSampler + ?Sized>(
    sampler: &S,
    seeds: &Seeds,
    key: RngKey,
    scratch: &mut Scratch,
) -> Result<SampledBlocks> {
    // Both are taken out of the scratch, so that the sampler may use the rest of it.
    let mut frontier = std::mem::take(&mut scratch.frontier);
    let mut relabel = std::mem::take(&mut scratch.relabel);
    relabel.begin(sampler.n_nodes());
    let mut seed_index = Vec::with_capacity(seeds.len());
    for (position, &node) in seeds.as_nodes().iter().enumerate() {
        let row = relabel.local(node);
        seed_index.push(row.ok_or(Error::SeedOutOfRange { node, position, n_nodes: sampler.n_nodes() })?);
    }
    let fanouts = sampler.fanouts();
    let mut blocks = Vec::with_capacity(fanouts.len());
    for (layer, &fanout) in fanouts.iter().enumerate().rev() {
        let request = HopRequest::new(key, layer, fanout, sampler.weights());
        sampler.sample_frontier(request, &relabel.nodes, scratch, &mut frontier)?;
        frontier.check(layer, relabel.nodes.len())?;
        // The sources so far are this hop's destinations and keep their numbers.
        let indices = relabel.number(&frontier, sampler.indices_path())?;
        // Nobody numbers on from the input layer's sources.
        let srcs = if layer == 0 { std::mem::take(&mut relabel.nodes) } else { relabel.nodes.clone() };
        blocks.push(Block::new(BlockParts {
            srcs,
            indptr: std::mem::replace(&mut frontier.indptr, vec![0]),
            indices,
            edge_ids: std::mem::take(&mut frontier.edge_ids),
            weights: frontier.weights.take(),
        }));
    }
    blocks.reverse();
    scratch.frontier = frontier;
    scratch.relabel = relabel;
    Ok(SampledBlocks { blocks, seed_index })
}

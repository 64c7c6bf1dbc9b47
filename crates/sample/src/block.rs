use kiln_graph::{Block, BlockParts, LocalId, NodeId};

use crate::relabel::Relabel;
use crate::{Domain, Error, Frontier, FrontierSampler, Hop, Picks, Result, RngKey, Seeds};

/// The blocks of one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// One block a layer, input layer first: `blocks[i].dsts()` equals `blocks[i + 1].srcs()`.
    pub blocks: Vec<Block>,
    /// For each seed, as given, its row among the last block's destinations.
    pub seed_rows: Vec<LocalId>,
}

/// Makes the blocks of a batch. Every [`FrontierSampler`] is one; samplers that do not work hop by hop
/// implement this trait directly.
pub trait BlockSampler: Send + Sync {
    /// Number of layers, one block each.
    fn n_layers(&self) -> usize;

    /// Samples one block a layer for `seeds`, drawing from `key` only, which is the step's.
    ///
    /// The last block's destinations are the distinct seeds in the order of their first appearance.
    ///
    /// # Errors
    /// A seed that the graph does not have, a damaged graph, or more edges than a block holds.
    fn sample_blocks(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<Sampled>;
}

impl<S: FrontierSampler + ?Sized> BlockSampler for S {
    fn n_layers(&self) -> usize {
        FrontierSampler::n_layers(self)
    }

    fn sample_blocks(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<Sampled> {
        // Both are taken out of the scratch, so that the sampler may use the rest of it.
        let mut frontier = std::mem::take(&mut scratch.frontier);
        let mut relabel = std::mem::take(&mut scratch.relabel);
        relabel.begin(self.n_nodes());
        let mut seed_rows = Vec::with_capacity(seeds.len());
        for (position, &node) in seeds.as_nodes().iter().enumerate() {
            let row = relabel.local(node);
            seed_rows.push(row.ok_or(Error::SeedOutOfRange { node, position, n_nodes: self.n_nodes() })?);
        }
        let mut blocks = Vec::with_capacity(FrontierSampler::n_layers(self));
        for layer in (0..FrontierSampler::n_layers(self)).rev() {
            let hop = Hop { layer, key: key.fold(Domain::Layer, layer as u64) };
            self.sample_frontier(hop, &relabel.nodes, scratch, &mut frontier)?;
            frontier.check(layer, relabel.nodes.len())?;
            // The sources so far are this hop's destinations and keep their numbers.
            let indices = relabel.number(&frontier, self.indices_path())?;
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
        Ok(Sampled { blocks, seed_rows })
    }
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
    pub(crate) picks: Picks,
    frontier: Frontier,
    relabel: Relabel,
}

use kiln_graph::{Block, BlockParts, LocalId, NodeId};

use crate::group_picks::GroupBuffers;
use crate::relabel::Relabel;
use crate::{Error, Frontier, Result, Selection};

/// The sampled blocks of one batch.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledBlocks {
    /// One block per layer, input layer first: `blocks[i].dsts()` equals `blocks[i + 1].srcs()`.
    pub blocks: Vec<Block>,
    /// The row of each seed among the last block's destinations, in the given order of the seeds.
    pub seed_index: Vec<LocalId>,
}

/// Relabels a frontier to a block with local ids: the destinations first, in the given order, then the other sources
/// in the order of their first appearance.
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
///     edge_types: None,
/// };
/// let block = to_block(&[NodeId(2), NodeId(7)], &frontier, 10, &mut Scratch::default())?;
/// assert_eq!(block.srcs(), [NodeId(2), NodeId(7), NodeId(9)]);
/// assert_eq!(block.indices(), [LocalId(1), LocalId(2), LocalId(0)]);
/// # Ok::<(), kiln_sample::Error>(())
/// ```
///
/// # Errors
/// Returns [`Error::SeedOutOfRange`] or [`crate::DamagedGraphError::NeighborOutOfRange`] for a node that is not below
/// `n_nodes`.
///
/// # Panics
/// Panics if the frontier's arrays are inconsistent or do not match `dsts`, or if `dsts` contains a duplicate.
pub fn to_block(
    dsts: &[NodeId],
    frontier: &Frontier,
    n_nodes: usize,
    scratch: &mut Scratch,
) -> Result<Block> {
    let fits = frontier.check(0, dsts.len()).is_ok();
    assert!(fits, "the frontier's arrays should be consistent and match the {} destinations", dsts.len());
    let relabel = &mut scratch.relabel;
    relabel.begin(n_nodes);
    for (position, &node) in dsts.iter().enumerate() {
        let local = relabel.local(node).ok_or(Error::SeedOutOfRange { node, position, n_nodes })?;
        assert_eq!(local.index(), position, "duplicate destination {}", node.0);
    }
    let indices = relabel.number(frontier, 0, None)?;
    Ok(Block::new(BlockParts {
        srcs: std::mem::take(&mut relabel.nodes),
        indptr: frontier.indptr.clone(),
        indices,
        edge_ids: frontier.edge_ids.clone(),
        weights: frontier.weights.clone(),
        edge_types: frontier.edge_types.clone(),
    }))
}

/// The tables and buffers of a worker, which it reuses for each batch. They do not affect results: a new `Scratch`
/// gives equal blocks.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) picks: Selection,
    pub(crate) group: GroupBuffers,
    pub(crate) frontier: Frontier,
    pub(crate) relabel: Relabel,
    pub(crate) hetero: HeteroScratch,
}

/// The buffers of a hop in a heterogeneous graph.
#[derive(Debug, Default)]
pub(crate) struct HeteroScratch {
    /// The type of each destination.
    pub(crate) dst_types: Vec<usize>,
    /// The destinations of each type, in their order.
    pub(crate) by_type: Vec<DstsOfType>,
    /// The number of destinations of each type that have been joined.
    pub(crate) n_joined: Vec<usize>,
    pub(crate) of_relations: Vec<RelationScratch>,
}

/// The destinations of one type.
#[derive(Debug, Default)]
pub(crate) struct DstsOfType {
    pub(crate) nodes: Vec<NodeId>,
    /// The position of each destination's time among the batch's times; empty without times.
    pub(crate) times: Vec<u32>,
}

impl DstsOfType {
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.times.clear();
    }
}

/// The buffers of one relation, which are reused for each hop.
#[derive(Debug, Default)]
pub struct RelationScratch {
    /// The tables and buffers of the relation's sampler.
    pub scratch: Scratch,
    /// The picked edges of the last hop.
    pub frontier: Frontier,
}

use std::sync::Arc;

use kiln_graph::{NodeId, SharedArray};

use crate::NodeRng;

/// A distribution of negative links: pairs of nodes that a model learns to score below a given link.
///
/// A candidate must be a pure function of its arguments, so that negatives do not depend on ranks, threads or batches.
pub trait NegativeSampler: Send + Sync {
    /// Returns a candidate for one negative of a link, as its source and its destination. All random draws must come
    /// from `rng`.
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId);

    /// Returns the name of the sampler, by which a resumed run recognises it.
    fn name(&self) -> &str;

    /// Returns a sampler of the same distribution among the nodes `is_known`, indexed by node, for [`among`](crate::Negatives::among). The
    /// default implementation returns `None`: candidates with other nodes are drawn again.
    fn among(&self, is_known: &Arc<[bool]>) -> Option<Arc<dyn NegativeSampler>> {
        let _ = is_known;
        None
    }

    /// Returns a sampler of the same distribution among the nodes that exist before the time of each link, for
    /// [`existing`](crate::Negatives::existing). `times` are those of the nodes, by node. The default implementation returns `None`: candidates with
    /// other nodes are drawn again.
    fn existing(&self, times: &SharedArray<i64>) -> Option<Arc<dyn NegativeSampler>> {
        let _ = times;
        None
    }

    /// Returns true if negatives depend on [`PositiveLink::time`], so that links must have times.
    fn reads_times(&self) -> bool {
        false
    }

    /// Returns false if the distribution has no negative for a link. [`NegativeSampler::draw`] then replaces it by another node,
    /// and it counts as rejected ([`n_rejected`](crate::SampledNegatives::n_rejected)).
    fn has_negatives(&self, link: PositiveLink<'_>) -> bool {
        let _ = link;
        true
    }

    /// Returns true if negatives depend on [`PositiveLink::step_dsts`], which is empty otherwise.
    fn reads_step(&self) -> bool {
        true
    }
}

/// A link for which a negative is drawn.
#[derive(Debug, Clone, Copy)]
pub struct PositiveLink<'a> {
    /// The source of the link.
    pub src: NodeId,
    /// The destination of the link.
    pub dst: NodeId,
    /// The time of the link; `None` for links without times.
    pub time: Option<i64>,
    /// The destinations of all links of the training step, over all ranks, in the order of the epoch; in evaluations, of all
    /// links of the split, so that the negatives of a link do not depend on the size of batches.
    pub step_dsts: &'a [NodeId],
}

use std::sync::Arc;

use kiln_graph::{Buf, Csc, EdgeId, NodeId};
use kiln_sample::{Fanout, Frontier, Hop, NeighborSampler, PickRule, RngKey, Scratch};

use crate::rules::{Make, Rule};

/// All in-edges of some nodes of a graph: those of a part, or lists that were fetched.
#[derive(Debug, Clone)]
pub(crate) struct Edges {
    /// A row for each of the nodes; its sources are ids of the whole graph, in the whole graph's order.
    pub(crate) graph: Arc<Csc>,
    /// The nodes.
    pub(crate) nodes: Buf<NodeId>,
    /// The whole graph's id of each node's first edge.
    pub(crate) first_edges: Buf<u64>,
}

/// What is drawn in a hop, apart from the rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    /// The hop's.
    pub(crate) key: RngKey,
    pub(crate) fanout: Fanout,
    pub(crate) weights: EdgeWeights,
}

/// What edges carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeWeights {
    None,
    Stored,
    Scaled,
}

impl Edges {
    /// Picks edges of these rows, as a sampler of the whole graph does: sources and edges have the whole graph's ids.
    pub(crate) fn sample(
        &self,
        rows: &[NodeId],
        rule: &Rule,
        draw: Draw,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        rule.fill(HopOf { edges: self, draw }, Hop { layer: 0, key: draw.key }, rows, scratch, out)?;
        self.number(rows, out);
        Ok(())
    }

    /// Whether these may have been picked of these rows: edges of each, all of them where no more than the fanout are
    /// drawn, as by rules that draw without replacement.
    pub(crate) fn may_give(&self, rows: &[NodeId], fanout: Fanout, rule: &Rule, picked: &Frontier) -> bool {
        let indptr = self.graph.indptr();
        rows.iter().zip(picked.indptr.windows(2)).all(|(row, bounds)| {
            let edges = indptr[row.index()]..indptr[row.index() + 1];
            let (degree, ids) =
                (edges.end - edges.start, &picked.edge_ids[bounds[0] as usize..bounds[1] as usize]);
            let is_whole = match (fanout, rule) {
                (Fanout::All, _) => ids.len() as u64 == degree,
                // A user's rule may leave out what it likes.
                (_, Rule::Users(_)) => true,
                (Fanout::UpTo(fanout), _) => degree.min(u64::from(fanout)) <= ids.len() as u64,
            };
            is_whole && ids.iter().all(|edge| edges.contains(&edge.0))
        })
    }

    /// Gives edges that were picked of these rows the whole graph's ids.
    pub(crate) fn number(&self, rows: &[NodeId], out: &mut Frontier) {
        let indptr = self.graph.indptr();
        for (dst, row) in rows.iter().enumerate() {
            let picked = out.indptr[dst] as usize..out.indptr[dst + 1] as usize;
            let (first, first_here) = (self.first_edges[row.index()], indptr[row.index()]);
            out.edge_ids[picked].iter_mut().for_each(|edge| *edge = EdgeId(edge.0 - first_here + first));
        }
    }
}

struct HopOf<'a> {
    edges: &'a Edges,
    draw: Draw,
}

impl Make for HopOf<'_> {
    fn sampler<R: PickRule>(&self, rule: R) -> kiln_sample::Result<NeighborSampler<R>> {
        let Edges { graph, nodes, .. } = self.edges;
        let sampler =
            NeighborSampler::with_rule(Arc::clone(graph), [self.draw.fanout], rule).named(nodes.clone());
        match self.draw.weights {
            EdgeWeights::None => Ok(sampler),
            EdgeWeights::Stored => sampler.carry_weights(),
            EdgeWeights::Scaled => sampler.estimate_sums(),
        }
    }
}

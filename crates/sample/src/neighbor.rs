use std::path::Path;
use std::sync::Arc;

use kiln_graph::{Buf, Csc, NodeId};

use crate::hop::HopSampler;
use crate::{
    Error, Frontier, FrontierSampler, Hop, PickRule, Result, Scratch, Uniform, UniformWithReplacement,
};

/// How many in-neighbours to pick for each destination of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fanout {
    /// All of them.
    All,
    /// At most this many.
    UpTo(u32),
}

/// Picks in-neighbours by a rule, uniformly and without replacement unless told otherwise.
///
/// `fanouts[i]` belongs to layer `i`, input layer first, which is DGL's order: the last number is the
/// hop next to the seeds.
#[derive(Debug, Clone)]
pub struct NeighborSampler<R = Uniform> {
    graph: Arc<Csc>,
    fanouts: Vec<Fanout>,
    rule: R,
    weights: EdgeWeights,
    names: Option<Buf<NodeId>>,
}

/// What a sampler's blocks carry for each edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeWeights {
    None,
    Stored,
    Scaled,
}

impl NeighborSampler {
    /// A sampler without replacement: a destination with no more neighbours than its fanout gets all.
    pub fn new(graph: Arc<Csc>, fanouts: impl Into<Vec<Fanout>>) -> Self {
        Self::with_rule(graph, fanouts, Uniform)
    }
}

impl NeighborSampler<UniformWithReplacement> {
    /// A sampler with replacement: each destination that has a neighbour gets exactly its fanout.
    pub fn with_replacement(graph: Arc<Csc>, fanouts: impl Into<Vec<Fanout>>) -> Self {
        Self::with_rule(graph, fanouts, UniformWithReplacement)
    }
}

impl<R: PickRule> NeighborSampler<R> {
    /// A sampler by the user's own rule.
    pub fn with_rule(graph: Arc<Csc>, fanouts: impl Into<Vec<Fanout>>, rule: R) -> Self {
        Self { graph, fanouts: fanouts.into(), rule, weights: EdgeWeights::None, names: None }
    }

    /// The same sampler over a graph that holds the in-edges of some nodes of a larger one: node `v` here is `names[v]`
    /// there, which is what rules see and draws belong to. Destinations are nodes here, and sources are what the graph's
    /// `indices` say, ids of the larger graph as a rule: so a part of a graph gives the edges that the whole one would.
    ///
    /// # Panics
    /// When there is not one name a node.
    #[must_use]
    pub fn named(self, names: impl Into<Buf<NodeId>>) -> Self {
        let names = names.into();
        assert_eq!(names.len(), self.graph.n_nodes(), "names of the nodes");
        Self { names: Some(names), ..self }
    }

    /// The same sampler, whose blocks carry the graph's edge weights.
    ///
    /// # Errors
    /// [`Error::NoWeights`] when the graph has none.
    pub fn carry_weights(self) -> Result<Self> {
        self.with_edge_weights(EdgeWeights::Stored)
    }

    /// The same sampler, whose blocks carry weights that make each destination's weighted sum an unbiased
    /// estimate of the sum over all its edges: an edge's weight in the graph times the number of its
    /// destination's edges, divided by the number of picks (Horvitz and Thompson 1952).
    ///
    /// That is right for rules that pick each neighbour with the same probability, as the built-in ones
    /// do, and for fanouts above 0. Self loops that the rule always keeps
    /// ([`PickRule::keeps_self_loops`]) count in neither number, and their weights stay as they are. A
    /// destination all of whose edges are picked carries exactly the graph's weights.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use kiln_graph::{CscBuilder, NodeId, gcn_norm};
    /// use kiln_sample::{BlockSampler, Fanout, NeighborSampler, RngKey, Scratch, Seeds, UniformWithLoop};
    /// let star = CscBuilder::new(5).build(&[1, 2, 3, 4], &[0, 0, 0, 0])?;
    /// let graph = Arc::new(gcn_norm(&star)?);
    /// let sampler = NeighborSampler::with_rule(graph, [Fanout::UpTo(2)], UniformWithLoop).estimate_sums()?;
    /// let seeds = Seeds::nodes(vec![NodeId(0)]);
    /// let block = &sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?.blocks[0];
    /// // The loop, and two picks that stand for two edges each.
    /// assert_eq!(block.n_edges(), 3);
    /// let edge = 1.0 / 5.0_f64.sqrt();
    /// assert_eq!(block.weights(), Some(&[0.2, 2.0 * edge as f32, 2.0 * edge as f32][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoWeights`] when the graph has none.
    pub fn estimate_sums(self) -> Result<Self> {
        self.with_edge_weights(EdgeWeights::Scaled)
    }

    fn with_edge_weights(self, weights: EdgeWeights) -> Result<Self> {
        if self.graph.weights().is_none() {
            return Err(Error::NoWeights);
        }
        Ok(Self { weights, ..self })
    }
}

impl<R: PickRule> FrontierSampler for NeighborSampler<R> {
    fn n_layers(&self) -> usize {
        self.fanouts.len()
    }

    fn n_nodes(&self) -> usize {
        self.graph.n_nodes()
    }

    fn indices_path(&self) -> Option<&Path> {
        self.graph.indices_path()
    }

    fn sample_frontier(
        &self,
        hop: Hop,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        let (graph, rule, fanout) = (&*self.graph, &self.rule, self.fanouts[hop.layer]);
        let names = self.names.as_deref();
        HopSampler { graph, rule, hop, fanout, weights: self.weights, names }.fill(
            dsts,
            &mut scratch.picks,
            out,
        )
    }
}

/// Takes every in-neighbour: blocks without sampling noise, for exact evaluation on small graphs.
#[derive(Debug, Clone)]
pub struct FullNeighbors(NeighborSampler);

impl FullNeighbors {
    /// A sampler of `n_layers` whole hops.
    pub fn new(graph: Arc<Csc>, n_layers: usize) -> Self {
        Self(NeighborSampler::new(graph, vec![Fanout::All; n_layers]))
    }

    /// The same sampler, whose blocks carry the graph's edge weights.
    ///
    /// # Errors
    /// [`Error::NoWeights`] when the graph has none.
    pub fn carry_weights(self) -> Result<Self> {
        Ok(Self(self.0.carry_weights()?))
    }
}

impl FrontierSampler for FullNeighbors {
    fn n_layers(&self) -> usize {
        FrontierSampler::n_layers(&self.0)
    }

    fn n_nodes(&self) -> usize {
        self.0.n_nodes()
    }

    fn indices_path(&self) -> Option<&Path> {
        self.0.indices_path()
    }

    fn sample_frontier(
        &self,
        hop: Hop,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        self.0.sample_frontier(hop, dsts, scratch, out)
    }
}

use std::path::Path;
use std::sync::Arc;

use kiln_graph::{Csc, NodeId, SharedArray};

use crate::hop::HopSampler;
use crate::uniform::{Uniform, UniformKeepSelfLoops, UniformWithReplacement};
use crate::{
    EdgeWeights, Error, Fanout, Frontier, FrontierSampler, HopRequest, Result, Rule, SamplerConfig,
    SamplingRule, Scratch, Selection,
};

/// Picks in-neighbours by a rule, uniformly and without replacement by default.
///
/// `fanouts[i]` belongs to layer `i`, input layer first, which is DGL's order: the last number is the
/// hop next to the seeds.
#[derive(Debug, Clone)]
pub struct NeighborSampler {
    graph: Arc<Csc>,
    config: SamplerConfig,
    global_ids: Option<SharedArray<NodeId>>,
}

impl NeighborSampler {
    /// A sampler without replacement: a destination with no more neighbours than its fanout gets all.
    pub fn new(graph: Arc<Csc>, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self { graph, config: SamplerConfig::new(fanouts), global_ids: None }
    }

    /// A sampler by another rule: a built-in one or the user's own.
    pub fn with_rule(
        graph: Arc<Csc>,
        fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
        rule: impl Into<Rule>,
    ) -> Self {
        Self { graph, config: SamplerConfig::new(fanouts).with_rule(rule), global_ids: None }
    }

    /// A sampler of whole neighbourhoods in each of `n_layers` layers: blocks without sampling noise, for
    /// exact evaluation on small graphs.
    pub fn full(graph: Arc<Csc>, n_layers: usize) -> Self {
        Self { graph, config: SamplerConfig::full(n_layers), global_ids: None }
    }

    /// A sampler with this configuration.
    ///
    /// # Errors
    /// [`Error::NoWeights`] when edges are to carry weights and the graph has none.
    pub fn with_config(graph: Arc<Csc>, config: SamplerConfig) -> Result<Self> {
        if config.weights != EdgeWeights::None && graph.weights().is_none() {
            return Err(Error::NoWeights);
        }
        Ok(Self { graph, config, global_ids: None })
    }

    /// The same sampler over a graph that holds the in-edges of some nodes of a larger one: node `v` of this
    /// graph is `global_ids[v]` of the larger one, which is what rules see and draws are keyed by.
    /// Destinations are nodes of this graph. Sources are the entries of its `indices`, usually ids of the
    /// larger graph: so a partition of a graph gives the edges that the whole graph would.
    ///
    /// # Panics
    /// When there is not one id a node.
    #[must_use]
    pub fn with_global_ids(self, global_ids: impl Into<SharedArray<NodeId>>) -> Self {
        let global_ids = global_ids.into();
        assert_eq!(global_ids.len(), self.graph.n_nodes(), "global ids and nodes differ in number");
        Self { global_ids: Some(global_ids), ..self }
    }

    fn fill<R: SamplingRule + ?Sized>(
        &self,
        rule: &R,
        request: HopRequest,
        dsts: &[NodeId],
        picks: &mut Selection,
        out: &mut Frontier,
    ) -> Result<()> {
        let global_ids = self.global_ids.as_deref();
        HopSampler { graph: &self.graph, rule, request, global_ids }.fill(dsts, picks, out)
    }
}

impl FrontierSampler for NeighborSampler {
    fn fanouts(&self) -> &[Fanout] {
        &self.config.fanouts
    }

    fn weights(&self) -> EdgeWeights {
        self.config.weights
    }

    fn n_nodes(&self) -> usize {
        self.graph.n_nodes()
    }

    fn indices_path(&self) -> Option<&Path> {
        self.graph.indices_path()
    }

    fn sample_frontier(
        &self,
        request: HopRequest,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        let picks = &mut scratch.picks;
        // Built-in rules are compiled into the loop over destinations.
        match &self.config.rule {
            Rule::Uniform => self.fill(&Uniform, request, dsts, picks, out),
            Rule::UniformWithReplacement => self.fill(&UniformWithReplacement, request, dsts, picks, out),
            Rule::UniformKeepSelfLoops => self.fill(&UniformKeepSelfLoops, request, dsts, picks, out),
            Rule::Custom { rule, .. } => self.fill(&**rule, request, dsts, picks, out),
        }
    }
}

use std::path::Path;
use std::sync::Arc;

use kiln_graph::{Csc, EdgeColumns, NodeId, SharedArray};

use crate::excluded::SamplerId;
use crate::hop::{HopSampler, RowIds};
use crate::hop_rule::HopRule;
use crate::most_recent::MostRecent;
use crate::uniform::{Uniform, UniformKeepSelfLoops, UniformWithReplacement};
use crate::{
    Dsts, EdgeWeights, Error, Fanout, Frontier, FrontierSampler, HopRequest, Result, Rule, SamplerConfig,
    Scratch, TimeLimits,
};

/// A sampler that picks in-neighbours by a rule, by default uniformly without replacement.
///
/// `fanouts[i]` is the fanout of layer `i`, input layer first (DGL's order): the last fanout is that of the hop from
/// the seeds.
#[derive(Debug, Clone)]
pub struct NeighborSampler {
    graph: Arc<Csc>,
    config: SamplerConfig,
    rows: Rows,
    id: SamplerId,
}

/// The nodes to which the rows of a sampler's graph belong.
#[derive(Debug, Clone)]
enum Rows {
    All,
    Listed(SharedArray<NodeId>),
    /// The rows of the nodes from `first` on, in a graph of `n_nodes` nodes.
    From {
        first: u32,
        n_nodes: usize,
    },
}

impl NeighborSampler {
    /// Creates a sampler that picks uniformly without replacement. If the number of a destination's neighbours does not
    /// exceed the fanout, all of them are picked.
    pub fn new(graph: Arc<Csc>, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self::of(graph, SamplerConfig::new(fanouts))
    }

    /// Creates a sampler with a built-in or custom rule.
    pub fn with_rule(
        graph: Arc<Csc>,
        fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
        rule: impl Into<Rule>,
    ) -> Self {
        Self::of(graph, SamplerConfig::new(fanouts).with_rule(rule))
    }

    /// Creates a sampler that takes all in-neighbours in each of `n_layers` layers, for exact evaluation on small
    /// graphs.
    pub fn full(graph: Arc<Csc>, n_layers: usize) -> Self {
        Self::of(graph, SamplerConfig::full(n_layers))
    }

    /// Creates a sampler from a configuration.
    ///
    /// # Errors
    /// Returns [`Error::NoWeights`] if edge weights are configured and the graph has none, and [`Error::NoEdgeTypes`]
    /// if edge types are configured and the graph has none. Returns [`RuleError::OfRelation`](crate::RuleError::OfRelation) if a
    /// relation has a rule or a window of its own.
    pub fn with_config(graph: Arc<Csc>, config: SamplerConfig) -> Result<Self> {
        config.check_unnamed()?;
        if config.weights != EdgeWeights::None && graph.weights().is_none() {
            return Err(Error::NoWeights);
        }
        if config.edge_types && graph.edge_types().is_none() {
            return Err(Error::NoEdgeTypes);
        }
        Ok(Self::of(graph, config))
    }

    fn of(graph: Arc<Csc>, config: SamplerConfig) -> Self {
        Self { graph, config, rows: Rows::All, id: SamplerId::default() }
    }

    /// Sets the global ids of the graph's nodes, for a graph that contains the in-edges of some nodes of a larger graph
    /// (a partition): node `v` is node `global_ids[v]` of the larger graph. Rules get the global id, and draws are
    /// keyed by it, so a partition gives the same edges as the whole graph. Destinations are still node ids of this
    /// graph; sources are the entries of its `indices`, usually ids of the larger graph.
    ///
    /// # Panics
    /// Panics unless there is one id per node.
    #[must_use]
    pub fn with_global_ids(self, global_ids: impl Into<SharedArray<NodeId>>) -> Self {
        let global_ids = global_ids.into();
        assert_eq!(global_ids.len(), self.graph.n_nodes(), "the numbers of global ids and nodes differ");
        Self { rows: Rows::Listed(global_ids), id: SamplerId::default(), ..self }
    }

    /// Sets the nodes to which the graph's rows belong, for the adjacency of a relation: row `i` has the edges into node
    /// `first + i` of a graph of `n_nodes` nodes. Destinations and sources are nodes of that graph, and a destination
    /// without a row is an error.
    #[must_use]
    pub(crate) fn with_rows_from(self, first: u32, n_nodes: usize) -> Self {
        Self { rows: Rows::From { first, n_nodes }, id: SamplerId::default(), ..self }
    }

    fn fill<R: HopRule + ?Sized>(
        &self,
        rule: &R,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        let rows = match &self.rows {
            Rows::All => RowIds::All,
            Rows::Listed(ids) => RowIds::Listed(ids),
            Rows::From { first, .. } => RowIds::From(*first),
        };
        let sampler = HopSampler { graph: &self.graph, rule, request, rows, id: &self.id };
        sampler.fill(dsts, &mut scratch.picks, &mut scratch.group, out)
    }
}

impl FrontierSampler for NeighborSampler {
    fn fanouts(&self) -> &[Fanout] {
        &self.config.fanouts
    }

    fn weights(&self) -> EdgeWeights {
        self.config.weights
    }

    fn has_edge_types(&self) -> bool {
        self.config.edge_types
    }

    fn time_limits(&self) -> TimeLimits {
        self.config.time_limits
    }

    fn takes_times(&self) -> bool {
        true
    }

    fn has_edge_times(&self) -> bool {
        // Times without an order have an error of their own.
        self.graph.edge_times().is_some() || self.graph.columns().get(EdgeColumns::TIMES).is_some()
    }

    fn n_nodes(&self) -> usize {
        match self.rows {
            Rows::All | Rows::Listed(_) => self.graph.n_nodes(),
            Rows::From { n_nodes, .. } => n_nodes,
        }
    }

    fn indices_path(&self) -> Option<&Path> {
        self.graph.indices_path()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        // Built-in rules are dispatched statically, so they are inlined into the loop over destinations.
        match &self.config.rule {
            Rule::Uniform => self.fill(&Uniform, request, dsts, scratch, out),
            Rule::UniformWithReplacement => self.fill(&UniformWithReplacement, request, dsts, scratch, out),
            Rule::UniformKeepSelfLoops => self.fill(&UniformKeepSelfLoops, request, dsts, scratch, out),
            Rule::MostRecent => self.fill(&MostRecent, request, dsts, scratch, out),
            Rule::Custom { rule, .. } => self.fill(&**rule, request, dsts, scratch, out),
        }
    }
}

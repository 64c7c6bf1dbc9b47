use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_graph::GraphSchema;

use crate::{Error, ExcludedEdges, KeyDomain, Result, RngKey, Rule, RuleError, TimeLimits, TimesError};

/// The number of in-neighbours to pick for each destination of one layer. Integers convert to [`Fanout::UpTo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fanout {
    /// All in-neighbours.
    All,
    /// A maximum number of in-neighbours.
    UpTo(u32),
}

impl From<u32> for Fanout {
    fn from(limit: u32) -> Self {
        Self::UpTo(limit)
    }
}

impl From<&Fanout> for Fanout {
    fn from(fanout: &Fanout) -> Self {
        *fanout
    }
}

/// The kind of edge weights that sampled blocks have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeWeights {
    /// Blocks have no edge weights.
    #[default]
    None,
    /// Edges have the weights that the graph stores.
    Stored,
    /// Edges have weights that make each destination's weighted sum an unbiased estimate of the sum over
    /// all its edges: an edge's weight in the graph times the number of its destination's edges, divided by
    /// the number of picks (Horvitz and Thompson 1952).
    ///
    /// The estimate is unbiased for rules that pick each neighbour with equal probability, as the built-in ones do,
    /// and for fanouts above 0. Self loops that the rule always keeps
    /// ([`SamplingRule::keeps_self_loops`](crate::SamplingRule::keeps_self_loops)) are excluded from both numbers and
    /// keep their weights. If all edges of a destination are picked, they have exactly the graph's weights.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use kiln_graph::{CscBuilder, NodeId, gcn_norm};
    /// use kiln_sample::{
    ///     EdgeWeights, FrontierSampler, NeighborSampler, RngKey, Rule, SamplerConfig, Scratch, Seeds,
    /// };
    /// let star = CscBuilder::new(5).build(&[1, 2, 3, 4], &[0, 0, 0, 0])?;
    /// let graph = Arc::new(gcn_norm(&star)?);
    /// let config = SamplerConfig::new([2]).with_rule(Rule::UniformKeepSelfLoops).with_weights(EdgeWeights::Unbiased);
    /// let sampler = NeighborSampler::with_config(graph, config)?;
    /// let seeds = Seeds::nodes(vec![NodeId(0)]);
    /// let block = &sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?.blocks[0];
    /// // The self loop, and two picks with twice the weight, since two of four edges are picked.
    /// assert_eq!(block.n_edges(), 3);
    /// let edge = 1.0 / 5.0_f64.sqrt();
    /// assert_eq!(block.weights(), Some(&[0.2, 2.0 * edge as f32, 2.0 * edge as f32][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Unbiased,
}

/// The parameters of one hop: all inputs of sampling except the graph, the rule and the destinations. Samplers on the
/// host, on devices and on the owners of remote partitions take the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopRequest {
    /// The step's key with the layer folded in.
    pub key: RngKey,
    /// The layer whose block is sampled; 0 is the input layer, which is sampled last. Samplers of several relations select
    /// their fanouts by it; otherwise it is for error messages.
    pub layer: usize,
    /// The number of edges to pick for each destination.
    pub fanout: Fanout,
    /// The kind of edge weights to return.
    pub weights: EdgeWeights,
    /// True to return the type of each edge.
    pub edge_types: bool,
    /// The edges to leave out, in global ids; `None` to leave out none.
    pub excluded: Option<Arc<ExcludedEdges>>,
    /// The edges that destinations with times may know.
    pub time_limits: TimeLimits,
}

impl HopRequest {
    /// Creates the request for one layer that leaves out no edges and returns no edge types. The layer is folded into the step's key.
    pub fn new(step_key: RngKey, layer: usize, fanout: Fanout, weights: EdgeWeights) -> Self {
        let key = step_key.fold_in(KeyDomain::Layer, layer as u64);
        let time_limits = TimeLimits::default();
        Self { key, layer, fanout, weights, edge_types: false, excluded: None, time_limits }
    }

    /// Sets the edges to leave out.
    #[must_use]
    pub fn excluding(self, excluded: Option<Arc<ExcludedEdges>>) -> Self {
        Self { excluded: excluded.filter(|excluded| !excluded.is_empty()), ..self }
    }
}

/// The configuration of a sampler, on the host, on a device or on a partitioned graph.
#[derive(Debug, Clone, Default)]
pub struct SamplerConfig {
    /// One fanout per layer, input layer first (DGL's order): the last fanout is that of the hop from the seeds.
    pub fanouts: Vec<Fanout>,
    /// The rule that picks each destination's edges.
    pub rule: Rule,
    /// The kind of edge weights that blocks have. All kinds except [`EdgeWeights::None`] require a graph with weights.
    pub weights: EdgeWeights,
    /// True if blocks have edge types, which requires a graph with edge types. If false, types are neither read, sent nor
    /// copied to a device.
    pub edge_types: bool,
    /// The edges that seeds with times may know ([`Seeds::with_times`](crate::Seeds::with_times)).
    pub time_limits: TimeLimits,
    /// The rules of relations that do not pick by `rule`, by the name of the relation.
    pub relation_rules: BTreeMap<String, Rule>,
    /// The windows of relations that do not have that of `time_limits`, by the name of the relation; `None` takes all that is known.
    pub relation_windows: BTreeMap<String, Option<u64>>,
}

impl SamplerConfig {
    /// Creates a configuration that samples uniformly without replacement ([`Rule::Uniform`]) and returns no edge
    /// weights or types.
    pub fn new(fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self { fanouts: fanouts.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Creates a configuration that takes all in-neighbours in each of `n_layers` layers.
    pub fn full(n_layers: usize) -> Self {
        Self::new(vec![Fanout::All; n_layers])
    }

    /// Sets the rule: a built-in or a custom one.
    #[must_use]
    pub fn with_rule(self, rule: impl Into<Rule>) -> Self {
        Self { rule: rule.into(), ..self }
    }

    /// Sets the edges that seeds with times may know: those of a window, or also those at the time itself.
    #[must_use]
    pub fn with_time_limits(self, time_limits: TimeLimits) -> Self {
        Self { time_limits, ..self }
    }

    /// Sets the rule of one relation of a heterogeneous graph. [`Rule::MostRecent`] needs a relation with times.
    ///
    /// ```
    /// use kiln_graph::{NodeId, NodeTypes, RelationEdges, Relations, Relation};
    /// use kiln_sample::{
    ///     Fanout, FrontierSampler, HeteroNeighborSampler, RngKey, Rule, SamplerConfig, Scratch, Seeds,
    /// };
    /// // User 0 has bought items 1 and 2, first item 2.
    /// let types = NodeTypes::new([("user", 1), ("item", 2)])?;
    /// let buys = RelationEdges::new("bought by", "item", "user", &[0, 1], &[0, 0]);
    /// let graph = Relations::from_edges(types, &[buys])?;
    /// let bought = graph.relation(0);
    /// let by_time = bought.graph.as_ref().clone().with_edge_times(vec![7_i64, 3])?;
    /// let bought = Relation { graph: by_time.into(), ..bought.clone() };
    /// let graph = Relations::new(graph.types().clone(), vec![bought])?;
    /// let config = SamplerConfig::default().with_relation_rule("bought by", Rule::MostRecent);
    /// let sampler = HeteroNeighborSampler::new(&graph, vec![vec![Fanout::UpTo(1)]], config)?;
    /// let seeds = Seeds::nodes(vec![NodeId(0)]).with_times(vec![10]);
    /// let blocks = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?.blocks;
    /// assert_eq!(blocks[0].srcs(), [NodeId(0), NodeId(1)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_relation_rule(mut self, relation: &str, rule: impl Into<Rule>) -> Self {
        self.relation_rules.insert(relation.to_owned(), rule.into());
        self
    }

    /// Sets the window of one relation of a heterogeneous graph; `None` takes all that is known. The relation needs times.
    #[must_use]
    pub fn with_relation_window(mut self, relation: &str, window: Option<u64>) -> Self {
        self.relation_windows.insert(relation.to_owned(), window);
        self
    }

    /// Sets the kind of edge weights that blocks have.
    #[must_use]
    pub fn with_weights(self, weights: EdgeWeights) -> Self {
        Self { weights, ..self }
    }

    /// Returns the type of each edge in blocks, for models that depend on the relation of an edge.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use kiln_graph::{CscBuilder, NodeId};
    /// use kiln_sample::{FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds};
    /// // 1 -> 0 of type 2 and 2 -> 0 of type 1.
    /// let graph = CscBuilder::new(3).edge_types(&[2, 1]).build(&[1, 2], &[0, 0])?;
    /// let sampler = NeighborSampler::with_config(Arc::new(graph), SamplerConfig::full(1).with_edge_types())?;
    /// let seeds = Seeds::nodes(vec![NodeId(0)]);
    /// let block = &sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?.blocks[0];
    /// assert_eq!(block.edge_types(), Some(&[2, 1][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_edge_types(self) -> Self {
        Self { edge_types: true, ..self }
    }

    /// Returns the configuration of the sampler of each relation of a graph. Its edges have no types, because the position of
    /// the relation is their type, and they have the rule and the window of their relation. `are_weighted` states which relations have weights: with [`EdgeWeights::Stored`], the
    /// samplers of the others return none, and the weight of their edges is 1
    /// ([`HeteroNeighborSampler::with_weighted`](crate::HeteroNeighborSampler::with_weighted)).
    ///
    /// # Errors
    /// With edge weights, returns [`Error::NoRelationWeights`] if no relation has weights, and, with
    /// [`EdgeWeights::Unbiased`], if any has none. Returns [`kiln_graph::SchemaError::NoSuchRelation`] within [`Error::Graph`] if a
    /// rule or a window names another relation.
    pub fn relation_configs(&self, schema: &GraphSchema, are_weighted: &[bool]) -> Result<Vec<Self>> {
        self.named_relations().try_for_each(|name| schema.require(name).map(drop))?;
        let any_is_weighted = are_weighted.contains(&true);
        let mut configs = Vec::with_capacity(are_weighted.len());
        for (relation, &is_weighted) in schema.relations().iter().zip(are_weighted) {
            let weights = match self.weights {
                weights if is_weighted => weights,
                EdgeWeights::Stored if any_is_weighted => EdgeWeights::None,
                EdgeWeights::None => EdgeWeights::None,
                EdgeWeights::Stored | EdgeWeights::Unbiased => {
                    return Err(Error::NoRelationWeights { relation: relation.name.clone() });
                }
            };
            configs.push(Self { edge_types: false, weights, ..self.relation_config(&relation.name) });
        }
        Ok(configs)
    }

    /// Returns the configuration with the rule and the window of a relation, and without those of others.
    #[must_use]
    pub fn relation_config(&self, relation: &str) -> Self {
        let window = self.relation_windows.get(relation).copied().unwrap_or(self.time_limits.window);
        Self {
            rule: self.relation_rules.get(relation).unwrap_or(&self.rule).clone(),
            time_limits: TimeLimits { window, ..self.time_limits },
            relation_rules: BTreeMap::new(),
            relation_windows: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// Checks that no relation has a rule or a window of its own, for a sampler of a graph without named relations.
    ///
    /// # Errors
    /// Returns [`RuleError::OfRelation`] with the name of a relation that has.
    pub fn check_unnamed(&self) -> Result<()> {
        match self.named_relations().next() {
            None => Ok(()),
            Some(name) => Err(RuleError::OfRelation { relation: name.clone() }.into()),
        }
    }

    /// Checks that each relation whose own rule or window reads times has some.
    ///
    /// # Errors
    /// Returns [`TimesError::RelationWithoutTimes`] for a relation without times, and the errors of `has_times`, which returns
    /// whether the edges of the relation of a name have times.
    pub fn check_relation_times(&self, has_times: impl Fn(&str) -> Result<bool>) -> Result<()> {
        let rules = self.relation_rules.iter().filter(|(_, rule)| rule.needs_times());
        let rules = rules.map(|(relation, _)| (relation, "the rule `most-recent`"));
        let windows = self.relation_windows.keys().map(|relation| (relation, "a window of time"));
        for (relation, what) in rules.chain(windows) {
            if !has_times(relation)? {
                return Err(TimesError::RelationWithoutTimes { relation: relation.clone(), what }.into());
            }
        }
        Ok(())
    }

    /// Returns the names of the relations with rules or windows of their own.
    pub fn named_relations(&self) -> impl Iterator<Item = &String> {
        self.relation_rules.keys().chain(self.relation_windows.keys())
    }
}

use crate::{KeyDomain, RngKey, Rule};

/// The number of in-neighbours to pick for each destination of one layer. An integer converts into
/// [`Fanout::UpTo`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fanout {
    /// All of them.
    All,
    /// At most this many.
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

/// The weights that the edges of sampled blocks carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeWeights {
    /// Edges carry no weight.
    #[default]
    None,
    /// Edges carry the graph's weights.
    Stored,
    /// Edges carry weights that make each destination's weighted sum an unbiased estimate of the sum over
    /// all its edges: an edge's weight in the graph times the number of its destination's edges, divided by
    /// the number of picks (Horvitz and Thompson 1952).
    ///
    /// This holds for rules that pick each neighbour with the same probability, as the built-in ones do, and
    /// for fanouts above 0. Self loops that the rule always keeps
    /// ([`SamplingRule::keeps_self_loops`](crate::SamplingRule::keeps_self_loops)) count in neither number, and
    /// their weights stay as they are. A destination all of whose edges are picked carries exactly the
    /// graph's weights.
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
    /// // The loop, and two picks that stand for two edges each.
    /// assert_eq!(block.n_edges(), 3);
    /// let edge = 1.0 / 5.0_f64.sqrt();
    /// assert_eq!(block.weights(), Some(&[0.2, 2.0 * edge as f32, 2.0 * edge as f32][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    Unbiased,
}

/// The request for one layer's edges of one batch: all that the picks depend on besides the graph, the rule
/// and the destinations. Samplers on the host, on devices and at the owners of partitions take the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopRequest {
    /// The step's key with the layer folded in.
    pub key: RngKey,
    /// The layer whose block is sampled; 0 is the input layer, sampled last. Errors name it.
    pub layer: usize,
    /// The number of edges of each destination.
    pub fanout: Fanout,
    /// The weights that the edges carry.
    pub weights: EdgeWeights,
}

impl HopRequest {
    /// The request of one layer in the step of this key, into which the layer is folded.
    pub fn new(step_key: RngKey, layer: usize, fanout: Fanout, weights: EdgeWeights) -> Self {
        Self { key: step_key.fold_in(KeyDomain::Layer, layer as u64), layer, fanout, weights }
    }
}

/// The configuration of a sampler on the host, on a device or of a partitioned graph.
#[derive(Debug, Clone, Default)]
pub struct SamplerConfig {
    /// One fanout a layer, input layer first, which is DGL's order: the last number is the hop next to the
    /// seeds.
    pub fanouts: Vec<Fanout>,
    /// The rule that picks each destination's edges.
    pub rule: Rule,
    /// The weights that edges carry; the graph needs weights unless it is [`EdgeWeights::None`].
    pub weights: EdgeWeights,
}

impl SamplerConfig {
    /// Uniform picks without replacement, whose edges carry no weights: a destination with no more
    /// neighbours than its fanout gets all.
    pub fn new(fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self { fanouts: fanouts.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Every in-neighbour in each of `n_layers` layers.
    pub fn full(n_layers: usize) -> Self {
        Self::new(vec![Fanout::All; n_layers])
    }

    /// The same configuration with another rule: a built-in one or the user's own.
    #[must_use]
    pub fn with_rule(self, rule: impl Into<Rule>) -> Self {
        Self { rule: rule.into(), ..self }
    }

    /// The same configuration, whose edges carry these weights.
    #[must_use]
    pub fn with_weights(self, weights: EdgeWeights) -> Self {
        Self { weights, ..self }
    }
}

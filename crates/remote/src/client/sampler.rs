use std::fmt;
use std::sync::Arc;

use kiln_sample::{
    Dsts, EdgeWeights, Fanout, Frontier, FrontierSampler, HopRequest, RelationHop, RelationSampler,
    RelationScratch, SamplerConfig, Scratch, TimeLimits, TimesError,
};

use crate::client::fetch_stats::count;
use crate::client::graph::DistGraph;
use crate::client::listed_rows::ListedRows;
use crate::client::peer::Owner;
use crate::client::question::Question;
use crate::client::replies::PeerRequest;
use crate::client::requests::{Piece, Requests, Rows};
use crate::wire::encoding::{self, ListedArrays, bytes_of};
use crate::wire::proto::{ListRequest, SampleRequest};
use crate::wire::wanted::MessageEdges;
use crate::{ContentError, Error, Result};

/// A neighbour sampler of a partitioned graph. For the same key its blocks are bit-identical to those of a
/// [`NeighborSampler`](kiln_sample::NeighborSampler) on the whole graph, however it is partitioned.
///
/// For each hop, it sends the destinations and their excluded edges to the servers of their partitions, all servers
/// concurrently and at most 16,384 destinations and 131,072 excluded edges per request. Meanwhile it samples the destinations of the local partition.
///
/// Servers sample by the rules that they know by name: the built-in ones and those registered on both sides
/// ([`DistGraph::rule`]). If the rule has no name, servers send all edges of each node, and this process samples them;
/// see [`DistNeighborSampler::warning`].
///
/// It samples a homogeneous graph, or one relation of a heterogeneous graph ([`DistNeighborSampler::of_relation`]);
/// [`DistGraph::hetero_sampler`] samples all relations.
///
/// Seeds may have times ([`Seeds::with_times`](kiln_sample::Seeds::with_times)): owners order the edges of a relation by time when it
/// is first sampled ([`Part::edges_by_time`](kiln_partition::Part::edges_by_time)), and keep the order.
///
/// `fanouts[i]` belongs to layer `i`, input layer first, as in all samplers of kiln.
pub struct DistNeighborSampler {
    graph: Arc<DistGraph>,
    /// The relation of a heterogeneous graph; `None` for the only one of a homogeneous graph.
    relation: Option<usize>,
    config: SamplerConfig,
    /// The time from which on edges are left out.
    before: Option<i64>,
    /// The sampler of the local nodes; if `None`, they are sampled on the CPU.
    own: Option<Box<dyn FrontierSampler>>,
}

impl DistNeighborSampler {
    /// Creates a uniform sampler without replacement. A destination with no more neighbours than its fanout gets all of
    /// them.
    pub fn new(graph: Arc<DistGraph>, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self { graph, relation: None, config: SamplerConfig::new(fanouts), before: None, own: None }
    }

    /// Creates a sampler with this configuration.
    ///
    /// # Errors
    /// Returns [`kiln_sample::Error::NoWeights`] or [`kiln_sample::Error::NoEdgeTypes`] if edge weights or types are
    /// requested and the graph has none, [`Error::BadRule`] if a server does not know the name of the rule, and
    /// [`ContentError::Heterogeneous`] for a heterogeneous graph.
    pub fn with_config(graph: Arc<DistGraph>, config: SamplerConfig) -> Result<Self> {
        Self { graph, relation: None, config, before: None, own: None }.checked()
    }

    /// Creates a sampler of one relation. Destinations and sources are nodes of the graph, and edge ids count from 0 within
    /// the relation.
    ///
    /// # Errors
    /// Returns the errors of [`DistNeighborSampler::with_config`] but the last, and [`Error::Content`] if there is no such relation.
    pub fn of_relation(graph: Arc<DistGraph>, relation: usize, config: SamplerConfig) -> Result<Self> {
        let n_known = graph.schema().relations().len();
        if n_known <= relation {
            return Err(ContentError::NoSuchPosition { what: "relation", position: relation, n_known }.into());
        }
        Self { graph, relation: Some(relation), config, before: None, own: None }.checked()
    }

    /// Leaves out the edges that were not known before a time: those whose time, or the time of whose source, is not before it
    /// ([`Dataset::graph_before`](kiln_data::Dataset::graph_before)). Each owner makes its edges of a time once, and keeps those of the
    /// last 8 times: 8 bytes per edge, and 5 more with weights and types. `None` is all edges.
    #[must_use]
    pub fn cut_at(self, time: Option<i64>) -> Self {
        Self { before: time, ..self }
    }

    fn checked(self) -> Result<Self> {
        let Self { graph, config, .. } = &self;
        config.check_unnamed()?;
        self.check(config.weights, config.edge_types)?;
        if let Some(name) = config.rule.name() {
            check_owners_know(graph, name)?;
        }
        Ok(self)
    }

    /// Returns the relation that is sampled.
    fn relation(&self) -> Result<usize> {
        match self.relation {
            Some(relation) => Ok(relation),
            None if self.graph.is_heterogeneous() => {
                Err(Error::Content(ContentError::Heterogeneous { instead: "DistGraph::hetero_sampler" }))
            }
            None => Ok(0),
        }
    }

    /// Samples the nodes of the local partition with `own`, for example on a device. `own` must sample
    /// [`Part::graph_by_node`](kiln_partition::Part::graph_by_node) of the relation, or
    /// [`Part::graph_by_node_before`](kiln_partition::Part::graph_by_node_before) with a time, by the same rule and with the same
    /// fanouts; with another rule, blocks differ from those of the whole graph. [`EdgeWeights::Unbiased`] weights are quotients,
    /// which `own` may round differently on a device.
    ///
    /// # Errors
    /// Returns [`Error::BadSampler`] if there is no local partition, or if the number of layers or nodes of `own` differs from
    /// that of this sampler.
    pub fn with_local_sampler(self, own: impl FrontierSampler + 'static) -> Result<Self> {
        if self.graph.local_part().is_none() {
            let reason = "has nothing to sample: servers hold all partitions, and sample them".to_owned();
            return Err(Error::BadSampler { reason });
        }
        let expected = (self.n_layers(), self.graph.n_nodes());
        let found = (own.n_layers(), own.n_nodes());
        if found != expected {
            let reason = format!(
                "has {} layers and {} nodes, expected {} and {}: give it the same fanouts and Part::graph_by_node",
                found.0, found.1, expected.0, expected.1
            );
            return Err(Error::BadSampler { reason });
        }
        Ok(Self { own: Some(Box::new(own)), ..self })
    }

    /// Returns a warning for the user if the rule has no name: servers must send all edges then.
    pub fn warning(&self) -> Option<String> {
        if self.config.rule.name().is_some() {
            return None;
        }
        Some(format!(
            "the sampling rule has no name, so servers send all edges of each node, {:.1} on average, regardless of \
             the fanout: register it on servers and clients under one name (RuleRegistry::register) to run it on the \
             servers",
            self.mean_degree(self.relation.unwrap_or(0))
        ))
    }

    /// Returns the mean number of edges of a relation into a node of its destinations' type.
    fn mean_degree(&self, relation: usize) -> f64 {
        let schema = self.graph.schema();
        let Some(relation) = schema.relations().get(relation) else { return 0.0 };
        relation.n_edges as f64 / schema.types().range(relation.dst_type).len().max(1) as f64
    }

    /// Returns the hop of this sampler for a request, grouped by the owners of the destinations.
    ///
    /// # Errors
    /// Returns [`TimesError::NotSupported`] for times that this sampler does not take, and [`TimesError::NoTimes`] if the rule
    /// needs some.
    fn hop<'a>(&'a self, request: &'a HopRequest, dsts: Dsts<'a>) -> Result<Hop<'a>> {
        let relation = self.check(request.weights, request.edge_types)?;
        match dsts.times() {
            Some(_) if !self.takes_times() => {
                return Err(kiln_sample::Error::Times(TimesError::NotSupported).into());
            }
            None if self.config.rule.needs_times() => {
                return Err(kiln_sample::Error::Times(TimesError::NoTimes).into());
            }
            _ => {}
        }
        let requests = Requests::of(&self.graph, relation, dsts)?;
        Ok(Hop { sampler: self, relation, request, requests })
    }

    /// Checks that the graph has the arrays that are requested. Returns the relation that is sampled.
    fn check(&self, weights: EdgeWeights, edge_types: bool) -> Result<usize> {
        let relation = self.relation()?;
        let edges = self.graph.relation(relation);
        if weights != EdgeWeights::None && !edges.has_weights {
            return Err(kiln_sample::Error::NoWeights.into());
        }
        if edge_types && !edges.has_edge_types {
            return Err(kiln_sample::Error::NoEdgeTypes.into());
        }
        Ok(relation)
    }

    /// Returns the edges from which the destinations of a hop are sampled.
    fn message_edges(&self, requests: &Requests<'_>) -> MessageEdges {
        match self.before {
            _ if requests.has_times() => MessageEdges::ByTime,
            Some(time) => MessageEdges::Before(time),
            None => MessageEdges::All,
        }
    }

    /// Returns true if edges of a relation may not be known at all times, because they or their sources have times.
    fn has_times(&self, relation: usize) -> bool {
        let src_type = self.graph.schema().relations()[relation].src_type;
        self.graph.relation(relation).has_times || self.graph.times().node_times(src_type).is_some()
    }

    fn asking(&self, relation: usize, piece: &Piece<'_>, request: &HopRequest) -> PeerRequest {
        let Piece { peer, rows, excluded, .. } = piece;
        // A server may state any number of edges.
        let mean = (self.mean_degree(relation) as usize).saturating_add(1);
        let times = rows.dsts.times();
        let before = self.before;
        let (question, edges_per_dst) = match self.config.rule.name() {
            None => {
                let rows = bytes_of(ListedRows::of(rows).rows);
                let relation = relation as u32;
                let times = times.is_some();
                (Question::List(ListRequest { lease: 0, rows, relation, before, times }), mean)
            }
            Some(rule) => {
                let edges_per_dst = match request.fanout {
                    Fanout::All => mean,
                    Fanout::UpTo(fanout) => fanout as usize + 1,
                };
                let rows = bytes_of(rows.rows.to_vec());
                let times = times.map(|times| encoding::row_times(times, request.time_limits));
                let untimed =
                    encoding::sample_request(request, rule, relation, rows, excluded.clone(), before);
                (Question::Sample(SampleRequest { times, ..untimed }), edges_per_dst)
            }
        };
        // Listed edges may have times or positions.
        let listed_bytes = if self.config.rule.name().is_none() { size_of::<i64>() } else { 0 };
        let edge_bytes = 12 + listed_bytes + usize::from(request.edge_types);
        let n_bytes =
            edge_bytes.saturating_mul(edges_per_dst).saturating_add(12).saturating_mul(rows.rows.len());
        PeerRequest { peer: Arc::clone(*peer), question, n_bytes }
    }

    /// Samples the destinations of the local partition.
    fn sample_own(
        &self,
        requests: &Requests<'_>,
        request: &HopRequest,
        scratch: &mut Scratch,
    ) -> Result<Frontier> {
        let (mut own, rule) = (Frontier::default(), &self.config.rule);
        let edges = self.message_edges(requests);
        let Some((edges, Rows { dsts, rows })) = requests.here(edges)? else { return Ok(own) };
        let Some(sampler) = &self.own else {
            edges.sample(rows, dsts.times(), rule, request, scratch, &mut own)?;
            return Ok(own);
        };
        sampler.sample_frontier(request, dsts, scratch, &mut own)?;
        own.check(request.layer, dsts.len())?;
        if own.weights.is_none() && request.weights != EdgeWeights::None {
            let reason = "returns no edge weights: configure it to return them".to_owned();
            return Err(Error::BadSampler { reason });
        }
        if own.edge_types.is_none() && request.edge_types {
            let reason = "returns no edge types: configure it to return them".to_owned();
            return Err(Error::BadSampler { reason });
        }
        if !edges.may_give(rows, request, rule, &own)? {
            let reason = "returns edges that its nodes do not have, or too few: let it sample Part::graph_by_node of \
                          this partition, by the same rule and fanouts";
            return Err(Error::BadSampler { reason: reason.to_owned() });
        }
        edges.number(rows, &mut own);
        Ok(own)
    }

    /// Decodes a response: the sampled edges or, for a rule without a name, lists of all edges, which are sampled here.
    fn picked(
        &self,
        relation: usize,
        piece: &Piece<'_>,
        answer: &[u8],
        request: &HopRequest,
        scratch: &mut Scratch,
    ) -> Result<Frontier> {
        let Piece { peer, rows, .. } = piece;
        let n_dst = rows.rows.len();
        let found = || format!("{} bytes for {n_dst} nodes", answer.len());
        match self.config.rule.name() {
            Some(_) => encoding::frontier(answer, n_dst, request)
                .map_err(|expected| peer.bad_answer("a sample", expected, found())),
            None => {
                let of_graph = self.graph.relation(relation);
                let arrays = ListedArrays {
                    weights: of_graph.has_weights,
                    types: of_graph.has_edge_types,
                    positions: self.before.is_some(),
                    times: rows.dsts.times().is_some() && self.has_times(relation),
                };
                let ListedRows { nodes, places, .. } = ListedRows::of(rows);
                let edges = encoding::lists(answer, &nodes, arrays)
                    .map_err(|expected| peer.bad_answer("neighbour lists", expected, found()))?;
                let mut picked = Frontier::default();
                edges.sample(&places, rows.dsts.times(), &self.config.rule, request, scratch, &mut picked)?;
                Ok(picked)
            }
        }
    }
}

/// The hop of one relation, and the sampler of the relation.
struct Hop<'a> {
    sampler: &'a DistNeighborSampler,
    relation: usize,
    request: &'a HopRequest,
    requests: Requests<'a>,
}

impl Hop<'_> {
    /// Returns the destinations of the requests to servers.
    fn pieces(&self) -> Result<Vec<Piece<'_>>> {
        // Servers that send all edges have none to leave out.
        let is_named = self.sampler.config.rule.name().is_some();
        self.requests.there(self.request.excluded.as_deref().filter(|_| is_named))
    }

    /// Joins the local sample and the responses to all requests of the hop.
    fn finish(
        &self,
        pieces: &[Piece<'_>],
        own: &Frontier,
        answers: impl Iterator<Item = Vec<u8>>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        let Self { sampler, relation, request, requests } = self;
        let mut frontiers = Vec::with_capacity(pieces.len());
        for (piece, answer) in pieces.iter().zip(answers) {
            frontiers.push(sampler.picked(*relation, piece, &answer, request, scratch)?);
        }
        requests.merge(own, pieces, &frontiers, request, out);
        let n_edge_types = sampler.graph.relation(*relation).n_edge_types;
        check_edge_types(out.edge_types.as_deref().unwrap_or_default(), n_edge_types)?;
        // An id beyond those of the relation would be that of an edge of the next one.
        let n_known = sampler.graph.schema().relations()[*relation].n_edges;
        if let Some(edge) = out.edge_ids.iter().find(|edge| n_known <= edge.0) {
            let reason = format!("edge {} of a relation with {n_known} edges was sampled", edge.0);
            return Err(Error::BadParts { reason });
        }
        let (layer, n_edges) = (request.layer, out.srcs.len() as u64);
        match u32::try_from(n_edges) {
            Ok(_) => Ok(()),
            Err(_) => Err(kiln_sample::Error::BlockTooLarge { layer, n_edges }.into()),
        }
    }
}

/// Samples hops of relations of one graph. The requests of all hops are sent together, and the local destinations are
/// sampled meanwhile. Each hop has a scratch and a frontier.
fn sample_hops(
    graph: &DistGraph,
    hops: &[Hop<'_>],
    outs: &mut [(&mut Scratch, &mut Frontier)],
) -> Result<()> {
    let pieces = hops.iter().map(Hop::pieces).collect::<Result<Vec<_>>>()?;
    let of_hop = |(hop, pieces): (&Hop<'_>, &Vec<Piece<'_>>)| -> Vec<PeerRequest> {
        pieces.iter().map(|piece| hop.sampler.asking(hop.relation, piece, hop.request)).collect()
    };
    let asked = graph.ask(hops.iter().zip(&pieces).flat_map(of_hop));
    let mut owns = Vec::with_capacity(hops.len());
    for (hop, (scratch, _)) in hops.iter().zip(outs.iter_mut()) {
        owns.push(hop.sampler.sample_own(&hop.requests, hop.request, scratch)?);
    }
    let mut answers = asked.collect(pieces.iter().map(Vec::len).sum())?.into_iter();
    for (((hop, pieces), own), (scratch, out)) in hops.iter().zip(&pieces).zip(&owns).zip(outs) {
        count(&graph.counters.own_dsts, own.n_dst());
        count(&graph.counters.remote_dsts, hop.requests.n_dsts() - own.n_dst());
        hop.finish(pieces, own, answers.by_ref().take(pieces.len()), scratch, out)?;
    }
    Ok(())
}

/// The samplers of the relations of a graph.
#[derive(Debug)]
pub(crate) struct DistRelations {
    pub(crate) graph: Arc<DistGraph>,
    /// The sampler of each relation.
    pub(crate) samplers: Vec<DistNeighborSampler>,
}

impl RelationSampler for DistRelations {
    fn take_times(&self) -> bool {
        self.samplers.iter().all(FrontierSampler::takes_times)
    }

    fn have_edge_times(&self) -> bool {
        self.graph.has_times()
    }

    /// Sends the requests of all relations together.
    fn sample_relations(
        &self,
        hops: &[RelationHop<'_>],
        out: &mut [RelationScratch],
    ) -> kiln_sample::Result<()> {
        let mut buffers: Vec<_> = out.iter_mut().map(Some).collect();
        let (mut of_relations, mut outs) = (Vec::with_capacity(hops.len()), Vec::with_capacity(hops.len()));
        for RelationHop { relation, request, dsts } in hops {
            of_relations.push(self.samplers[*relation].hop(request, *dsts)?);
            if let Some(RelationScratch { scratch, frontier }) = buffers[*relation].take() {
                outs.push((scratch, frontier));
            }
        }
        Ok(sample_hops(&self.graph, &of_relations, &mut outs)?)
    }
}

/// Checks that all servers know a rule.
///
/// # Errors
/// Returns [`Error::BadRule`] with the first server that does not know it.
fn check_owners_know(graph: &DistGraph, name: &str) -> Result<()> {
    for part in 0..graph.books().n_parts() {
        if let Owner::Remote(peer) = graph.owner(part)
            && !peer.knows(name)
        {
            let address = &peer.address;
            let reason = format!(
                "graph server {address} does not know the sampling rule `{name}`: register it there under the same name"
            );
            return Err(Error::BadRule { reason });
        }
    }
    Ok(())
}

impl fmt::Debug for DistNeighborSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistNeighborSampler").field("config", &self.config).finish_non_exhaustive()
    }
}

impl FrontierSampler for DistNeighborSampler {
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

    /// Returns false if edges are cut at one time, and with a sampler of the caller's own, which has no order by time.
    fn takes_times(&self) -> bool {
        self.before.is_none() && self.own.is_none()
    }

    fn has_edge_times(&self) -> bool {
        self.graph.has_times()
    }

    fn n_nodes(&self) -> usize {
        self.graph.n_nodes()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        Ok(sample_hops(&self.graph, &[self.hop(request, dsts)?], &mut [(scratch, out)])?)
    }
}

/// Checks that edge types are below the recorded number, because kernels address memory by them.
fn check_edge_types(edge_types: &[u8], n_edge_types: Option<usize>) -> Result<()> {
    let Some(n_edge_types) = n_edge_types else { return Ok(()) };
    match edge_types.iter().find(|edge_type| n_edge_types <= usize::from(**edge_type)) {
        Some(&edge_type) => Err(Error::Content(ContentError::UnknownEdgeType { edge_type, n_edge_types })),
        None => Ok(()),
    }
}

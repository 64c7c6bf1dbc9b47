use std::fmt;
use std::sync::Arc;

use kiln_graph::NodeId;
use kiln_partition::PartitionRow;
use kiln_sample::{EdgeWeights, Fanout, Frontier, FrontierSampler, HopRequest, SamplerConfig, Scratch};

use crate::fetch_stats::count;
use crate::graph::{DistGraph, Owner, PeerRequest};
use crate::local_part::LocalPart;
use crate::peer::{Peer, Question};
use crate::proto::ListRequest;
use crate::wire::{self, bytes_of};
use crate::{Error, MAX_DSTS, Result};

/// A neighbour sampler of a partitioned graph. For the same key its blocks are bit-identical to those of a
/// [`NeighborSampler`](kiln_sample::NeighborSampler) on the whole graph, however it is partitioned.
///
/// For each hop, it sends the destinations to the servers of their partitions, all servers concurrently and at most
/// 16,384 destinations per request. Meanwhile it samples the destinations of the local partition.
///
/// Servers sample by the rules that they know by name: the built-in ones and those registered on both sides
/// ([`DistGraph::rule`]). If the rule has no name, servers send all edges of each node, and this process samples them;
/// see [`DistNeighborSampler::warning`].
///
/// `fanouts[i]` belongs to layer `i`, input layer first, as in all samplers of kiln.
pub struct DistNeighborSampler {
    graph: Arc<DistGraph>,
    config: SamplerConfig,
    /// The sampler of the local nodes; if `None`, they are sampled on the CPU.
    own: Option<Box<dyn FrontierSampler>>,
}

impl DistNeighborSampler {
    /// Creates a uniform sampler without replacement. A destination with no more neighbours than its fanout gets all of
    /// them.
    pub fn new(graph: Arc<DistGraph>, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        Self { graph, config: SamplerConfig::new(fanouts), own: None }
    }

    /// Creates a sampler with this configuration.
    ///
    /// # Errors
    /// Returns [`kiln_sample::Error::NoWeights`] if edge weights are requested and the graph has none, and
    /// [`Error::BadRule`] if a server does not know the name of the rule.
    pub fn with_config(graph: Arc<DistGraph>, config: SamplerConfig) -> Result<Self> {
        if config.weights != EdgeWeights::None && !graph.has_weights() {
            return Err(kiln_sample::Error::NoWeights.into());
        }
        if let Some(name) = config.rule.name() {
            check_owners_know(&graph, name)?;
        }
        Ok(Self { graph, config, own: None })
    }

    /// Samples the nodes of the local partition with `own`, for example on a device. `own` must sample
    /// [`Part::graph_by_node`](kiln_partition::Part::graph_by_node) by the same rule and with the same fanouts;
    /// with another rule, blocks differ from those of the whole graph. [`EdgeWeights::Unbiased`] weights are quotients,
    /// which `own` may round differently on a device.
    ///
    /// # Errors
    /// Returns [`Error::BadSampler`] if there is no local partition, or if the number of layers or nodes of `own`
    /// differs from that of this sampler.
    pub fn with_local_sampler(self, own: impl FrontierSampler + 'static) -> Result<Self> {
        if self.graph.own().is_none() {
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
        let (n_nodes, n_edges) = (self.graph.n_nodes().max(1), self.graph.n_edges());
        Some(format!(
            "the sampling rule has no name, so servers send all edges of each node, {:.1} on average, regardless of \
             the fanout: register it on servers and clients under one name (RuleRegistry::register) to run it on the \
             servers",
            n_edges as f64 / n_nodes as f64
        ))
    }

    fn sample(
        &self,
        request: &HopRequest,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        if request.excluded.is_some() {
            return Err(kiln_sample::Error::ExclusionNeedsHost.into());
        }
        let requests = Requests::of(&self.graph, dsts)?;
        let pieces = requests.there();
        let asked = self.graph.ask(pieces.iter().map(|(peer, rows)| self.asking(peer, rows, request)));
        let own = self.sample_own(&requests, request, scratch)?;
        let answers = asked.collect(pieces.len())?;
        let counters = &self.graph.counters;
        count(&counters.own_dsts, own.n_dst());
        count(&counters.remote_dsts, dsts.len() - own.n_dst());
        let mut frontiers = Vec::with_capacity(pieces.len());
        for ((peer, rows), answer) in pieces.iter().zip(answers) {
            frontiers.push(self.picked(peer, rows, &answer, request, scratch)?);
        }
        requests.merge(&own, &frontiers, request.weights != EdgeWeights::None, out);
        let n_edges = out.srcs.len() as u64;
        match u32::try_from(n_edges) {
            Ok(_) => Ok(()),
            Err(_) => Err(kiln_sample::Error::BlockTooLarge { layer: request.layer, n_edges }.into()),
        }
    }

    fn asking(&self, peer: &Arc<Peer>, rows: &Rows<'_>, request: &HopRequest) -> PeerRequest {
        let mean = self.graph.n_edges() as usize / self.graph.n_nodes().max(1) + 1;
        let list = bytes_of(rows.rows.to_vec());
        let (question, edges_per_dst) = match self.config.rule.name() {
            None => (Question::List(ListRequest { lease: 0, rows: list }), mean),
            Some(rule) => {
                let edges_per_dst = match request.fanout {
                    Fanout::All => mean,
                    Fanout::UpTo(fanout) => fanout as usize + 1,
                };
                (Question::Sample(wire::sample_request(request, rule, list)), edges_per_dst)
            }
        };
        let n_bytes = rows.rows.len().saturating_mul(12 + 12 * edges_per_dst);
        PeerRequest { peer: Arc::clone(peer), question, n_bytes }
    }

    /// Samples the destinations of the local partition.
    fn sample_own(
        &self,
        requests: &Requests<'_>,
        request: &HopRequest,
        scratch: &mut Scratch,
    ) -> Result<Frontier> {
        let (mut own, rule) = (Frontier::default(), &self.config.rule);
        let Some((held, Rows { nodes, rows })) = requests.here() else { return Ok(own) };
        let Some(sampler) = &self.own else {
            held.sample(rows, rule, request, scratch, &mut own)?;
            return Ok(own);
        };
        sampler.sample_frontier(request, nodes, scratch, &mut own)?;
        own.check(request.layer, nodes.len())?;
        if own.weights.is_none() && request.weights != EdgeWeights::None {
            let reason = "returns no edge weights: configure it to return them".to_owned();
            return Err(Error::BadSampler { reason });
        }
        if !held.edges.may_give(rows, request.fanout, rule, &own)? {
            let reason = "returns edges that its nodes do not have, or too few: let it sample Part::graph_by_node of \
                          this partition, by the same rule and fanouts";
            return Err(Error::BadSampler { reason: reason.to_owned() });
        }
        held.edges.number(rows, &mut own);
        Ok(own)
    }

    /// Decodes a response: the sampled edges or, for a rule without a name, lists of all edges, which are sampled here.
    fn picked(
        &self,
        peer: &Peer,
        rows: &Rows<'_>,
        answer: &[u8],
        request: &HopRequest,
        scratch: &mut Scratch,
    ) -> Result<Frontier> {
        let (n_dst, has_weights) = (rows.rows.len(), request.weights != EdgeWeights::None);
        let found = || format!("{} bytes for {n_dst} nodes", answer.len());
        match self.config.rule.name() {
            Some(_) => wire::frontier(answer, n_dst, has_weights)
                .map_err(|expected| peer.bad_answer("a sample", expected, found())),
            None => {
                let (weighs, types) = (self.graph.has_weights(), self.graph.has_edge_types());
                let edges = wire::lists(answer, rows.nodes, weighs, types)
                    .map_err(|expected| peer.bad_answer("neighbour lists", expected, found()))?;
                let all: Vec<PartitionRow> = (0..n_dst as u32).map(PartitionRow).collect();
                let mut picked = Frontier::default();
                edges.sample(&all, &self.config.rule, request, scratch, &mut picked)?;
                Ok(picked)
            }
        }
    }
}

/// Checks that all servers know a rule.
///
/// # Errors
/// Returns [`Error::BadRule`] with the first server that does not know it.
fn check_owners_know(graph: &DistGraph, name: &str) -> Result<()> {
    for part in 0..graph.book().n_parts() {
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

    fn n_nodes(&self) -> usize {
        self.graph.n_nodes()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        Ok(self.sample(request, dsts, scratch, out)?)
    }
}

/// The destinations of one hop, grouped by the partition that owns them.
struct Requests<'a> {
    graph: &'a DistGraph,
    /// The destinations of each partition.
    nodes: Vec<Vec<NodeId>>,
    /// The rows of `nodes` in their partitions.
    rows: Vec<Vec<PartitionRow>>,
    /// The partition of each destination.
    parts: Vec<u16>,
}

/// Nodes of one partition and their rows.
struct Rows<'a> {
    nodes: &'a [NodeId],
    rows: &'a [PartitionRow],
}

impl<'a> Requests<'a> {
    fn of(graph: &'a DistGraph, dsts: &[NodeId]) -> Result<Self> {
        let book = graph.book();
        let n_parts = book.n_parts();
        let (mut nodes, mut rows) = (vec![Vec::new(); n_parts], vec![Vec::new(); n_parts]);
        let mut parts = Vec::with_capacity(dsts.len());
        for (position, &node) in dsts.iter().enumerate() {
            let place = book.place(node).ok_or(kiln_sample::Error::SeedOutOfRange {
                node,
                position,
                n_nodes: book.n_nodes(),
            })?;
            nodes[place.part].push(node);
            rows[place.part].push(place.row);
            parts.push(place.part as u16);
        }
        Ok(Self { graph, nodes, rows, parts })
    }

    /// Returns the local partition and the destinations that it owns; `None` if there is no local partition.
    fn here(&self) -> Option<(&'a LocalPart, Rows<'_>)> {
        let held: &'a Arc<LocalPart> = self.graph.own()?;
        let part = held.part.index;
        Some((held, Rows { nodes: &self.nodes[part], rows: &self.rows[part] }))
    }

    /// Returns the destinations that servers own, in groups of at most [`MAX_DSTS`], each with its server. Each group
    /// is one request.
    fn there(&self) -> Vec<(&'a Arc<Peer>, Rows<'_>)> {
        let mut pieces = Vec::new();
        for (part, (nodes, rows)) in self.nodes.iter().zip(&self.rows).enumerate() {
            if let Owner::Remote(peer) = self.graph.owner(part) {
                let both = nodes.chunks(MAX_DSTS).zip(rows.chunks(MAX_DSTS));
                pieces.extend(both.map(|(nodes, rows)| (peer, Rows { nodes, rows })));
            }
        }
        pieces
    }

    /// Merges the local sample and the servers' samples in the order of the destinations. `there` has a sample for each
    /// element of [`Requests::there`].
    fn merge(&self, own: &Frontier, there: &[Frontier], has_weights: bool, out: &mut Frontier) {
        let n_edges = own.srcs.len() + there.iter().map(|frontier| frontier.srcs.len()).sum::<usize>();
        out.indptr.clear();
        out.indptr.push(0);
        out.srcs.clear();
        out.srcs.reserve(n_edges);
        out.edge_ids.clear();
        out.edge_ids.reserve(n_edges);
        out.weights = has_weights.then(|| Vec::with_capacity(n_edges));
        // `firsts[part]` is the position in `there` of the partition's first sample.
        let (mut first, mut firsts) = (0, vec![0; self.nodes.len()]);
        for (part, nodes) in self.nodes.iter().enumerate() {
            firsts[part] = first;
            if let Owner::Remote(_) = self.graph.owner(part) {
                first += nodes.len().div_ceil(MAX_DSTS);
            }
        }
        // `n_done[part]` is the number of the partition's destinations that have been merged.
        let mut n_done = vec![0; self.nodes.len()];
        for part in &self.parts {
            let part = usize::from(*part);
            let done = n_done[part];
            n_done[part] += 1;
            let (frontier, dst) = match self.graph.owner(part) {
                Owner::Local(_) => (own, done),
                Owner::Remote(_) => (&there[firsts[part] + done / MAX_DSTS], done % MAX_DSTS),
            };
            let picked = frontier.indptr[dst] as usize..frontier.indptr[dst + 1] as usize;
            out.srcs.extend_from_slice(&frontier.srcs[picked.clone()]);
            out.edge_ids.extend_from_slice(&frontier.edge_ids[picked.clone()]);
            if let (Some(weights), Some(all)) = (&frontier.weights, &mut out.weights) {
                all.extend_from_slice(&weights[picked]);
            }
            // The caller checks that the number of edges fits in 32 bits.
            out.indptr.push(out.srcs.len() as u32);
        }
    }
}

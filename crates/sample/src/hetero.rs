use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kiln_graph::{EdgeColumns, EdgeId, GraphSchema, NodeId, NodeTypes, Relation, Relations};

use crate::block::{DstsOfType, HeteroScratch};
use crate::{
    DamagedGraphError, Dsts, EdgeWeights, Error, Fanout, FanoutsError, Frontier, FrontierSampler, HopRequest,
    KeyDomain, NeighborSampler, RelationHop, RelationSampler, RelationScratch, Result, RngKey, SamplerConfig,
    Scratch, TimeLimits,
};

/// A sampler of a heterogeneous graph: picks edges of each relation with a fanout of its own.
///
/// The edges of a destination are in the order of the relations, and their type in a block is the relation. Node and edge
/// ids are those of [`Relations`], so seeds, blocks and caches are the same as for homogeneous graphs. Relation 0 draws
/// with the key of the hop, so a graph with one relation has the blocks of a [`NeighborSampler`] of its adjacency.
///
/// Excluded edges are pairs of nodes: the edges of all relations between them are left out, or those of some relations
/// ([`HeteroNeighborSampler::excluding_from`]).
///
/// ```
/// use kiln_graph::{NodeId, NodeTypes, RelationEdges, Relations};
/// use kiln_sample::{Fanout, FrontierSampler, RngKey, SamplerConfig, Scratch, Seeds, HeteroNeighborSampler};
/// // Users 0 and 1, items 2 and 3: both users rate item 2, and items 2 and 3 are bought together.
/// let types = NodeTypes::new([("user", 2), ("item", 2)])?;
/// let of = |name, src_type, srcs, dsts| RelationEdges::new(name, src_type, "item", srcs, dsts);
/// let graph = Relations::from_edges(types, &[of("rates", "user", &[0, 1], &[0, 0]), of("with", "item", &[1], &[0])])?;
/// let fanouts = vec![vec![Fanout::UpTo(1), Fanout::All]];
/// let sampler = HeteroNeighborSampler::new(&graph, fanouts, SamplerConfig::default().with_edge_types())?;
/// let seeds = Seeds::nodes(vec![NodeId(2)]);
/// let block = &sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?.blocks[0];
/// assert_eq!(block.edge_types(), Some(&[0, 1][..]));
/// assert_eq!(block.srcs()[2], NodeId(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct HeteroNeighborSampler {
    schema: GraphSchema,
    relations: Arc<dyn RelationSampler>,
    /// For each relation, whether the excluded edges of a request are left out.
    leaves_out: Vec<bool>,
    /// The relations into each type of nodes, ascending.
    by_dst_type: Vec<Vec<usize>>,
    /// The fanout of each relation in each layer.
    fanouts: Vec<Vec<Fanout>>,
    /// The largest fanout of each layer.
    largest: Vec<Fanout>,
    weights: EdgeWeights,
    /// For each relation, whether its edges have weights. The weight of other edges is 1.
    are_weighted: Vec<bool>,
    edge_types: bool,
    time_limits: TimeLimits,
    /// The windows of relations that have their own, by the position of the relation.
    windows: BTreeMap<usize, Option<u64>>,
    /// For each relation, whether its rule picks self loops for fanout 0, too.
    keep_self_loops: Vec<bool>,
}

impl HeteroNeighborSampler {
    /// Creates a sampler. `fanouts[layer][relation]` is the number of edges to pick, input layer first; the rules, the edge
    /// weights and whether blocks have edge types are those of `config`, whose own fanouts are ignored.
    ///
    /// # Errors
    /// Returns [`FanoutsError::RelationFanouts`] unless each layer has one fanout per relation,
    /// [`RelationWithoutTimes`](crate::TimesError::RelationWithoutTimes) for a relation without times whose own rule or window reads them, and the errors of
    /// [`SamplerConfig::relation_configs`].
    pub fn new(graph: &Relations, fanouts: Vec<Vec<Fanout>>, config: SamplerConfig) -> Result<Self> {
        config.check_relation_times(|name| {
            let edges = &graph.relation(graph.require(name)?).graph;
            Ok(edges.edge_times().is_some() || edges.columns().get(EdgeColumns::TIMES).is_some())
        })?;
        let are_weighted: Vec<bool> =
            graph.iter().map(|relation| relation.graph.weights().is_some()).collect();
        let of_relations = config.relation_configs(graph.schema(), &are_weighted)?;
        let relations = graph
            .iter()
            .zip(of_relations)
            .map(|(relation, config): (&Relation, SamplerConfig)| {
                let sampler = NeighborSampler::with_config(Arc::clone(&relation.graph), config)?;
                let first = graph.types().range(relation.dst_type).start;
                Ok(sampler.with_rows_from(first, graph.n_nodes()))
            })
            .collect::<Result<Vec<_>>>()?;
        let sampler = Self::of_samplers(graph.schema().clone(), Arc::new(relations), fanouts, &config)?;
        Ok(sampler.with_weighted(are_weighted))
    }

    /// Creates a sampler from samplers of the relations, for example of those whose edges other processes hold. Their
    /// configurations must be those of [`SamplerConfig::relation_configs`]. The sampler of a relation is not called in layers where
    /// its fanout is 0, unless the rule keeps self loops.
    ///
    /// # Errors
    /// Returns [`FanoutsError::RelationFanouts`] unless each layer has one fanout per relation, and
    /// [`kiln_graph::SchemaError::NoSuchRelation`] within [`Error::Graph`] if a rule or a window names another relation.
    pub fn of_samplers(
        schema: GraphSchema,
        relations: Arc<dyn RelationSampler>,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
    ) -> Result<Self> {
        let n_relations = schema.relations().len();
        if let Some(layer) = fanouts.iter().position(|of_layer| of_layer.len() != n_relations) {
            let got = fanouts[layer].len();
            let expected = n_relations;
            return Err(FanoutsError::RelationFanouts { layer, got, expected }.into());
        }
        let mut by_dst_type = vec![Vec::new(); schema.types().n_types()];
        for (position, relation) in schema.relations().iter().enumerate() {
            by_dst_type[relation.dst_type].push(position);
        }
        let mut windows = BTreeMap::new();
        for (name, window) in &config.relation_windows {
            windows.insert(schema.require(name)?, *window);
        }
        let mut keep_self_loops = vec![config.rule.keeps_self_loops(); n_relations];
        for (name, rule) in &config.relation_rules {
            keep_self_loops[schema.require(name)?] = rule.keeps_self_loops();
        }
        Ok(Self {
            leaves_out: vec![true; n_relations],
            schema,
            relations,
            by_dst_type,
            largest: fanouts.iter().map(|of_layer| largest(of_layer)).collect(),
            fanouts,
            weights: config.weights,
            are_weighted: vec![true; n_relations],
            edge_types: config.edge_types,
            time_limits: config.time_limits,
            windows,
            keep_self_loops,
        })
    }

    /// Limits excluded edges to some relations, by their positions: the edges of other relations between the same nodes are
    /// sampled (DGL's `exclude="reverse_types"` for a relation and its reverse). By default, those of all relations are left
    /// out.
    #[must_use]
    pub fn excluding_from(mut self, relations: &[usize]) -> Self {
        self.leaves_out = (0..self.leaves_out.len()).map(|relation| relations.contains(&relation)).collect();
        self
    }

    /// Sets which relations have weights, by their positions; by default, all have. With [`EdgeWeights::Stored`], the weight of
    /// the edges of other relations is 1.
    #[must_use]
    pub fn with_weighted(self, are_weighted: Vec<bool>) -> Self {
        Self { are_weighted, ..self }
    }

    fn types(&self) -> &NodeTypes {
        self.schema.types()
    }

    /// Returns true if no edge is picked for this fanout, so the sampler of a relation is not called.
    fn picks_none(&self, relation: usize, fanout: Fanout) -> bool {
        fanout == Fanout::UpTo(0) && !self.keep_self_loops[relation]
    }

    /// Returns the fanout of each relation in each layer, input layer first.
    pub fn relation_fanouts(&self) -> &[Vec<Fanout>] {
        &self.fanouts
    }

    /// Returns the request for one relation.
    fn request(&self, request: &HopRequest, relation: usize, fanout: Fanout) -> HopRequest {
        let key = relation_key(request.key, relation);
        let excluded = request.excluded.clone().filter(|_| self.leaves_out[relation]);
        let weights = if self.are_weighted[relation] { request.weights } else { EdgeWeights::None };
        let window = self.windows.get(&relation).copied().unwrap_or(request.time_limits.window);
        let time_limits = TimeLimits { window, ..request.time_limits };
        HopRequest { key, fanout, weights, edge_types: false, excluded, time_limits, ..*request }
    }

    /// Samples the only relation of a graph with one type of nodes, without copying its edges.
    fn sample_only(
        &self,
        request: &HopRequest,
        fanout: Fanout,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        let edge_types = out.edge_types.take();
        let of_relations = &mut scratch.hetero.of_relations;
        of_relations.resize_with(of_relations.len().max(1), RelationScratch::default);
        let hop = RelationHop { relation: 0, request: self.request(request, 0, fanout), dsts };
        std::mem::swap(out, &mut of_relations[0].frontier);
        self.relations.sample_relations(&[hop], of_relations)?;
        std::mem::swap(out, &mut of_relations[0].frontier);
        out.check(request.layer, dsts.len())?;
        out.edge_types = request.edge_types.then(|| {
            let mut edge_types = emptied(edge_types);
            edge_types.resize(out.n_edges(), 0);
            edge_types
        });
        Ok(())
    }

    /// Sorts the destinations by type.
    fn sort_by_type(&self, dsts: Dsts<'_>, hetero: &mut HeteroScratch) -> Result<()> {
        hetero.dst_types.clear();
        hetero.by_type.resize_with(self.types().n_types(), DstsOfType::default);
        hetero.by_type.iter_mut().for_each(DstsOfType::clear);
        for (position, &node) in dsts.nodes().iter().enumerate() {
            let n_nodes = self.types().n_nodes();
            let out_of_range = Error::SeedOutOfRange { node, position, n_nodes };
            let dst_type = self.types().type_of(node).ok_or(out_of_range)?;
            hetero.dst_types.push(dst_type);
            let of_type = &mut hetero.by_type[dst_type];
            of_type.nodes.push(node);
            of_type.times.extend(dsts.times().map(|times| times.index()[position]));
        }
        Ok(())
    }

    /// Checks that the sources of a relation's edges are nodes of its type, because a damaged file or another process may have
    /// others.
    fn check_sources(&self, relation: usize, srcs: &[NodeId]) -> Result<()> {
        let of_relation = &self.schema.relations()[relation];
        let nodes = self.types().range(of_relation.src_type);
        match srcs.iter().find(|src| !nodes.contains(&src.0)) {
            None => Ok(()),
            Some(&node) => Err(Error::DamagedGraph(DamagedGraphError::SourceOfOtherType {
                relation: of_relation.name.clone(),
                node,
                nodes,
            })),
        }
    }

    /// Joins the edges of all relations, destination by destination.
    fn join(&self, request: &HopRequest, hetero: &mut HeteroScratch, out: &mut Frontier) -> Result<()> {
        out.indptr.clear();
        out.indptr.push(0);
        out.srcs.clear();
        out.edge_ids.clear();
        let mut weights = (request.weights != EdgeWeights::None).then(|| emptied(out.weights.take()));
        let mut edge_types = request.edge_types.then(|| emptied(out.edge_types.take()));
        hetero.n_joined.clear();
        hetero.n_joined.resize(self.types().n_types(), 0);
        for &dst_type in &hetero.dst_types {
            let row = hetero.n_joined[dst_type];
            hetero.n_joined[dst_type] += 1;
            for &relation in &self.by_dst_type[dst_type] {
                let found = &hetero.of_relations[relation].frontier;
                let edges = found.indptr[row] as usize..found.indptr[row + 1] as usize;
                let first_edge = self.schema.first_edge(relation).0;
                out.srcs.extend_from_slice(&found.srcs[edges.clone()]);
                out.edge_ids.extend(
                    found.edge_ids[edges.clone()].iter().map(|id| EdgeId(first_edge.wrapping_add(id.0))),
                );
                if let Some(weights) = &mut weights {
                    match &found.weights {
                        Some(found) if self.are_weighted[relation] => {
                            weights.extend_from_slice(&found[edges.clone()]);
                        }
                        _ => weights.resize(weights.len() + edges.len(), 1.0),
                    }
                }
                if let Some(edge_types) = &mut edge_types {
                    edge_types.resize(edge_types.len() + edges.len(), relation as u8);
                }
            }
            let layer = request.layer;
            let n_edges = out.srcs.len() as u64;
            let end = u32::try_from(n_edges).map_err(|_| Error::BlockTooLarge { layer, n_edges })?;
            out.indptr.push(end);
        }
        (out.weights, out.edge_types) = (weights, edge_types);
        Ok(())
    }
}

impl fmt::Debug for HeteroNeighborSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schema, fanouts, weights, edge_types, .. } = self;
        f.debug_struct("HeteroNeighborSampler")
            .field("schema", schema)
            .field("fanouts", fanouts)
            .field("weights", weights)
            .field("edge_types", edge_types)
            .finish_non_exhaustive()
    }
}

impl FrontierSampler for HeteroNeighborSampler {
    /// Returns the largest fanout of each layer.
    fn fanouts(&self) -> &[Fanout] {
        &self.largest
    }

    fn weights(&self) -> EdgeWeights {
        self.weights
    }

    fn has_edge_types(&self) -> bool {
        self.edge_types
    }

    fn n_nodes(&self) -> usize {
        self.types().n_nodes()
    }

    fn time_limits(&self) -> TimeLimits {
        self.time_limits
    }

    fn takes_times(&self) -> bool {
        self.relations.take_times()
    }

    fn has_edge_times(&self) -> bool {
        self.relations.have_edge_times()
    }

    /// Fills `out` with the edges of all relations. The layer of the request selects their fanouts, which its own fanout
    /// limits.
    ///
    /// # Errors
    /// Returns [`FanoutsError::LayerOutOfRange`] for a layer without fanouts, [`FanoutsError::LargerFanout`] if the
    /// fanout of the request is larger than all fanouts of the layer, [`DamagedGraphError::SourceOfOtherType`] for a
    /// damaged relation, and the errors of the relations' samplers.
    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        let layer = request.layer;
        let n_layers = self.fanouts.len();
        let fanouts = self
            .fanouts
            .get(layer)
            .ok_or(Error::Fanouts(FanoutsError::LayerOutOfRange { layer, n_layers }))?;
        if smaller(request.fanout, self.largest[layer]) != request.fanout {
            return Err(Error::Fanouts(FanoutsError::LargerFanout { layer }));
        }
        if let ([fanout], 1) = (&fanouts[..], self.types().n_types()) {
            let fanout = smaller(*fanout, request.fanout);
            if !self.picks_none(0, fanout) {
                return self.sample_only(request, fanout, dsts, scratch, out);
            }
        }
        let mut hetero = std::mem::take(&mut scratch.hetero);
        self.sort_by_type(dsts, &mut hetero)?;
        hetero.of_relations.resize_with(fanouts.len(), RelationScratch::default);
        let mut hops = Vec::with_capacity(fanouts.len());
        for (of_type, sorted) in self.by_dst_type.iter().zip(&hetero.by_type) {
            let dsts = match dsts.times() {
                Some(times) => Dsts::with_times(&sorted.nodes, times.distinct(), &sorted.times),
                None => Dsts::from(&sorted.nodes),
            };
            for &relation in of_type {
                let fanout = smaller(fanouts[relation], request.fanout);
                if self.picks_none(relation, fanout) {
                    hetero.of_relations[relation].frontier.clear_edges(dsts.len());
                    continue;
                }
                hops.push(RelationHop { relation, request: self.request(request, relation, fanout), dsts });
            }
        }
        self.relations.sample_relations(&hops, &mut hetero.of_relations)?;
        for RelationHop { relation, dsts, .. } in hops {
            let frontier = &hetero.of_relations[relation].frontier;
            frontier.check(request.layer, dsts.len())?;
            self.check_sources(relation, &frontier.srcs)?;
        }
        self.join(request, &mut hetero, out)?;
        scratch.hetero = hetero;
        Ok(())
    }
}

/// Returns the key of a relation's draws in a hop.
fn relation_key(key: RngKey, relation: usize) -> RngKey {
    match relation {
        0 => key,
        _ => key.fold_in(KeyDomain::Relation, relation as u64),
    }
}

fn largest(fanouts: &[Fanout]) -> Fanout {
    fanouts.iter().copied().reduce(|a, b| if smaller(a, b) == a { b } else { a }).unwrap_or(Fanout::UpTo(0))
}

fn smaller(a: Fanout, b: Fanout) -> Fanout {
    match (a, b) {
        (Fanout::UpTo(a), Fanout::UpTo(b)) => Fanout::UpTo(a.min(b)),
        (Fanout::All, other) | (other, Fanout::All) => other,
    }
}

fn emptied<T>(values: Option<Vec<T>>) -> Vec<T> {
    let mut values = values.unwrap_or_default();
    values.clear();
    values
}

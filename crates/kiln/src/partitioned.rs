//! Partitioned graphs, which ranks or servers hold: the only file of the crate that depends on gRPC. A loader of such a
//! graph is created after its rank has joined, so [`PartitionedGraph`] and not the loader shares the copies on devices.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{DatasetTargets, LinkTargets, Split, TimeKind, TimeSplit};
use kiln_feature::{EdgeFeatureStore, FeatureColumn, FeatureStore, Preparation, RelationRows};
use kiln_graph::{GraphSchema, SharedArray};
use kiln_kernels::{DeviceSampler, Devices, GraphMode};
use kiln_partition::Part;
use kiln_remote::{
    DistEdgeFeatureStore, DistFeatureStore, DistGraph, DistNeighborSampler, JoinedPartition, Partitions,
    PartitionsConfig, PartitionsInfo,
};
use kiln_sample::{Fanout, FrontierSampler, SamplerConfig};
use kiln_train::{
    DataHash, ModelError, ModelNodesError, NodeKeys, PredictionData, PreparationError, SavedModel,
};

use crate::data_hash::hash_with_links;
use crate::device_copy::GraphCopies;
use crate::links::MessageGraph;
use crate::source::{
    GraphStep, Owner, Sampling, Source, WholeGraph, has_self_loops, no_step, no_times, seed_times,
};
use crate::{
    DataDims, Error, GraphSource, ItemTimesError, PartitionsError, RankConfig, RankCount, RankHandle, Result,
};

/// A partitioned graph. In worker mode, the ranks hold the partitions and serve them to each other; in server mode,
/// dedicated servers hold them. A rank joins it ([`PartitionedGraph::join`]), and passes the joined graph to a
/// [`NeighborLoader`](crate::NeighborLoader).
#[derive(Clone)]
pub struct PartitionedGraph {
    partitions: Arc<Partitions>,
    has_static_cache: bool,
    cache_bytes: usize,
    copies: GraphCopies,
}

impl PartitionedGraph {
    /// Opens a folder of partitions; see [`Partitions::open`].
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example() -> Result<()> {
    /// use kiln::remote::PartitionsConfig;
    /// // The folder of `kiln data partition`. Each rank holds one of the partitions.
    /// let graph = PartitionedGraph::open("parts", PartitionsConfig::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Remote`] if the folder cannot be opened.
    pub fn open(folder: impl AsRef<Path>, config: PartitionsConfig) -> Result<Self> {
        Ok(Self::of(Partitions::open(folder, config)?))
    }

    /// Connects to the servers of all partitions; see [`Partitions::connect`].
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(token: kiln::comm::rpc::Token) -> Result<()> {
    /// use kiln::remote::PartitionsConfig;
    /// // Two servers, each started by `kiln serve`, hold the partitions.
    /// let servers = ["machine1:29600", "machine2:29600"].map(String::from);
    /// let graph = PartitionedGraph::connect(servers, PartitionsConfig { token: Some(token), ..Default::default() })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Remote`] if a server cannot be reached or rejects the connection.
    pub fn connect(servers: impl Into<Vec<String>>, config: PartitionsConfig) -> Result<Self> {
        Ok(Self::of(Partitions::connect(servers, config)?))
    }

    fn of(partitions: Partitions) -> Self {
        let copies = GraphCopies::default();
        Self { partitions: Arc::new(partitions), has_static_cache: true, cache_bytes: 0, copies }
    }

    /// Enables or disables the static feature cache: the remote rows that are stored with the local partition. Enabled
    /// by default.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(graph: PartitionedGraph) -> Result<()> {
    /// // All remote rows are fetched, to measure what the cache saves.
    /// let graph = graph.static_cache(false);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn static_cache(self, is_used: bool) -> Self {
        Self { has_static_cache: is_used, ..self }
    }

    /// Sets the size in bytes of each rank's dynamic cache of remote feature rows (SIEVE eviction); 0 by default.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(graph: PartitionedGraph) -> Result<()> {
    /// // Each rank keeps up to 1 GiB of remote rows.
    /// let graph = graph.cache_size(1 << 30);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cache_size(self, n_bytes: usize) -> Self {
        Self { cache_bytes: n_bytes, ..self }
    }

    /// Returns the metadata of the graph, which is available before ranks join it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(graph: PartitionedGraph) -> Result<()> {
    /// let info = graph.info();
    /// println!("{}: {} partitions, {} nodes", info.name, info.n_parts, info.schema.n_nodes());
    /// # Ok(())
    /// # }
    /// ```
    pub fn info(&self) -> &PartitionsInfo {
        self.partitions.info()
    }

    /// Checks that `n_ranks` ranks can share the partitions equally; see [`Partitions::check_ranks`].
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(graph: PartitionedGraph) -> Result<()> {
    /// // With two partitions, three ranks are an error.
    /// graph.check_ranks(4)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Remote`] if they cannot.
    pub fn check_ranks(&self, n_ranks: usize) -> Result<()> {
        Ok(self.partitions.check_ranks(n_ranks)?)
    }

    /// Returns the number of ranks that share the partitions equally, at most `most`; see [`Partitions::ranks_within`].
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(graph: PartitionedGraph) -> Result<()> {
    /// // Two partitions on a machine with three GPUs: two ranks.
    /// let n_ranks = graph.ranks_within(device_count("cuda")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ranks_within(&self, most: usize) -> usize {
        self.partitions.ranks_within(most)
    }

    /// Configures the ranks that train on this graph, as [`RankCount::config`] does, except for [`RankCount::Auto`] in
    /// worker mode: the number of threads is the largest multiple of the number of partitions that is at most the
    /// number of devices. With fewer devices than partitions, the ranks cannot share the partitions, which is an error
    /// when they join.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(graph: PartitionedGraph) -> Result<()> {
    /// let devices: Devices = "cuda".parse()?;
    /// launch(graph.rank_config(RankCount::Auto, &devices), |rank| {
    ///     println!("rank {} computes on {}", rank.index(), devices.of_rank(rank.local_index()).name);
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn rank_config(&self, ranks: RankCount, devices: &Devices) -> RankConfig {
        let ranks = match ranks {
            RankCount::Auto => RankCount::Exactly(self.ranks_within(devices.len())),
            RankCount::Exactly(_) => ranks,
        };
        ranks.config(devices)
    }

    /// Joins a rank to the graph. In worker mode the rank serves its local partition until the body of
    /// [`launch`](crate::launch) has returned on all ranks. The dynamic cache is divided among the node types by the size of
    /// their features. Fetches the keys of the nodes without features ([`DistGraph::node_keys`]), and waits until all ranks have
    /// them. Collective: every rank must call it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(graph: PartitionedGraph) -> Result<()> {
    /// launch(RankConfig::from_env_or_threads(2), |rank| {
    ///     let loader = NeighborLoader::new(&graph.join(&rank)?, [10, 10]).batch_size(512);
    ///     let mut trainer = Trainer::new(SageConfig::for_data(&graph).layers(2), AdamConfig::new(0.01)).rank(&rank);
    ///     trainer.fit(&loader, FitConfig::epochs(10)).map(drop)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Partitions::join`], [`DistGraph::node_keys`] and of a rank that is lost.
    pub fn join(&self, rank: &RankHandle) -> Result<JoinedGraph> {
        let address = rank.local_ip().map_err(|error| error.to_string());
        let joined = self.partitions.join(rank.communicator("parts")?, address)?;
        let graph = joined.graph().clone();
        let features = self.features_of(&graph)?;
        let mut keys = Vec::with_capacity(features.len());
        for (node_type, features) in features.iter().enumerate() {
            let of_type = if features.is_none() { graph.node_keys(node_type)? } else { None };
            keys.push(of_type.map(NodeKeys::from));
        }
        // A rank that fails stops its server, and the requests of ranks that still fetch keys from it would wait for a restart.
        if keys.iter().any(Option::is_some) {
            rank.communicator("keys")?.barrier(rank.process.deadline)?;
        }
        let owner = serve_until_end(rank, joined);
        let copies = self.copies.clone();
        Ok(JoinedGraph { graph, features, keys: keys.into(), owner, copies, before: None })
    }

    /// Returns the features of each node type, with their share of the dynamic cache.
    fn features_of(&self, graph: &Arc<DistGraph>) -> Result<Vec<Option<Arc<DistFeatureStore>>>> {
        let mut stores = Vec::new();
        for (node_type, dim) in graph.dims().into_iter().enumerate() {
            stores.push(dim.map(|_| self.features_of_type(graph, node_type)).transpose()?);
        }
        let n_bytes = |store: &DistFeatureStore| store.n_rows() as f64 * store.row_bytes() as f64;
        let all_bytes: f64 = stores.iter().flatten().map(n_bytes).sum();
        let with_cache = |store: DistFeatureStore| {
            let share = self.cache_bytes as f64 * (n_bytes(&store) / all_bytes.max(1.0));
            Arc::new(store.with_dynamic_cache(share as usize))
        };
        Ok(stores.into_iter().map(|store| store.map(with_cache)).collect())
    }

    /// Returns the features of a node type, with the static cache unless it is disabled.
    fn features_of_type(&self, graph: &Arc<DistGraph>, node_type: usize) -> Result<DistFeatureStore> {
        Ok(match self.has_static_cache {
            true => DistFeatureStore::of_type(graph.clone(), node_type)?,
            false => DistFeatureStore::without_cache(graph.clone(), node_type)?,
        })
    }
}

/// Keeps the local partition served until the body of the launch has returned on all ranks. Returns the owners of nodes; `None`
/// in server mode, where no rank owns nodes.
fn serve_until_end(rank: &RankHandle, joined: JoinedPartition) -> Option<Arc<Owner>> {
    let owner = joined.owner();
    let deadline = rank.process.deadline;
    rank.at_end(move || Ok(joined.end(deadline)?));
    owner.map(|owner| Arc::new(owner) as Arc<Owner>)
}

impl fmt::Debug for PartitionedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedGraph").field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

impl fmt::Display for PartitionedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.partitions.fmt(f)
    }
}

impl DataDims for PartitionedGraph {
    fn dims(&self) -> (usize, usize) {
        let PartitionsInfo { is_heterogeneous, dims, targets, .. } = self.info();
        let dim = if *is_heterogeneous { 0 } else { dims[0].unwrap_or(0) };
        (dim, targets.as_ref().map_or(0, |targets| targets.n_outputs))
    }

    fn n_edge_types(&self) -> Option<usize> {
        self.info().n_edge_types
    }

    fn d_edge(&self) -> Option<usize> {
        self.info().edge_dim.filter(|_| !self.info().is_heterogeneous)
    }

    fn edge_widths(&self) -> Option<Vec<Option<usize>>> {
        self.info().is_heterogeneous.then(|| self.info().edge_widths.clone())
    }
}

/// A rank's access to a partitioned graph, with one type of nodes or several.
#[derive(Clone)]
pub struct JoinedGraph {
    /// The whole graph; edges that this process does not hold are requested from the processes that hold them.
    pub graph: Arc<DistGraph>,
    /// The features of all nodes of each type, `[n_types]`; `None` for a type without features.
    pub features: Vec<Option<Arc<DistFeatureStore>>>,
    /// The keys of the nodes of each type, `[n_types]`; `None` for a type with features, or without keys in the partitions.
    pub keys: Arc<[Option<NodeKeys>]>,
    owner: Option<Arc<Owner>>,
    copies: GraphCopies,
    /// The time from which on edges are left out of the messages.
    before: Option<i64>,
}

impl JoinedGraph {
    /// Returns the training, validation and test nodes of the graph.
    pub fn split(&self) -> Split {
        self.graph.split()
    }

    /// Returns the targets and the split; `None` for a heterogeneous graph that was partitioned without targets.
    pub fn targets(&self) -> Option<&DatasetTargets> {
        self.graph.targets()
    }

    /// Returns the memory limit of the caches of features ([`DistFeatureStore::memory_bytes`]) and the size of the keys of nodes, in
    /// bytes.
    pub fn cache_memory_bytes(&self) -> usize {
        let caches: usize = self.features.iter().flatten().map(|store| store.memory_bytes()).sum();
        caches + self.keys.iter().flatten().map(|keys| 16 * keys.len()).sum::<usize>()
    }

    /// Returns the sampler of a relation of the local partition on a device. Ranks with the same device share the copy.
    fn local_sampler(
        &self,
        part: &Part,
        relation: usize,
        config: &SamplerConfig,
        mode: GraphMode,
        device: &Device,
    ) -> Result<DeviceSampler> {
        let number = part.index * part.relations.len() + relation;
        let copy = self.copies.get_or_make(device, mode, (number, self.before), || {
            Ok(match self.before {
                Some(time) => part.graph_by_node_before(relation, time)?,
                None => part.graph_by_node(relation)?,
            })
        })?;
        Ok(DeviceSampler::with_config(copy, config.clone())?)
    }

    /// Adds the columns of the edges that a model reads, the known nodes and the times of items to the data of its predictions.
    fn with_edge_columns(&self, mut data: PredictionData, model: &SavedModel) -> Result<PredictionData> {
        data = data.known_nodes(self.before.and_then(|time| self.nodes_before(time)));
        data = data.seed_times(seed_times(self.graph.times(), self.schema(), self.before, model));
        for name in model.edge_columns() {
            data = data.edge_column(name, self.edge_column(name, model.relation_rows(name))?);
        }
        Ok(data)
    }

    /// Returns a sampler of predictions with these fanouts of each relation in each layer.
    fn sampler_of_predictions(
        &self,
        fanouts: Vec<Vec<Fanout>>,
        config: SamplerConfig,
    ) -> kiln_train::Result<Arc<dyn FrontierSampler>> {
        let graph = &self.graph;
        if self.is_heterogeneous() {
            let sampler = graph.hetero_sampler_before(fanouts, &config, self.before);
            return Ok(Arc::new(sampler.map_err(kiln_sample::Error::from)?));
        }
        let config = SamplerConfig { fanouts: fanouts.concat(), ..config };
        let sampler = DistNeighborSampler::with_config(graph.clone(), config);
        Ok(Arc::new(sampler.map_err(kiln_sample::Error::from)?.cut_at(self.before)))
    }
}

impl Source for JoinedGraph {
    fn name(&self) -> &str {
        self.graph.name()
    }

    fn schema(&self) -> &GraphSchema {
        self.graph.schema()
    }

    fn is_heterogeneous(&self) -> bool {
        self.graph.is_heterogeneous()
    }

    fn targets(&self) -> Result<DatasetTargets> {
        self.targets().cloned().ok_or_else(|| Error::NoLabelsInPartitions { name: self.name().to_owned() })
    }

    fn features(&self) -> Vec<Option<Arc<dyn FeatureStore>>> {
        let stores = self.features.iter();
        stores.map(|store| store.clone().map(|store| store as Arc<dyn FeatureStore>)).collect()
    }

    fn feature_columns(&self) -> Vec<Vec<FeatureColumn>> {
        self.graph.feature_columns().to_vec()
    }

    fn edge_type_names(&self) -> Vec<String> {
        self.graph.edge_type_names().to_vec()
    }

    fn edge_columns(&self) -> Vec<Vec<String>> {
        self.graph.edge_columns().to_vec()
    }

    fn edge_column(&self, name: &str, rows: RelationRows) -> Result<Arc<dyn EdgeFeatureStore>> {
        Ok(Arc::new(DistEdgeFeatureStore::with_rows(self.graph.clone(), name, rows)?))
    }

    fn n_edge_types(&self) -> Result<Option<usize>> {
        match self.graph.n_edge_types() {
            None if self.graph.has_edge_types() => Err(PartitionsError::UnrecordedEdgeTypes.into()),
            n_edge_types => Ok(n_edge_types),
        }
    }

    fn node_keys(&self) -> Arc<[Option<NodeKeys>]> {
        self.keys.clone()
    }

    fn preparation(&self) -> Option<Preparation> {
        self.graph.preparation().cloned()
    }

    /// The computation does not keep a partition or its server alive, because it gets the hash alone.
    fn data_hash(&self, links: Option<LinkTargets>) -> DataHash {
        let hash = self.graph.hash().to_owned();
        match links {
            None => hash.into(),
            links => hash_with_links(move |_| Ok(hash.clone()), links),
        }
    }

    fn data_sample(&self) -> Result<String> {
        Ok(self.graph.hash().to_owned())
    }

    fn prediction_data(&self, model: &SavedModel, _: Option<&str>) -> Result<PredictionData> {
        let is_training_data = model.is_of_data(self.graph.hash());
        // Items that are sampled at their own times leave out the later edges.
        let before = self.before.filter(|_| !model.info().inputs.has_item_times());
        let source = Self { before, ..self.clone() };
        let sampler = move |fanouts, config| source.sampler_of_predictions(fanouts, config);
        if self.is_heterogeneous() {
            let keys = match is_training_data {
                true => model.keys_of_training_data(&self.keys),
                false => self.keys.to_vec(),
            };
            let data = PredictionData::sampled_heterogeneous(self.schema().clone(), self.features(), sampler)
                .feature_columns(self.feature_columns())
                .weighted_relations(Source::weighted_relations(self));
            return self.with_edge_columns(data.keys(keys), model);
        }
        let done = match (&model.info().inputs.preparation, self.graph.preparation()) {
            (Some(_), Some(done)) => done.clone(),
            (Some(_), None) => {
                return Err(train_error(ModelError::Preparation(PreparationError::UnrecordedPreparation)));
            }
            (None, done) if is_training_data || done.is_some_and(|done| !done.steps.is_empty()) => {
                Preparation::default()
            }
            (None, _) => {
                return Err(train_error(ModelError::Preparation(PreparationError::UnknownPreparation)));
            }
        };
        model.check_edge_types(|| self.graph.n_edge_types())?;
        let features =
            self.features().remove(0).expect("the nodes of a graph of one type should have features");
        let data = PredictionData::sampled(self.graph.n_nodes(), features, sampler)
            .feature_columns(self.feature_columns())
            .edge_type_names(self.edge_type_names())
            .weighted_relations(Source::weighted_relations(self))
            .prepared(done);
        self.with_edge_columns(data, model)
    }

    fn check_predicted(&self, model: &SavedModel) -> Result<()> {
        if !self.is_heterogeneous() || model.is_of_data(self.graph.hash()) {
            return Ok(());
        }
        // The nodes of other data may be in another order.
        let keys = model.keys_of_training_data(&self.keys);
        let is_by_id = |(keys, dim): (&Option<NodeKeys>, Option<usize>)| keys.is_none() && dim.is_none();
        match keys.iter().zip(self.graph.dims()).position(is_by_id) {
            Some(position) => {
                let node_type = self.graph.schema().types().names()[position].clone();
                Err(train_error(ModelError::Nodes(ModelNodesError::RowsWithoutNames { node_type })))
            }
            None => Ok(()),
        }
    }

    fn whole(&self) -> Option<WholeGraph<'_>> {
        None
    }

    fn with_step(&self, step: GraphStep) -> Result<Arc<dyn Source>> {
        match step {
            _ if self.is_heterogeneous() => Err(no_step(step)),
            GraphStep::SelfLoops if !has_self_loops(self) => Err(PartitionsError::NoSelfLoops.into()),
            GraphStep::SelfLoops | GraphStep::None => Ok(Arc::new(self.clone())),
            GraphStep::GcnNorm => Err(Error::NeedsWholeGraph { what: "gcn_norm" }),
        }
    }

    fn with_messages(&self, _: &MessageGraph) -> Result<Arc<dyn Source>> {
        Err(Error::NeedsWholeGraph { what: "a split of links" })
    }

    fn time_split(&self) -> Option<TimeSplit> {
        self.graph.times().split
    }

    fn time_kind(&self) -> TimeKind {
        self.graph.times().kind
    }

    fn before(&self, time: i64) -> Result<Arc<dyn Source>> {
        match self.graph.has_times() {
            // What was not known at an earlier cut stays unknown.
            true => {
                let before = self.before.map_or(time, |earlier| time.min(earlier));
                Ok(Arc::new(Self { before: Some(before), ..self.clone() }))
            }
            false => Err(no_times(self.name())),
        }
    }

    fn order_by_time(&self) -> Result<Arc<dyn Source>> {
        // The owners order their edges when they are first sampled at the times of items.
        Ok(self.before.is_none().then(|| Arc::new(self.clone())).ok_or(ItemTimesError::CUT)?)
    }

    fn node_times(&self, node_type: usize) -> Option<SharedArray<i64>> {
        self.graph.times().node_times(node_type).cloned()
    }

    fn nodes_before(&self, time: i64) -> Option<Arc<[bool]>> {
        self.graph.times().nodes_before(self.schema().types(), time)
    }

    fn sampler(&self, sampling: &Sampling) -> Result<Arc<dyn FrontierSampler>> {
        let Sampling { fanouts, config, .. } = sampling;
        if !self.is_heterogeneous() {
            let sampler = DistNeighborSampler::with_config(self.graph.clone(), config.clone())?;
            return Ok(Arc::new(sampler.cut_at(self.before)));
        }
        let sampler = self.graph.hetero_sampler_before(fanouts.clone(), config, self.before)?;
        Ok(Arc::new(sampling.excluding(sampler)))
    }

    fn device_sampler(
        &self,
        sampling: &Sampling,
        _: &GraphCopies,
        mode: GraphMode,
        device: &Device,
    ) -> Result<Option<Arc<dyn FrontierSampler>>> {
        let Sampling { fanouts, config, .. } = sampling;
        let what = "sampling on a device";
        let part = self.graph.local_part().ok_or(PartitionsError::NotLocal { what })?;
        if !self.is_heterogeneous() {
            let own = self.local_sampler(part, 0, config, mode, device)?;
            let sampler = DistNeighborSampler::with_config(self.graph.clone(), config.clone())?;
            return Ok(Some(Arc::new(sampler.cut_at(self.before).with_local_sampler(own)?)));
        }
        let sampler = self.graph.hetero_sampler_with_local_before(
            fanouts.clone(),
            config,
            self.before,
            |relation, of_relation| -> Result<_> {
                self.local_sampler(part, relation, of_relation, mode, device)
            },
        )?;
        Ok(Some(Arc::new(sampling.excluding(sampler))))
    }

    fn owner(&self) -> Option<Arc<Owner>> {
        self.owner.clone()
    }
}

fn train_error(error: ModelError) -> Error {
    kiln_train::Error::from(error).into()
}

impl From<JoinedGraph> for GraphSource {
    fn from(joined: JoinedGraph) -> Self {
        Self::new(joined)
    }
}

impl From<&JoinedGraph> for GraphSource {
    fn from(joined: &JoinedGraph) -> Self {
        Self::new(joined.clone())
    }
}

impl fmt::Debug for JoinedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedGraph").field("graph", &self.graph.name()).finish_non_exhaustive()
    }
}

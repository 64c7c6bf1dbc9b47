use std::fmt;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{Split, TypedTargets};
use kiln_feature::{EdgeFeatureStore, FeatureStore};
use kiln_graph::{ItemId, NodeId};
use kiln_kernels::{DeviceSampler, Devices, GraphMode};
use kiln_loader::ItemSampler;
use kiln_partition::AnyPart;
use kiln_remote::{
    DistEdgeFeatureStore, DistFeatureStore, DistGraph, DistNeighborSampler, JoinedPartition, Partitions,
    PartitionsConfig, PartitionsInfo,
};
use kiln_sample::{Fanout, FrontierSampler, SamplerConfig, TypedSampler};
use kiln_train::NodeKeys;

use crate::device_copy::GraphCopies;
use crate::{Error, RankConfig, RankCount, RankHandle, Result};

/// A partitioned graph. In worker mode, the ranks hold the partitions and serve them to each other; in server mode,
/// dedicated servers hold them. [`NeighborLoader::partitioned`](crate::NeighborLoader::partitioned) joins a rank to it.
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
    /// # Errors
    /// Returns [`Error::Remote`] if the folder cannot be opened.
    pub fn open(folder: impl AsRef<Path>, config: PartitionsConfig) -> Result<Self> {
        Ok(Self::of(Partitions::open(folder, config)?))
    }

    /// Connects to the servers of all partitions; see [`Partitions::connect`].
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
    #[must_use]
    pub fn static_cache(self, is_used: bool) -> Self {
        Self { has_static_cache: is_used, ..self }
    }

    /// Sets the size in bytes of each rank's dynamic cache of remote feature rows (SIEVE eviction); 0 by default.
    #[must_use]
    pub fn cache_size(self, n_bytes: usize) -> Self {
        Self { cache_bytes: n_bytes, ..self }
    }

    /// Returns the metadata of the graph, which is available before ranks join it.
    pub fn info(&self) -> &PartitionsInfo {
        self.partitions.info()
    }

    /// Checks that `n_ranks` ranks can share the partitions equally; see [`Partitions::check_ranks`].
    ///
    /// # Errors
    /// Returns [`Error::Remote`] if they cannot.
    pub fn check_ranks(&self, n_ranks: usize) -> Result<()> {
        Ok(self.partitions.check_ranks(n_ranks)?)
    }

    /// Returns the number of ranks that share the partitions equally, at most `most`; see [`Partitions::ranks_within`].
    pub fn ranks_within(&self, most: usize) -> usize {
        self.partitions.ranks_within(most)
    }

    /// Configures the ranks that train on this graph, as [`RankCount::config`] does, except for [`RankCount::Auto`] in
    /// worker mode: the number of threads is the largest multiple of the number of partitions that is at most the
    /// number of devices. With fewer devices than partitions, the ranks cannot share the partitions, which is an error
    /// when they join.
    pub fn rank_config(&self, ranks: RankCount, devices: &Devices) -> RankConfig {
        let ranks = match ranks {
            RankCount::Auto => RankCount::Exactly(self.ranks_within(devices.len())),
            RankCount::Exactly(_) => ranks,
        };
        ranks.config(devices)
    }

    /// Joins a rank to the graph. In worker mode the rank serves its local partition until the body of
    /// [`launch`](crate::launch) has returned on all ranks. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::OtherPartitions`] for a heterogeneous graph, and the errors of [`Partitions::join`].
    pub fn join(&self, rank: &RankHandle) -> Result<JoinedGraph> {
        if self.info().heterogeneous.is_some() {
            return Err(Error::OtherPartitions {
                kind: "heterogeneous",
                instead: "TypedNeighborLoader::partitioned",
            });
        }
        let joined = self.join_rank(rank)?;
        let graph = joined.graph().clone();
        let features = self.features_of(&graph, 0)?.with_dynamic_cache(self.cache_bytes);
        let edge_features = match graph.edge_dim() {
            Some(_) => Some(Arc::new(DistEdgeFeatureStore::new(graph.clone())?) as Arc<dyn EdgeFeatureStore>),
            None => None,
        };
        let owners = serve_until_end(rank, joined);
        Ok(JoinedGraph {
            graph,
            features: Arc::new(features),
            edge_features,
            owners,
            copies: self.copies.clone(),
        })
    }

    /// Joins a rank to a heterogeneous graph, as [`PartitionedGraph::join`] does to a homogeneous one. The dynamic cache is
    /// divided among the node types by the size of their features. Fetches the keys of the nodes without features
    /// ([`DistGraph::node_keys`]), and waits until all ranks have them. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::OtherPartitions`] for a homogeneous graph, and the errors of [`Partitions::join`],
    /// [`DistGraph::node_keys`] and of a rank that is lost.
    pub fn join_typed(&self, rank: &RankHandle) -> Result<JoinedTypedGraph> {
        if self.info().heterogeneous.is_none() {
            return Err(Error::OtherPartitions {
                kind: "homogeneous",
                instead: "NeighborLoader::partitioned",
            });
        }
        let joined = self.join_rank(rank)?;
        let graph = joined.graph().clone();
        let mut features = Vec::new();
        for (node_type, dim) in graph.dims().into_iter().enumerate() {
            let store = dim.map(|_| self.features_of(&graph, node_type)).transpose()?;
            features.push(store);
        }
        let n_bytes = |store: &DistFeatureStore| store.n_rows() as f64 * store.row_bytes() as f64;
        let all_bytes: f64 = features.iter().flatten().map(n_bytes).sum();
        let with_cache = |store: DistFeatureStore| {
            let share = self.cache_bytes as f64 * n_bytes(&store) / all_bytes.max(1.0);
            Arc::new(store.with_dynamic_cache(share as usize))
        };
        let features: Vec<_> = features.into_iter().map(|store| store.map(with_cache)).collect();
        let mut keys = Vec::with_capacity(features.len());
        for (node_type, features) in features.iter().enumerate() {
            let of_type = if features.is_none() { graph.node_keys(node_type)? } else { None };
            keys.push(of_type.map(NodeKeys::from));
        }
        // A rank that fails stops its server, and the requests of ranks that still fetch keys from it would wait for a restart.
        if keys.iter().any(Option::is_some) {
            rank.communicator("keys")?.barrier(rank.process.deadline)?;
        }
        let owners = serve_until_end(rank, joined);
        Ok(JoinedTypedGraph { graph, features, keys: keys.into(), owners, copies: self.copies.clone() })
    }

    /// Returns the features of a node type, with the static cache unless it is disabled.
    fn features_of(&self, graph: &Arc<DistGraph>, node_type: usize) -> Result<DistFeatureStore> {
        Ok(match self.has_static_cache {
            true => DistFeatureStore::of_type(graph.clone(), node_type)?,
            false => DistFeatureStore::without_cache(graph.clone(), node_type)?,
        })
    }

    fn join_rank(&self, rank: &RankHandle) -> Result<JoinedPartition> {
        Ok(self.partitions.join(rank.communicator("parts")?, rank.process.local_ip.clone())?)
    }
}

/// Keeps the local partition served until the body of the launch has returned on all ranks. Returns the owners of nodes.
fn serve_until_end(rank: &RankHandle, joined: JoinedPartition) -> NodeOwners {
    let (owner, deadline) = (joined.owner(), rank.process.deadline);
    rank.at_end(move || Ok(joined.end(deadline)?));
    NodeOwners(owner.map(|owner| Arc::new(owner) as Arc<Owner>))
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

type Owner = dyn Fn(NodeId) -> usize + Send + Sync;

/// The function from a node to the rank that trains on it; `None` in server mode, where no rank owns nodes.
#[derive(Clone)]
pub(crate) struct NodeOwners(Option<Arc<Owner>>);

impl NodeOwners {
    /// In worker mode, gives each rank the items whose node it owns. In server mode, no rank owns nodes, and the ranks keep
    /// their equal shares.
    pub(crate) fn shard<I: ItemId>(
        &self,
        items: ItemSampler<I>,
        node_of: impl Fn(I) -> NodeId + Send + Sync + 'static,
    ) -> Result<ItemSampler<I>> {
        match &self.0 {
            Some(owner) => {
                let owner = Arc::clone(owner);
                Ok(items.shard_by_owner(move |item| owner(node_of(item))).map_err(kiln_train::Error::from)?)
            }
            None => Ok(items),
        }
    }
}

/// Returns the split of a partitioned graph.
fn split_of(graph: &DistGraph) -> Split {
    Split { train: graph.train().clone(), val: graph.val().clone(), test: graph.test().clone() }
}

/// A rank's access to a partitioned graph.
#[derive(Clone)]
pub struct JoinedGraph {
    /// The whole graph; edges that this process does not hold are requested from the processes that hold them.
    pub graph: Arc<DistGraph>,
    /// The features of all nodes of the graph.
    pub features: Arc<DistFeatureStore>,
    /// The features of all edges of the graph; `None` if edges have no features.
    pub edge_features: Option<Arc<dyn EdgeFeatureStore>>,
    pub(crate) owners: NodeOwners,
    copies: GraphCopies,
}

impl JoinedGraph {
    /// Returns the training, validation and test nodes of the graph.
    pub fn split(&self) -> Split {
        split_of(&self.graph)
    }

    /// Returns a sampler that samples the local partition on the host or on the device, as `mode` selects.
    pub(crate) fn sampler(
        &self,
        config: &SamplerConfig,
        mode: GraphMode,
        device: &Device,
    ) -> Result<Arc<dyn FrontierSampler>> {
        let sampler = DistNeighborSampler::with_config(self.graph.clone(), config.clone())?;
        if mode == GraphMode::Host {
            return Ok(Arc::new(sampler));
        }
        let part = self.graph.part().ok_or(Error::NeedsLocalPartition { what: "sampling on a device" })?;
        let graph = self.copies.get_or_make(device, mode, part.index, || Ok(part.graph_by_node()?))?;
        let own = DeviceSampler::with_config(graph, config.clone())?;
        Ok(Arc::new(sampler.with_local_sampler(own)?))
    }
}

impl fmt::Debug for JoinedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedGraph").field("graph", &self.graph.name()).finish_non_exhaustive()
    }
}

/// A rank's access to a partitioned heterogeneous graph.
#[derive(Clone)]
pub struct JoinedTypedGraph {
    /// The whole graph; edges that this process does not hold are requested from the processes that hold them.
    pub graph: Arc<DistGraph>,
    /// The features of all nodes of each type, `[n_types]`; `None` for a type without features.
    pub features: Vec<Option<Arc<DistFeatureStore>>>,
    /// The keys of the nodes of each type, `[n_types]`; `None` for a type with features, or without keys in the partitions.
    pub keys: Arc<[Option<NodeKeys>]>,
    pub(crate) owners: NodeOwners,
    copies: GraphCopies,
}

impl JoinedTypedGraph {
    /// Returns the memory limit of the caches of features ([`DistFeatureStore::memory_bytes`]) and the size of the keys of nodes, in
    /// bytes.
    pub fn cache_memory_bytes(&self) -> usize {
        let caches: usize = self.features.iter().flatten().map(|store| store.memory_bytes()).sum();
        caches + self.keys.iter().flatten().map(|keys| 16 * keys.len()).sum::<usize>()
    }

    /// Returns the labels and the split; `None` for a set that was partitioned without labels.
    pub fn targets(&self) -> Option<TypedTargets> {
        let labels = self.graph.labels();
        (labels.n_classes() != 0).then(|| TypedTargets {
            node_type: self.graph.target_type(),
            values: labels.clone().into(),
            split: split_of(&self.graph),
            class_names: self.graph.class_names().to_vec(),
        })
    }

    /// Returns a sampler that samples the relations of the local partition on a device.
    pub(crate) fn device_sampler(
        &self,
        fanouts: Vec<Vec<Fanout>>,
        config: &SamplerConfig,
        mode: GraphMode,
        device: &Device,
    ) -> Result<TypedSampler> {
        let Some(AnyPart::Heterogeneous(part)) = self.graph.local_part() else {
            return Err(Error::NeedsLocalPartition { what: "sampling on a device" });
        };
        // The relations have no edge types: their positions are the types of the joined edges.
        let of_relation = SamplerConfig { edge_types: false, ..config.clone() };
        self.graph.typed_sampler_with_local(fanouts, config, |relation| -> Result<DeviceSampler> {
            let number = part.index * part.relations.len() + relation;
            let graph = || Ok(part.graph_by_node(relation)?);
            let graph = self.copies.get_or_make(device, mode, number, graph)?;
            Ok(DeviceSampler::with_config(graph, of_relation.clone())?)
        })
    }
}

impl fmt::Debug for JoinedTypedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedTypedGraph").field("graph", &self.graph.name()).finish_non_exhaustive()
    }
}

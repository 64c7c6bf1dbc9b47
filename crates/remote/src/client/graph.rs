use std::sync::Arc;

use kiln_comm::rpc::RpcEndpoint;
use kiln_data::{DatasetTargets, DatasetTimes, Split};
use kiln_feature::{FeatureColumn, Preparation};
use kiln_graph::GraphSchema;
use kiln_partition::{Part, PartitionBooks};
use kiln_sample::Rule;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::client::connect::{ConnectConfig, Shared, assemble, open_all};
use crate::client::fetch_stats::{Counters, count};
use crate::client::graph_info::{GraphInfo, RelationInfo};
use crate::client::peer::{Owner, Peer};
use crate::client::replies::{PIECES_AHEAD, PeerRequest, PendingReplies};
use crate::local_part::LocalPart;
use crate::wire::limits::WINDOW_BYTES;
use crate::wire::row_format::RowFormat;
use crate::{ContentError, Error, FetchStats, PartitionsInfo, Result, RuleRegistry};

/// The number of in-flight response bytes that one permit of `budget` stands for.
const PERMIT_BYTES: usize = 1 << 10;

/// A client of a partitioned graph: the local partition, if any, and connections to the servers of the others.
///
/// **Memory.** If there is a local partition, the arrays of the whole graph are mapped from it. Otherwise they are
/// fetched: 4 bytes per node for its new id, 4 for its label (the target values of other targets), 8 for its time, and 4 per node
/// of the split. In addition there are in-flight
/// responses ([`ConnectConfig::in_flight_bytes`]) and at most 16 MiB per connection; see [`DistGraph::memory_bytes`].
///
/// **Threads.** The client runs two network threads. Sampling and gathering wait for these threads, so they must run on
/// other threads.
#[derive(Debug)]
pub struct DistGraph {
    /// The runtime of the network threads; `None` only while the graph is being dropped.
    runtime: Option<Runtime>,
    /// The owner of each partition.
    owners: Vec<Owner>,
    peers: Peers,
    info: GraphInfo,
    books: PartitionBooks,
    targets: Option<DatasetTargets>,
    times: DatasetTimes,
    rules: RuleRegistry,
    pub(crate) counters: Counters,
    budget: Arc<Semaphore>,
    n_permits: usize,
}

impl DistGraph {
    /// Connects to all servers, and checks that they form one graph together with the local partition. Waits for
    /// servers that have not started yet. Without a local partition, also fetches the arrays of the whole graph.
    ///
    /// # Errors
    /// Returns [`Error::Server`] if a server does not start in time, stops responding, or rejects the token, the certificate
    /// or this version of kiln, [`Error::BadParts`] if a partition is missing, is a duplicate, belongs to another
    /// partitioning or has unsupported features, [`Error::Rpc`] if an address or the certificates cannot be used,
    /// [`Error::Threads`] if the network threads cannot be started, and [`Error::Server`] or [`Error::Partition`] if a
    /// server sends invalid arrays.
    pub fn connect(config: ConnectConfig) -> Result<Self> {
        let own = config.own.as_ref().map(|part| LocalPart::new(Arc::clone(part), config.rules.clone()));
        Self::with_local_part(own.map(Arc::new), config)
    }

    /// Connects like [`DistGraph::connect`], with a local partition that this process may serve, too, instead of that of the
    /// configuration.
    pub(crate) fn with_local_part(own: Option<Arc<LocalPart>>, config: ConnectConfig) -> Result<Self> {
        let ConnectConfig { servers, token, tls, rules, n_channels, deadline, join_within, watch, .. } =
            config;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("kiln-remote")
            .enable_all()
            .build()
            .map_err(Error::Threads)?;
        let inside = runtime.enter();
        let peer = |address: String| {
            let rpc_endpoint = RpcEndpoint { address, token: token.clone(), tls: tls.clone() };
            Peer::new(&rpc_endpoint, n_channels, deadline, watch.clone()).map(Arc::new)
        };
        let peers = servers.into_iter().map(peer).collect::<Result<Vec<_>>>()?;
        drop(inside);
        // From here on, every return drops `Peers`, which ends the leases.
        let peers = Peers { all: peers, runtime: runtime.handle().clone() };
        let opened = open_all(&runtime, &peers.all, join_within)?;
        let (owners, told) = assemble(own.clone(), &peers.all, opened)?;
        let info = GraphInfo::new(&told)?;
        let Shared { books, targets, times } = match own {
            Some(held) => Shared {
                books: held.part.books.clone(),
                targets: held.part.targets.clone(),
                times: held.part.times.clone(),
            },
            None => Shared::fetch(&runtime, &owners, &info)?,
        };
        let n_permits = (config.in_flight_bytes / PERMIT_BYTES).clamp(1, 1 << 28);
        let budget = Arc::new(Semaphore::new(n_permits));
        let counters = Counters::default();
        Ok(Self {
            runtime: Some(runtime),
            owners,
            peers,
            info,
            books,
            targets,
            times,
            rules,
            counters,
            budget,
            n_permits,
        })
    }

    /// Returns the name of the data set.
    pub fn name(&self) -> &str {
        &self.info.of_graph.name
    }

    /// Returns the hash of the whole data set.
    pub fn hash(&self) -> &str {
        &self.info.of_graph.hash
    }

    /// Returns true if the graph is heterogeneous: it has several types of nodes, or named relations.
    pub fn is_heterogeneous(&self) -> bool {
        self.info.of_graph.is_heterogeneous
    }

    /// Returns the node types and relations. A homogeneous graph has one of each, named `node` and `edge`.
    pub fn schema(&self) -> &GraphSchema {
        &self.info.of_graph.schema
    }

    /// Returns the partition books of all node types, which map each node to its partition.
    pub fn books(&self) -> &PartitionBooks {
        &self.books
    }

    /// Returns the number of nodes of the whole graph.
    pub fn n_nodes(&self) -> usize {
        self.schema().n_nodes()
    }

    /// Returns the number of edges of the whole graph.
    pub fn n_edges(&self) -> u64 {
        self.schema().n_edges()
    }

    /// Returns the number of feature columns of each node type, `[n_types]`; `None` for a type without features.
    pub fn dims(&self) -> Vec<Option<usize>> {
        self.info.of_graph.dims.clone()
    }

    /// Returns the format of the feature rows of a node type.
    ///
    /// # Errors
    /// Returns [`Error::Content`] if there is no such type, or if it has no features.
    pub(crate) fn row_format(&self, node_type: usize) -> Result<RowFormat> {
        let n_known = self.info.types.len();
        let unknown = ContentError::NoSuchPosition { what: "node type", position: node_type, n_known };
        let of_type = self.info.types.get(node_type).ok_or(unknown)?;
        of_type.row_format.ok_or(Error::Content(ContentError::NoFeaturesOfType { node_type }))
    }

    /// Returns the format of the rows of the edges of each relation in a column, `[n_relations]`; `None` for a relation
    /// without it.
    pub(crate) fn edge_formats(&self, name: &str) -> Vec<Option<RowFormat>> {
        self.info.relations.iter().map(|relation| relation.format_of(name)).collect()
    }

    /// Returns the targets of the nodes of one type, and the split; `None` if the partitions have none.
    pub fn targets(&self) -> Option<&DatasetTargets> {
        self.targets.as_ref()
    }

    /// Returns the training, validation and test nodes, in the order of the data set; empty without targets.
    pub fn split(&self) -> Split {
        self.targets.as_ref().map(|targets| targets.split.clone()).unwrap_or_default()
    }

    /// Returns the times of all nodes, the meaning of all times, and the split by time.
    pub fn times(&self) -> &DatasetTimes {
        &self.times
    }

    /// Returns true if edges or nodes have times.
    pub fn has_times(&self) -> bool {
        let has_edge_times = self.info.relations.iter().any(|relation| relation.has_times);
        has_edge_times || self.times.nodes.iter().any(Option::is_some)
    }

    /// Returns the steps that prepared the data set before it was partitioned, or `None` if they are unknown, because an
    /// older version of kiln wrote the partitions.
    pub fn preparation(&self) -> Option<&Preparation> {
        self.info.of_graph.preparation.as_ref()
    }

    /// Returns the number of edge types of the whole graph. `None` if edges have no types, if there are several relations,
    /// or if an older version of kiln wrote the partitions.
    pub fn n_edge_types(&self) -> Option<usize> {
        self.info.of_graph.n_edge_types
    }

    /// Returns true if the edges of a graph with one relation have types.
    pub fn has_edge_types(&self) -> bool {
        self.info.only_relation().is_some_and(|edges| edges.has_edge_types)
    }

    /// Returns the name of each edge type; empty if the types have no names, or if there are several relations.
    pub fn edge_type_names(&self) -> &[String] {
        &self.info.of_graph.edge_type_names
    }

    /// Returns what the feature columns of each node type mean, `[n_types]`; empty for a type whose columns have no names.
    pub fn feature_columns(&self) -> &[Vec<FeatureColumn>] {
        &self.info.of_graph.feature_columns
    }

    /// Returns the names of the columns of the edges of each relation, of which weights are `weights` and types `types`.
    pub fn edge_columns(&self) -> &[Vec<String>] {
        &self.info.of_graph.edge_columns
    }

    /// Returns the memory limit of the client in bytes. The limit does not grow with the graph's edges or features.
    pub fn memory_bytes(&self) -> usize {
        let fetched = if self.own().is_some() { 0 } else { self.fetched_bytes() };
        let peers = self.owners.iter().map(|owner| match owner {
            Owner::Remote(peer) => peer.n_channels() * WINDOW_BYTES as usize,
            Owner::Local(_) => 0,
        });
        fetched + self.n_permits * PERMIT_BYTES + peers.sum::<usize>()
    }

    /// Returns the size of the arrays of the whole graph in bytes.
    fn fetched_bytes(&self) -> usize {
        let n_split: usize = self.split().parts().into_iter().map(|(_, nodes)| nodes.len()).sum();
        let targets = self.targets.as_ref().zip(self.info.of_graph.targets.as_ref());
        let target_bytes = targets.map_or(0, |(targets, info)| targets.values.len() * info.node_bytes());
        let n_times: usize = self.times.nodes.iter().flatten().map(|times| times.len()).sum();
        4 * (self.n_nodes() + n_split) + 8 * n_times + target_bytes
    }

    /// Returns the counts of nodes and rows since the last call, by location.
    pub fn take_fetch_stats(&self) -> FetchStats {
        self.counters.take()
    }

    /// Returns the local partition, if there is one.
    pub fn local_part(&self) -> Option<&Arc<Part>> {
        self.own().map(|held| &held.part)
    }

    /// Returns the sampling rule with a name: a built-in one, or one registered with [`RuleRegistry::register`].
    ///
    /// # Errors
    /// Returns [`Error::BadRule`] if no rule has this name.
    pub fn rule(&self, name: &str) -> Result<Rule> {
        self.rules.get(name).cloned()
    }

    pub(crate) fn info(&self) -> &PartitionsInfo {
        &self.info.of_graph
    }

    /// Returns the properties of the edges of a relation, which must exist.
    pub(crate) fn relation(&self, relation: usize) -> &RelationInfo {
        &self.info.relations[relation]
    }

    /// Returns true if the partitions have the keys of the nodes of a type.
    pub(crate) fn has_keys(&self, node_type: usize) -> bool {
        self.info.types.get(node_type).is_some_and(|of_type| of_type.has_keys)
    }

    /// Returns the runtime of the network threads.
    pub(crate) fn runtime(&self) -> Result<&Runtime> {
        let reason = || Error::BadParts { reason: "the network threads have ended".to_owned() };
        self.runtime.as_ref().ok_or_else(reason)
    }

    pub(crate) fn owner(&self, part: usize) -> &Owner {
        &self.owners[part]
    }

    /// Returns the local partition, if there is one.
    pub(crate) fn own(&self) -> Option<&Arc<LocalPart>> {
        self.owners.iter().find_map(|owner| match owner {
            Owner::Local(held) => Some(held),
            Owner::Remote(_) => None,
        })
    }

    /// Sends requests to servers concurrently. [`PendingReplies::next`] receives the responses.
    pub(crate) fn ask(&self, questions: impl IntoIterator<Item = PeerRequest>) -> PendingReplies<'_> {
        let (tell, pieces) = mpsc::channel(PIECES_AHEAD);
        let (mut tasks, mut n_open) = (JoinSet::new(), 0);
        let Some(runtime) = &self.runtime else {
            return PendingReplies { counters: &self.counters, tasks, pieces, n_open };
        };
        for (number, asking) in questions.into_iter().enumerate() {
            let PeerRequest { peer, question, n_bytes } = asking;
            let (tell, budget) = (tell.clone(), Arc::clone(&self.budget));
            // A request above the limit takes all permits, so it is sent alone.
            let n_permits = n_bytes.div_ceil(PERMIT_BYTES).clamp(1, self.n_permits) as u32;
            count(&self.counters.n_requests, 1);
            n_open += 1;
            let ask = async move {
                let _permit = budget.acquire_many_owned(n_permits).await;
                peer.ask(question, number, &tell).await;
            };
            tasks.spawn_on(ask, runtime.handle());
        }
        PendingReplies { counters: &self.counters, tasks, pieces, n_open }
    }
}

impl Drop for DistGraph {
    /// Ends the leases while the runtime still runs.
    fn drop(&mut self) {
        self.peers.say_goodbye();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The servers of the configuration. Dropping this ends the client's leases.
#[derive(Debug)]
struct Peers {
    all: Vec<Arc<Peer>>,
    runtime: Handle,
}

impl Peers {
    /// Ends the leases. Further calls have no effect.
    fn say_goodbye(&mut self) {
        let mut goodbyes = JoinSet::new();
        for peer in self.all.drain(..) {
            goodbyes.spawn_on(peer.close(), &self.runtime);
        }
        // In a thread of a tokio runtime, blocking would panic, so the tasks are not awaited there. Leases that they do
        // not end expire.
        if Handle::try_current().is_err() {
            self.runtime.block_on(async { while goodbyes.join_next().await.is_some() {} });
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}

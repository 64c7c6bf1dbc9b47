use std::sync::Arc;

use kiln_comm::rpc::RpcEndpoint;
use kiln_feature::{FeatureDType, Labels};
use kiln_graph::{NodeId, SharedArray};
use kiln_partition::{Part, PartitionBook};
use kiln_sample::Rule;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::connect::{ConnectConfig, Shared, assemble, open_all};
use crate::fetch_stats::{Counters, count};
use crate::local_part::LocalPart;
use crate::peer::{Peer, Question, ReplyEvent};
use crate::proto::Opened;
use crate::{Error, FetchStats, Result, RuleRegistry, WINDOW_BYTES};

/// Pieces of answers that wait for the thread that asked.
pub(crate) const PIECES_AHEAD: usize = 16;

/// Bytes under way that a permit stands for.
const PERMIT_BYTES: usize = 1 << 10;

/// A partitioned graph all of whose parts can be reached: the local one, if any, and those of servers.
///
/// **Memory.** Where a part lies here, what all parts have alike is mapped. Otherwise it is fetched: 8 bytes a node (its
/// new id and its label) and 4 a node to train, validate and test on. Besides there are the answers under way
/// ([`ConnectConfig::in_flight_bytes`]) and what connections hold, 16 MiB each at most: [`DistGraph::memory_bytes`].
///
/// **Threads.** Two wait for the network. Those that sample and gather wait for them, so they must not be theirs.
#[derive(Debug)]
pub struct DistGraph {
    // Dropped first: tasks end before what they use.
    runtime: Option<Runtime>,
    /// By part.
    owners: Vec<Owner>,
    peers: Peers,
    book: Arc<PartitionBook>,
    labels: Arc<Labels>,
    /// To train, to validate, to test on.
    split: [SharedArray<NodeId>; 3],
    told: Opened,
    row_type: FeatureDType,
    rules: RuleRegistry,
    pub(crate) counters: Counters,
    budget: Arc<Semaphore>,
    n_permits: usize,
}

/// Who answers for the nodes of a part.
#[derive(Debug, Clone)]
pub(crate) enum Owner {
    Local(Arc<LocalPart>),
    Remote(Arc<Peer>),
}

impl DistGraph {
    /// Waits for all servers, and makes sure that together with the own part they are one graph.
    ///
    /// # Errors
    /// [`Error::PeerLost`] for a server that is not there in time, [`Error::Refused`] for one that does not let this process
    /// in, [`Error::BadParts`] where a part is missing or twice there or of another partition; [`Error::Rpc`],
    /// [`Error::Threads`].
    pub fn connect(config: ConnectConfig) -> Result<Self> {
        let ConnectConfig { servers, own, token, tls, rules, n_channels, deadline, join_within, .. } = config;
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("kiln-remote")
            .enable_all()
            .build()
            .map_err(Error::Threads)?;
        let inside = runtime.enter();
        let peer = |address: String| {
            let rpc_endpoint = RpcEndpoint { address, token: token.clone(), tls: tls.clone() };
            Peer::new(&rpc_endpoint, n_channels, deadline).map(Arc::new)
        };
        let peers = servers.into_iter().map(peer).collect::<Result<Vec<_>>>()?;
        drop(inside);
        // From here on, whatever comes, leases are given back.
        let peers = Peers { all: peers, runtime: runtime.handle().clone() };
        let opened = open_all(&runtime, &peers.all, join_within)?;
        let own = own.map(|part| Arc::new(LocalPart::new(part, rules.clone())));
        let (owners, told) = assemble(own.clone(), &peers.all, opened)?;
        let shared = match own {
            Some(held) => Shared::of_part(&held.part),
            None => Shared::fetch(&runtime, &owners, &told)?,
        };
        if told.dim == 0 {
            let reason = "features without a column: partition a data set that has some".to_owned();
            return Err(Error::BadParts { reason });
        }
        let row_type = [FeatureDType::F32, FeatureDType::F16, FeatureDType::BF16]
            .into_iter()
            .find(|it| it.name() == told.row_type);
        let row_type = row_type.ok_or_else(|| Error::BadParts {
            reason: format!("features of {}, which this version does not know", told.row_type),
        })?;
        let n_permits = (config.in_flight_bytes / PERMIT_BYTES).clamp(1, 1 << 28);
        let budget = Arc::new(Semaphore::new(n_permits));
        let Shared { book, labels, split } = shared;
        let counters = Counters::default();
        Ok(Self {
            runtime: Some(runtime),
            owners,
            peers,
            book,
            labels,
            split,
            told,
            row_type,
            rules,
            counters,
            budget,
            n_permits,
        })
    }

    /// The data set's name.
    pub fn name(&self) -> &str {
        &self.told.name
    }

    /// The hash of the whole data set.
    pub fn hash(&self) -> &str {
        &self.told.hash
    }

    /// Where each node is.
    pub fn book(&self) -> &Arc<PartitionBook> {
        &self.book
    }

    /// Number of nodes of the whole graph.
    pub fn n_nodes(&self) -> usize {
        self.book.n_nodes()
    }

    /// Number of edges of the whole graph.
    pub fn n_edges(&self) -> u64 {
        self.told.n_edges
    }

    /// Number of feature columns.
    pub fn dim(&self) -> usize {
        self.told.dim as usize
    }

    /// The element type of the features.
    pub fn dtype(&self) -> FeatureDType {
        self.row_type
    }

    /// The classes of all nodes.
    pub fn labels(&self) -> &Arc<Labels> {
        &self.labels
    }

    /// The classes' names.
    pub fn class_names(&self) -> &[String] {
        &self.told.class_names
    }

    /// The nodes to train on, in the data set's order.
    pub fn train(&self) -> &SharedArray<NodeId> {
        &self.split[0]
    }

    /// The nodes to validate on.
    pub fn val(&self) -> &SharedArray<NodeId> {
        &self.split[1]
    }

    /// The nodes to test on.
    pub fn test(&self) -> &SharedArray<NodeId> {
        &self.split[2]
    }

    /// The most memory that this takes: nothing of it grows with the graph's edges or features.
    pub fn memory_bytes(&self) -> usize {
        let fetched = match self.own() {
            Some(_) => 0,
            None => 8 * self.n_nodes() + 4 * self.split.iter().map(|nodes| nodes.len()).sum::<usize>(),
        };
        let peers = self.owners.iter().map(|owner| match owner {
            Owner::Remote(peer) => peer.n_channels() * WINDOW_BYTES as usize,
            Owner::Local(_) => 0,
        });
        fetched + self.n_permits * PERMIT_BYTES + peers.sum::<usize>()
    }

    /// Returns the counts since the last call, by where nodes and rows were.
    pub fn take_fetch_stats(&self) -> FetchStats {
        self.counters.take()
    }

    /// The part that lies here.
    pub fn part(&self) -> Option<&Arc<Part>> {
        self.own().map(|held| &held.part)
    }

    /// The sampling rule that this process knows by this name: a built-in one, or one that was registered
    /// ([`RuleRegistry::register`]).
    ///
    /// # Errors
    /// [`Error::BadRule`] where there is none.
    pub fn rule(&self, name: &str) -> Result<Rule> {
        self.rules.get(name).cloned()
    }

    pub(crate) fn has_weights(&self) -> bool {
        self.told.has_weights
    }

    pub(crate) fn has_edge_types(&self) -> bool {
        self.told.has_edge_types
    }

    pub(crate) fn owner(&self, part: usize) -> &Owner {
        &self.owners[part]
    }

    /// The part that lies here.
    pub(crate) fn own(&self) -> Option<&Arc<LocalPart>> {
        self.owners.iter().find_map(|owner| match owner {
            Owner::Local(held) => Some(held),
            Owner::Remote(_) => None,
        })
    }

    /// Starts to ask servers; the answers are taken by [`PendingReplies::next`].
    pub(crate) fn ask(&self, questions: impl IntoIterator<Item = PeerRequest>) -> PendingReplies<'_> {
        let (tell, pieces) = mpsc::channel(PIECES_AHEAD);
        let (mut tasks, mut n_open) = (JoinSet::new(), 0);
        let Some(runtime) = &self.runtime else {
            return PendingReplies { graph: self, tasks, pieces, n_open };
        };
        for (number, asking) in questions.into_iter().enumerate() {
            let PeerRequest { peer, question, n_bytes } = asking;
            let (tell, budget) = (tell.clone(), Arc::clone(&self.budget));
            // What is more than all that may be under way goes alone.
            let n_permits = n_bytes.div_ceil(PERMIT_BYTES).clamp(1, self.n_permits) as u32;
            count(&self.counters.n_requests, 1);
            n_open += 1;
            let ask = async move {
                let _permit = budget.acquire_many_owned(n_permits).await;
                peer.ask(question, number, &tell).await;
            };
            tasks.spawn_on(ask, runtime.handle());
        }
        PendingReplies { graph: self, tasks, pieces, n_open }
    }
}

impl Drop for DistGraph {
    /// Gives the leases back, as long as there is somebody to do so.
    fn drop(&mut self) {
        self.peers.say_goodbye();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// All servers that were named.
#[derive(Debug)]
struct Peers {
    all: Vec<Arc<Peer>>,
    runtime: Handle,
}

impl Peers {
    /// Gives the leases back, once.
    fn say_goodbye(&mut self) {
        let mut goodbyes = JoinSet::new();
        for peer in self.all.drain(..) {
            goodbyes.spawn_on(peer.close(), &self.runtime);
        }
        // Not from within a runtime, in which nobody may wait.
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

/// A request to a peer, with about how many bytes its answer will have.
pub(crate) struct PeerRequest {
    pub(crate) peer: Arc<Peer>,
    pub(crate) question: Question,
    pub(crate) n_bytes: usize,
}

/// The replies to requests in flight, which end when this is dropped.
pub(crate) struct PendingReplies<'a> {
    graph: &'a DistGraph,
    // Dropping it ends the tasks.
    #[allow(dead_code, reason = "held for its drop")]
    tasks: JoinSet<()>,
    pieces: mpsc::Receiver<ReplyEvent>,
    n_open: usize,
}

impl PendingReplies<'_> {
    /// Waits for what comes next; nothing, when all have been answered.
    pub(crate) fn next(&mut self) -> Result<Option<ReplyEvent>> {
        if self.n_open == 0 {
            return Ok(None);
        }
        let Some(told) = self.pieces.blocking_recv() else {
            return Err(Error::BadParts {
                reason: "the threads that wait for the network have ended".to_owned(),
            });
        };
        match told {
            ReplyEvent::Piece { ref bytes, .. } => count(&self.graph.counters.remote_bytes, bytes.len()),
            ReplyEvent::End { outcome: Err(error), .. } => return Err(error),
            ReplyEvent::End { .. } => self.n_open -= 1,
        }
        Ok(Some(told))
    }

    /// All answers, by question.
    pub(crate) fn collect(mut self, n_questions: usize) -> Result<Vec<Vec<u8>>> {
        let mut answers = vec![Vec::new(); n_questions];
        while let Some(told) = self.next()? {
            if let ReplyEvent::Piece { number, start, bytes } = told {
                put(&mut answers[number], start, &bytes);
            }
        }
        Ok(answers)
    }
}

/// Puts a piece at its place, which is the end unless the answer began anew.
pub(crate) fn put(answer: &mut Vec<u8>, start: u64, bytes: &[u8]) {
    answer.truncate(start as usize);
    answer.extend_from_slice(bytes);
}

use std::sync::Arc;
use std::time::Duration;

use bytemuck::{Pod, pod_collect_to_vec};
use kiln_comm::GroupWatch;
use kiln_comm::rpc::{Tls, Token};
use kiln_data::{DatasetTargets, DatasetTimes, Split};
use kiln_feature::{Labels, TargetKind, TargetValues, Targets};
use kiln_graph::{NodeId, SharedArray};
use kiln_partition::{Part, PartitionBook, PartitionBooks};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::graph_info::{GraphInfo, n_parts};
use crate::client::peer::{Owner, Peer, ReplyEvent};
use crate::client::question::Question;
use crate::client::replies::{PIECES_AHEAD, put};
use crate::local_part::LocalPart;
use crate::wire::proto::{Array, FetchRequest, Opened};
use crate::{Error, Result, RuleRegistry, TargetsInfo};

/// The default of [`ConnectConfig::deadline`].
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The default of [`ConnectConfig::join_within`].
pub(crate) const JOIN_WITHIN: Duration = Duration::from_secs(300);

/// The default of [`ConnectConfig::in_flight_bytes`].
pub(crate) const IN_FLIGHT_BYTES: usize = 256 << 20;

/// The configuration of a client of a partitioned graph.
#[derive(Debug, Clone)]
pub struct ConnectConfig {
    /// The servers of all partitions, `HOST:PORT` each, in any order. The server of the local partition is optional.
    pub servers: Vec<String>,
    /// The local partition, if there is one.
    pub own: Option<Arc<Part>>,
    /// The token that servers require.
    pub token: Token,
    /// The certificates of client and servers; `None` for connections without TLS.
    pub tls: Option<Tls>,
    /// The sampling rules that this process knows by name.
    pub rules: RuleRegistry,
    /// The number of connections to each server, at least 1.
    pub n_channels: usize,
    /// The time without progress after which a request fails. Until then it is retried.
    pub deadline: Duration,
    /// The longest time to wait for servers to start.
    pub join_within: Duration,
    /// Tells whether the job of this client has ended, so that no request waits for a server that ended with it; `None` for a
    /// client that is no rank of a job, or whose process ends with it.
    pub watch: Option<GroupWatch>,
    /// The limit on in-flight responses in bytes, counted by their expected sizes. Requests that would exceed it wait.
    /// A request whose response alone exceeds the limit is sent when no other request is in flight.
    pub in_flight_bytes: usize,
}

impl ConnectConfig {
    /// Creates a configuration with two connections per server, a deadline of 60 s, 300 s for servers to start, 256 MiB
    /// of in-flight responses and the built-in rules, without certificates and without a local partition.
    pub fn new(servers: impl Into<Vec<String>>, token: Token) -> Self {
        Self {
            servers: servers.into(),
            own: None,
            token,
            tls: None,
            rules: RuleRegistry::default(),
            n_channels: 2,
            deadline: DEADLINE,
            join_within: JOIN_WITHIN,
            watch: None,
            in_flight_bytes: IN_FLIGHT_BYTES,
        }
    }
}

/// The arrays of the whole graph, which are the same in all partitions.
pub(crate) struct Shared {
    pub(crate) books: PartitionBooks,
    pub(crate) targets: Option<DatasetTargets>,
    pub(crate) times: DatasetTimes,
}

impl Shared {
    /// Fetches the arrays from the owner of the first partition.
    pub(crate) fn fetch(runtime: &Runtime, owners: &[Owner], info: &GraphInfo) -> Result<Self> {
        let Some(Owner::Remote(owner)) = owners.first() else {
            return Err(no_server());
        };
        let mut books = Vec::with_capacity(info.types.len());
        for (node_type, of_type) in info.types.iter().enumerate() {
            let new_ids: Vec<u32> = fetch_words(runtime, owner, Array::NewIds, node_type)?;
            books.push(Arc::new(PartitionBook::new(of_type.offsets.clone(), new_ids.into())?));
        }
        let books = PartitionBooks::new(info.of_graph.schema.types().clone(), books)?;
        let targets = info.of_graph.targets.as_ref().map(|targets| {
            let n_nodes = books.of_type(targets.node_type).n_nodes();
            fetch_targets(runtime, owner, targets, n_nodes)
        });
        let mut node_times = Vec::with_capacity(info.types.len());
        for (node_type, of_type) in info.types.iter().enumerate() {
            let n_nodes = books.of_type(node_type).n_nodes();
            let times = of_type.has_times.then(|| fetch_times(runtime, owner, node_type, n_nodes));
            node_times.push(times.transpose()?);
        }
        let times = info.of_graph.times.with_nodes(node_times);
        Ok(Self { targets: targets.transpose()?, books, times })
    }
}

/// Fetches the targets of `n_nodes` nodes and the split.
fn fetch_targets(
    runtime: &Runtime,
    owner: &Arc<Peer>,
    info: &TargetsInfo,
    n_nodes: usize,
) -> Result<DatasetTargets> {
    let bytes = fetch(runtime, owner, Array::Targets, info.node_type)?;
    let node_bytes = info.node_bytes();
    if bytes.len() != n_nodes.saturating_mul(node_bytes) {
        let expected = format!("{n_nodes} targets of {node_bytes} bytes");
        return Err(bad_array(owner, &expected, bytes.len()));
    }
    let n_outputs = info.n_outputs;
    let values: Targets = match info.kind {
        TargetKind::MultiLabel => TargetValues::multi_label(bytes, n_outputs)?.into(),
        TargetKind::Regression => {
            TargetValues::regression(pod_collect_to_vec::<u8, f32>(&bytes), n_outputs)?.into()
        }
        TargetKind::Classes | TargetKind::Links => {
            Labels::new(pod_collect_to_vec::<u8, i32>(&bytes), n_outputs).into()
        }
    };
    let nodes = |array| -> Result<SharedArray<NodeId>> {
        Ok(fetch_words::<NodeId>(runtime, owner, array, 0)?.into())
    };
    Ok(DatasetTargets {
        node_type: info.node_type,
        values,
        split: Split {
            train: nodes(Array::Train)?,
            val: nodes(Array::Validation)?,
            test: nodes(Array::Test)?,
        },
        class_names: info.class_names.clone(),
    })
}

/// Fetches the times of the `n_nodes` nodes of a type.
fn fetch_times(
    runtime: &Runtime,
    owner: &Arc<Peer>,
    node_type: usize,
    n_nodes: usize,
) -> Result<SharedArray<i64>> {
    let bytes = fetch(runtime, owner, Array::Times, node_type)?;
    match bytes.len() == n_nodes.saturating_mul(size_of::<i64>()) {
        true => Ok(pod_collect_to_vec::<u8, i64>(&bytes).into()),
        false => Err(bad_array(owner, &format!("{n_nodes} times of 8 bytes"), bytes.len())),
    }
}

/// Fetches an array of elements of 4 bytes.
fn fetch_words<T: Pod>(
    runtime: &Runtime,
    peer: &Arc<Peer>,
    array: Array,
    node_type: usize,
) -> Result<Vec<T>> {
    let bytes = fetch(runtime, peer, array, node_type)?;
    match bytes.len().is_multiple_of(size_of::<u32>()) {
        true => Ok(pod_collect_to_vec(&bytes)),
        false => Err(bad_array(peer, "elements of 4 bytes", bytes.len())),
    }
}

/// Returns the error of a client without a local partition and servers.
fn no_server() -> Error {
    let reason = "neither a local partition nor a server is given: give all servers".to_owned();
    Error::BadParts { reason }
}

/// Requests an array and waits for it.
pub(crate) fn fetch(runtime: &Runtime, peer: &Arc<Peer>, array: Array, node_type: usize) -> Result<Vec<u8>> {
    let node_type = node_type as u32;
    let question = Question::Fetch(FetchRequest { lease: 0, array: array.into(), node_type });
    let ((tell, mut told), peer) = (mpsc::channel(PIECES_AHEAD), Arc::clone(peer));
    runtime.spawn(async move { peer.ask(question, 0, &tell).await });
    let mut bytes = Vec::new();
    loop {
        match told.blocking_recv() {
            Some(ReplyEvent::Piece { start, bytes: piece, .. }) => put(&mut bytes, start, &piece),
            Some(ReplyEvent::End { outcome, .. }) => return outcome.map(|()| bytes),
            None => {
                let reason = "the network threads have ended".to_owned();
                return Err(Error::BadParts { reason });
            }
        }
    }
}

pub(crate) fn bad_array(peer: &Peer, expected: &str, n_bytes: usize) -> Error {
    peer.bad_answer("an array", expected.to_owned(), format!("{n_bytes} bytes"))
}

/// Takes a lease from each server, concurrently, and starts tasks that renew the leases. Returns the descriptions of
/// the servers' partitions in the order of `peers`.
pub(crate) fn open_all(runtime: &Runtime, peers: &[Arc<Peer>], within: Duration) -> Result<Vec<Opened>> {
    let mut tasks = JoinSet::new();
    for (number, peer) in peers.iter().enumerate() {
        let peer = Arc::clone(peer);
        tasks.spawn_on(async move { (number, peer.open(within).await) }, runtime.handle());
    }
    let mut opened: Vec<Option<Opened>> = vec![None; peers.len()];
    while let Some(outcome) = runtime.block_on(tasks.join_next()) {
        let (number, told) = outcome.map_err(|error| Error::BadParts { reason: error.to_string() })?;
        opened[number] = Some(told?);
    }
    let opened: Vec<Opened> = opened.into_iter().flatten().collect();
    for (peer, told) in peers.iter().zip(&opened) {
        let every = Duration::from_millis(told.lease_ms / 3).max(Duration::from_millis(10));
        runtime.spawn(Peer::keep(Arc::downgrade(peer), every));
    }
    Ok(opened)
}

/// Returns a description without what differs between the partitions of one graph.
fn of_whole_graph(told: &Opened) -> Opened {
    Opened {
        node_types: told.node_types.clone(),
        relations: told.relations.clone(),
        is_heterogeneous: told.is_heterogeneous,
        targets: told.targets.clone(),
        times: told.times.clone(),
        ..Opened::default()
    }
}

/// Checks that the local partition and those of the servers form one graph. Returns the owner of each partition, and
/// the description of one partition, which contains the properties of the whole graph.
pub(crate) fn assemble(
    own: Option<Arc<LocalPart>>,
    peers: &[Arc<Peer>],
    opened: Vec<Opened>,
) -> Result<(Vec<Owner>, Opened)> {
    let told_here = own.as_ref().map(|held| held.describe());
    let Some(first) = told_here.or_else(|| opened.first().cloned()) else {
        return Err(no_server());
    };
    let n_parts = first.node_types.first().map_or(0, |node_type| n_parts(&node_type.offsets));
    let mut owners: Vec<Option<Owner>> = vec![None; n_parts];
    if let Some(held) = own
        && let Some(owner) = owners.get_mut(first.part as usize)
    {
        *owner = Some(Owner::Local(held));
    }
    for (peer, told) in peers.iter().zip(opened) {
        let is_alike = of_whole_graph(&told) == of_whole_graph(&first);
        if told.partition_hash == first.partition_hash && !is_alike {
            let (address, part, other) = (&peer.address, told.part, first.part);
            let reason = format!(
                "partition {part} of graph server {address} has other features, node types, relations or classes than \
                 partition {other}: different versions of kiln wrote them, so partition the data set again"
            );
            return Err(Error::BadParts { reason });
        }
        if told.partition_hash != first.partition_hash {
            let (address, other, hash) = (&peer.address, &told.partition_hash, &first.partition_hash);
            let reason = format!(
                "graph server {address} holds a partition of the partitioning {other}, expected {hash}: serve \
                 partitions of one partitioning"
            );
            return Err(Error::BadParts { reason });
        }
        match owners.get_mut(told.part as usize) {
            Some(owner @ None) => *owner = Some(Owner::Remote(Arc::clone(peer))),
            // A server of the local partition may be given, but is not used.
            Some(Some(Owner::Local(_))) => {}
            Some(Some(Owner::Remote(other))) => {
                let (one, other) = (&peer.address, &other.address);
                return Err(Error::BadParts {
                    reason: format!("graph servers {one} and {other} both hold partition {}", told.part),
                });
            }
            None => {
                let (address, part) = (&peer.address, told.part);
                let reason =
                    format!("graph server {address} holds partition {part}, expected below {n_parts}");
                return Err(Error::BadParts { reason });
            }
        }
    }
    let missing: Vec<String> =
        (0..n_parts).filter(|part| owners[*part].is_none()).map(|part| part.to_string()).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        let reason = format!("no server holds partition {missing} of {n_parts}: add its server");
        return Err(Error::BadParts { reason });
    }
    Ok((owners.into_iter().flatten().collect(), first))
}

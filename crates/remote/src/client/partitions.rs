use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kiln_comm::Communicator;
use kiln_comm::rpc::{Tls, Token};
use kiln_graph::NodeId;
use kiln_partition::{Part, part_dir};

use crate::client::connect::{DEADLINE, IN_FLIGHT_BYTES, JOIN_WITHIN};
use crate::client::graph_info::GraphInfo;
use crate::local_part::LocalPart;
use crate::{
    ColocatedWorker, ColocatedWorkerConfig, ConnectConfig, DistGraph, Error, PartitionsInfo, Result,
    RuleRegistry,
};

/// A partitioned graph that ranks can join. In worker mode, a folder contains the partitions, and the ranks serve them
/// to each other. In server-client mode, servers hold all partitions.
pub struct Partitions {
    source: Source,
    config: PartitionsConfig,
    info: PartitionsInfo,
}

/// The configuration of a process's connections to a partitioned graph.
#[derive(Debug, Clone)]
pub struct PartitionsConfig {
    /// The name or address at which other ranks reach this machine; if `None`, the `local_ip` given to
    /// [`Partitions::join`] is used.
    pub host: Option<String>,
    /// The token that servers require. Server-client mode fails without it. In worker mode, all ranks use the token of
    /// rank 0, which draws a random one if this is `None`.
    pub token: Option<Token>,
    /// The certificates of clients and servers; `None` for connections without TLS.
    pub tls: Option<Tls>,
    /// The sampling rules that clients and servers know by name.
    pub rules: RuleRegistry,
    /// The limit on in-flight response bytes; see [`ConnectConfig::in_flight_bytes`].
    pub in_flight_bytes: usize,
    /// The time without progress after which a request to a server fails; see [`ConnectConfig::deadline`].
    pub deadline: Duration,
    /// The longest time to wait for servers to start; see [`ConnectConfig::join_within`].
    pub join_within: Duration,
}

impl Default for PartitionsConfig {
    /// Returns a configuration without certificates, with the built-in rules and the limits of [`ConnectConfig::new`].
    fn default() -> Self {
        Self {
            host: None,
            token: None,
            tls: None,
            rules: RuleRegistry::default(),
            in_flight_bytes: IN_FLIGHT_BYTES,
            deadline: DEADLINE,
            join_within: JOIN_WITHIN,
        }
    }
}

enum Source {
    /// A folder with `part0`, `part1` and so on. A machine only needs the partitions of its own ranks.
    Folder(PathBuf),
    /// The addresses of servers, and the connection that fetched the info. The first rank that joins in this process
    /// reuses the connection.
    Servers(Vec<String>, Mutex<Option<Arc<DistGraph>>>),
}

impl Partitions {
    /// Opens a folder with partitions (worker mode). A machine only needs the partitions of its own ranks. If there are
    /// more ranks than partitions, each partition is shared by the same number of consecutive ranks.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] if the folder cannot be read or contains no partition, and [`Error::Partition`] if a
    /// partition cannot be opened.
    pub fn open(folder: impl AsRef<Path>, config: PartitionsConfig) -> Result<Self> {
        let folder = folder.as_ref();
        let unreadable = |error: io::Error| Error::BadParts {
            reason: format!("cannot read {}: {error}", folder.display()),
        };
        let mut first: Option<usize> = None;
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let digits = name.to_str().and_then(|name| name.strip_prefix("part"));
            let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
            if let Some(part) = digits.and_then(|digits| digits.parse().ok()) {
                first = Some(first.map_or(part, |first| first.min(part)));
            }
        }
        let Some(first) = first else {
            let folder = folder.display();
            let reason = format!("{folder} contains no partition: create some with `kiln data partition`");
            return Err(Error::BadParts { reason });
        };
        let part = Part::open(part_dir(folder, first))?;
        let described = LocalPart::new(part.into(), config.rules.clone()).describe();
        let info = GraphInfo::new(&described)?.of_graph;
        Ok(Self { source: Source::Folder(folder.to_owned()), config, info })
    }

    /// Connects to the servers of all partitions, `HOST:PORT` each (server-client mode).
    ///
    /// # Errors
    /// Returns [`Error::NoToken`] if the configuration has no token, and the errors of [`DistGraph::connect`].
    pub fn connect(servers: impl Into<Vec<String>>, config: PartitionsConfig) -> Result<Self> {
        let servers = servers.into();
        let graph = config.connect(&servers)?;
        let info = graph.info().clone();
        let source = Source::Servers(servers, Mutex::new(Some(Arc::new(graph))));
        Ok(Self { source, config, info })
    }

    /// Returns the properties of the graph that are known before ranks join it.
    pub fn info(&self) -> &PartitionsInfo {
        &self.info
    }

    /// Checks that `n_ranks` ranks can share the partitions equally. Any number is valid in server-client mode.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] if, in worker mode, `n_ranks` is not a multiple of the number of partitions.
    pub fn check_ranks(&self, n_ranks: usize) -> Result<()> {
        let n_parts = self.info.n_parts;
        match &self.source {
            Source::Folder(_) if n_parts == 0 || !n_ranks.is_multiple_of(n_parts) => {
                let reason = format!(
                    "{n_ranks} ranks cannot share {n_parts} partitions equally: start {n_parts} ranks or a multiple, \
                     or partition the data set again"
                );
                Err(Error::BadParts { reason })
            }
            Source::Folder(_) | Source::Servers(..) => Ok(()),
        }
    }

    /// Returns the largest number of ranks that share the partitions equally and is at most `most`; `most` itself if
    /// there is none, which [`Partitions::check_ranks`] then rejects, and in server-client mode.
    pub fn ranks_within(&self, most: usize) -> usize {
        match &self.source {
            Source::Folder(_) => largest_multiple(self.info.n_parts, most).unwrap_or(most),
            Source::Servers(..) => most,
        }
    }

    /// Joins the other ranks and connects to all partitions. Collective: every rank must call it. In worker mode, the
    /// first rank of each partition serves it at the configured host, or at `local_ip` if no host is configured. `comm`
    /// must be a duplicated communicator that is used for nothing else, so that its collectives do not wait for those
    /// of gradients.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] if the ranks cannot share the partitions equally, [`Error::NoHost`] if no address of
    /// this machine is known, [`Error::Partition`] if the partition cannot be opened, and the errors of
    /// [`ColocatedWorker::meet`] and [`DistGraph::connect`].
    pub fn join(
        &self,
        comm: Box<dyn Communicator>,
        local_ip: std::result::Result<IpAddr, String>,
    ) -> Result<JoinedPartition> {
        let rank_info = comm.rank_info();
        let folder = match &self.source {
            Source::Folder(folder) => folder,
            Source::Servers(servers, first) => {
                let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
                let graph = first.map_or_else(|| self.config.connect(servers).map(Arc::new), Ok)?;
                return Ok(JoinedPartition { graph, worker: None });
            }
        };
        self.check_ranks(rank_info.world_size)?;
        let part = ColocatedWorker::part_of(rank_info, self.info.n_parts).unwrap_or_default();
        let PartitionsConfig { host, token, tls, rules, in_flight_bytes, deadline, join_within } =
            self.config.clone();
        let host = match host {
            Some(host) => host,
            None => local_ip.map_err(|reason| Error::NoHost { reason })?.to_string(),
        };
        let part = Part::open(part_dir(folder, part))?;
        let worker = ColocatedWorker::meet(
            comm,
            part,
            ColocatedWorkerConfig { host, token, tls, rules, in_flight_bytes, deadline, join_within },
        )?;
        Ok(JoinedPartition { graph: Arc::clone(worker.graph()), worker: Some(worker) })
    }
}

/// Returns the largest multiple of `unit` from `unit` to `most`, or `None` if there is none.
fn largest_multiple(unit: usize, most: usize) -> Option<usize> {
    let rest = most.checked_rem(unit)?;
    Some(most - rest).filter(|multiple| 0 < *multiple)
}

impl PartitionsConfig {
    fn connect(&self, servers: &[String]) -> Result<DistGraph> {
        let token = self.token.clone().ok_or(Error::NoToken)?;
        let Self { tls, rules, in_flight_bytes, deadline, join_within, .. } = self.clone();
        DistGraph::connect(ConnectConfig {
            tls,
            rules,
            in_flight_bytes,
            deadline,
            join_within,
            ..ConnectConfig::new(servers, token)
        })
    }
}

impl fmt::Debug for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Writes one line: the graph's name and size, the mode, and the number of partitions or servers.
impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartitionsInfo { name, n_parts, schema, .. } = &self.info;
        let (n_nodes, n_edges) = (schema.n_nodes(), schema.n_edges());
        write!(f, "{name}: {n_nodes} nodes, {n_edges} edges; ")?;
        match &self.source {
            Source::Folder(_) => write!(f, "worker mode, {n_parts} parts"),
            Source::Servers(servers, _) => write!(f, "server mode, {} servers", servers.len()),
        }
    }
}

/// A rank's connection to a partitioned graph and, in worker mode, the server of its partition.
#[derive(Debug)]
pub struct JoinedPartition {
    graph: Arc<DistGraph>,
    worker: Option<ColocatedWorker>,
}

impl JoinedPartition {
    /// Returns the client of the whole graph.
    pub fn graph(&self) -> &Arc<DistGraph> {
        &self.graph
    }

    /// Returns a function from a node to the rank that trains on it, for `ItemSampler::shard_by_owner`; `None` in
    /// server-client mode. That rank holds the node's partition, so the node's edges and features are local.
    pub fn owner(&self) -> Option<impl Fn(NodeId) -> usize + Send + Sync + 'static> {
        self.worker.as_ref().map(ColocatedWorker::owner)
    }

    /// Waits at most `deadline` until all ranks have finished, and stops this rank's server. Collective in worker mode:
    /// every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`] if another rank does not call it in time or has failed.
    pub fn end(self, deadline: Duration) -> Result<()> {
        let Self { graph, worker } = self;
        drop(graph);
        worker.map_or(Ok(()), |worker| worker.end(deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_multiple_is_within_the_limit() {
        let of_two = [0, 1, 2, 3, 4, 7].map(|most| largest_multiple(2, most));
        assert_eq!(of_two, [None, None, Some(2), Some(2), Some(4), Some(6)]);
        assert_eq!([1, 3, 8].map(|most| largest_multiple(1, most)), [Some(1), Some(3), Some(8)]);
        assert_eq!((largest_multiple(3, 2), largest_multiple(0, 2)), (None, None));
    }
}

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

use crate::{ColocatedWorker, ColocatedWorkerConfig, ConnectConfig, DistGraph, Error, Result, RuleRegistry};

/// A partitioned graph that ranks can join: a folder with its parts, which the ranks hold and serve to each other (worker
/// mode), or servers that hold all of them (server-client mode).
pub struct Partitions {
    source: Source,
    config: PartitionsConfig,
    info: PartitionsInfo,
}

/// How a process reaches a partitioned graph.
#[derive(Debug, Clone)]
pub struct PartitionsConfig {
    /// The name or address of this machine by which other ranks reach its parts; if not given, the one that the ranks'
    /// launcher shows.
    pub host: Option<String>,
    /// The token that servers expect. Ranks that serve each other make one if none is given.
    pub token: Option<Token>,
    /// Certificates, for both sides.
    pub tls: Option<Tls>,
    /// The rules that edges may be picked by.
    pub rules: RuleRegistry,
    /// The bytes of responses that may be under way: as [`ConnectConfig::in_flight_bytes`].
    pub in_flight_bytes: usize,
}

impl Default for PartitionsConfig {
    /// No certificates, the built-in rules, 256 MiB under way.
    fn default() -> Self {
        Self {
            host: None,
            token: None,
            tls: None,
            rules: RuleRegistry::default(),
            in_flight_bytes: 256 << 20,
        }
    }
}

/// What is known of a partitioned graph before ranks join it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionsInfo {
    /// The name of the dataset.
    pub name: String,
    /// The hash of the whole dataset.
    pub hash: String,
    /// The number of parts.
    pub n_parts: usize,
    /// The number of nodes of the whole graph.
    pub n_nodes: usize,
    /// The number of edges of the whole graph.
    pub n_edges: u64,
    /// The number of feature columns.
    pub dim: usize,
    /// The number of classes.
    pub n_classes: usize,
    /// The classes' names, by class.
    pub class_names: Vec<String>,
}

enum Source {
    /// A folder with `part0`, `part1` and so on, of which this machine needs its ranks' own.
    Folder(PathBuf),
    /// Servers. The first rank of this process takes the connection by which they were asked for the info.
    Servers(Vec<String>, Mutex<Option<Arc<DistGraph>>>),
}

impl Partitions {
    /// Opens a folder with parts (worker mode). A machine needs the parts of its own ranks only; where there are more ranks
    /// than parts, each part has as many ranks, those that follow each other.
    ///
    /// # Errors
    /// [`Error::BadParts`] for a folder without parts, and [`Error::Partition`].
    pub fn open(folder: impl AsRef<Path>, config: PartitionsConfig) -> Result<Self> {
        let folder = folder.as_ref();
        let unreadable =
            |error: io::Error| Error::BadParts { reason: format!("{}: {error}", folder.display()) };
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
            let reason = format!("{folder} holds no part: make some by `kiln data partition`");
            return Err(Error::BadParts { reason });
        };
        let part = Part::open(part_dir(folder, first))?;
        let info = PartitionsInfo {
            n_parts: part.book.n_parts(),
            n_nodes: part.book.n_nodes(),
            n_edges: part.n_edges,
            dim: part.features.dim(),
            n_classes: part.labels.n_classes(),
            name: part.name,
            hash: part.hash,
            class_names: part.class_names,
        };
        Ok(Self { source: Source::Folder(folder.to_owned()), config, info })
    }

    /// Connects to the servers of all parts, `HOST:PORT` each (server-client mode).
    ///
    /// # Errors
    /// [`Error::NoToken`] without a token, and those of [`DistGraph::connect`].
    pub fn connect(servers: impl Into<Vec<String>>, config: PartitionsConfig) -> Result<Self> {
        let servers = servers.into();
        let graph = config.connect(&servers)?;
        let info = PartitionsInfo {
            name: graph.name().to_owned(),
            hash: graph.hash().to_owned(),
            n_parts: graph.book().n_parts(),
            n_nodes: graph.n_nodes(),
            n_edges: graph.n_edges(),
            dim: graph.dim(),
            n_classes: graph.labels().n_classes(),
            class_names: graph.class_names().to_vec(),
        };
        let source = Source::Servers(servers, Mutex::new(Some(Arc::new(graph))));
        Ok(Self { source, config, info })
    }

    /// What is known of the graph.
    pub fn info(&self) -> &PartitionsInfo {
        &self.info
    }

    /// Checks that so many ranks can share the parts: in worker mode each rank holds one.
    ///
    /// # Errors
    /// [`Error::BadParts`].
    pub fn check_ranks(&self, n_ranks: usize) -> Result<()> {
        let n_parts = self.info.n_parts;
        match &self.source {
            Source::Folder(_) if n_parts == 0 || !n_ranks.is_multiple_of(n_parts) => {
                let reason = format!(
                    "{n_ranks} ranks cannot share {n_parts} parts equally: start {n_parts} or a multiple, or partition anew"
                );
                Err(Error::BadParts { reason })
            }
            Source::Folder(_) | Source::Servers(..) => Ok(()),
        }
    }

    /// Joins the other ranks: in worker mode each serves its part, so that `local_ip` is the address by which other ranks
    /// reach this machine, unless the configuration has one. A collective; `comm` is a channel of its own, so that nothing
    /// of this waits for gradients.
    ///
    /// # Errors
    /// [`Error::BadParts`] where the ranks cannot share the parts equally, [`Error::NoHost`], and those of
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
        let PartitionsConfig { host, token, tls, rules, in_flight_bytes } = self.config.clone();
        let host = match host {
            Some(host) => host,
            None => local_ip.map_err(|reason| Error::NoHost { reason })?.to_string(),
        };
        let part = Arc::new(Part::open(part_dir(folder, part))?);
        let worker = ColocatedWorker::meet(
            comm,
            part,
            ColocatedWorkerConfig { host, token, tls, rules, in_flight_bytes },
        )?;
        Ok(JoinedPartition { graph: Arc::clone(worker.graph()), worker: Some(worker) })
    }
}

impl PartitionsConfig {
    fn connect(&self, servers: &[String]) -> Result<DistGraph> {
        let token = self.token.clone().ok_or(Error::NoToken)?;
        let Self { tls, rules, in_flight_bytes, .. } = self.clone();
        DistGraph::connect(ConnectConfig {
            tls,
            rules,
            in_flight_bytes,
            ..ConnectConfig::new(servers, token)
        })
    }
}

impl fmt::Debug for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions").field("info", &self.info).finish_non_exhaustive()
    }
}

/// A line on the graph: its name, its size and who holds it.
impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartitionsInfo { name, n_nodes, n_edges, n_parts, .. } = &self.info;
        write!(f, "{name}: {n_nodes} nodes, {n_edges} edges; ")?;
        match &self.source {
            Source::Folder(_) => write!(f, "worker mode, {n_parts} parts"),
            Source::Servers(servers, _) => write!(f, "server mode, {} servers", servers.len()),
        }
    }
}

/// A rank's way to a partitioned graph, with the part that it serves in worker mode.
#[derive(Debug)]
pub struct JoinedPartition {
    graph: Arc<DistGraph>,
    worker: Option<ColocatedWorker>,
}

impl JoinedPartition {
    /// The whole graph.
    pub fn graph(&self) -> &Arc<DistGraph> {
        &self.graph
    }

    /// In worker mode, the rank that trains on a node: one that holds its part, so that neither its edges nor its row
    /// travel. For `ItemSampler::shard_by_owner`.
    pub fn owner(&self) -> Option<impl Fn(NodeId) -> usize + Send + Sync + 'static> {
        self.worker.as_ref().map(ColocatedWorker::owner)
    }

    /// Waits until no rank asks for anything any more, for at most `deadline`, and ends what this rank serves. A collective
    /// in worker mode.
    ///
    /// # Errors
    /// [`Error::Ranks`].
    pub fn end(self, deadline: Duration) -> Result<()> {
        let Self { graph, worker } = self;
        drop(graph);
        worker.map_or(Ok(()), |worker| worker.end(deadline))
    }
}

//! The flags of `kiln train` and `kiln predict` for partitioned graphs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kiln::remote::PartitionsConfig;
use kiln::{GraphMode, PartitionedGraph};
use kiln_usage::{bail, ensure};

use crate::flags::parse;
use crate::output::print_rank_zero;

/// The processes that hold the partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Each rank trains, and serves its local partition to the other ranks.
    Worker,
    /// Dedicated servers (`kiln serve`) hold the partitions; ranks hold none.
    Server,
}

/// The flags for the location of the partitions and the access to them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Partitioned graphs, instead of --data (for --task link, besides --data)")]
pub(crate) struct PartitionArgs {
    /// Processes that hold the partitions. Default: server if --servers is given, else worker.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    #[command(flatten)]
    source: PartitionSource,
    /// Number of batches that each loader worker (--workers) prepares concurrently, to overlap network latency.
    #[arg(long, value_parser = parse::whole(1, 1024), default_value = "4")]
    pub(crate) worker_concurrency: usize,
    /// Size limit of the prefetched batches of each rank, finished or in preparation.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes, default_value = "1GiB")]
    channel_size: u64,
}

/// The flags for the partitions or their servers, and the caches of features.
#[derive(Debug, Args)]
#[command(next_help_heading = "Partitioned graphs, instead of --data")]
pub(crate) struct PartitionSource {
    /// Folder with `part0`, `part1`, ... from `kiln data partition`, for `--mode worker`. A machine needs only the
    /// partitions of its own ranks. The number of ranks must be a multiple of the number of partitions; consecutive
    /// ranks share a partition.
    #[arg(long, value_name = "DIR")]
    parts: Option<PathBuf>,
    /// Addresses of the servers of all partitions, for `--mode server`. Without certificates, the servers' token is
    /// required, in KILN_GRAPH_TOKEN or in the file that KILN_GRAPH_TOKEN_FILE names.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = parse::address)]
    servers: Vec<String>,
    /// Name or address by which other ranks reach this machine, for `--mode worker`. Default: the local address of the
    /// connection to rank 0.
    #[arg(long, value_parser = parse::host)]
    host: Option<String>,
    /// Disables the static feature cache, which holds the remote rows that were stored with the local partition.
    #[arg(long)]
    no_static_cache: bool,
    /// Size of each rank's dynamic cache of remote feature rows (SIEVE eviction), such as 256MiB.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes, default_value = "0")]
    cache_size: u64,
}

impl PartitionArgs {
    /// Returns the flags for the partitions or their servers.
    pub(crate) fn source(&self) -> &PartitionSource {
        &self.source
    }

    /// Returns true if the flags select a partitioned graph.
    pub(crate) fn are_given(&self) -> bool {
        self.source.is_given() || self.mode.is_some()
    }

    /// Returns the processes that hold the partitions, which must be the same for all processes of a job.
    pub(crate) fn holders(&self) -> &'static str {
        self.source.holders(self.mode)
    }

    /// Returns the size limit of the prefetched batches, in bytes.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.channel_size as usize
    }

    /// Opens the folder of partitions or connects to the servers, and prints a summary.
    pub(crate) fn open(
        &self,
        config: PartitionsConfig,
        graph_mode: GraphMode,
    ) -> anyhow::Result<PartitionedGraph> {
        let mode = self.mode.unwrap_or(self.source.default_mode());
        ensure!(
            mode == Mode::Worker || graph_mode == GraphMode::Host,
            "--graph-mode device and zero-copy require --mode worker: servers sample on the CPU"
        );
        let in_flight_bytes = self.queue_bytes().min(config.in_flight_bytes);
        self.source.open_in(mode, PartitionsConfig { in_flight_bytes, ..config })
    }
}

impl PartitionSource {
    /// Returns true if the flags select a partitioned graph.
    pub(crate) fn is_given(&self) -> bool {
        self.parts.is_some() || !self.servers.is_empty()
    }

    /// Returns true if servers hold the partitions.
    pub(crate) fn has_servers(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Checks that the other flags of the group were not given without a partitioned graph.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let flags = [
            ("--host", self.host.is_some()),
            ("--no-static-cache", self.no_static_cache),
            ("--cache-size", 0 < self.cache_size),
        ];
        match flags.into_iter().find(|(_, is_set)| *is_set && !self.is_given()) {
            Some((flag, _)) => {
                bail!("{flag} needs a partitioned graph: add --parts or --servers, or remove {flag}")
            }
            None => Ok(()),
        }
    }

    /// Returns the processes that hold the partitions; see [`PartitionArgs::holders`].
    pub(crate) fn holders(&self, mode: Option<Mode>) -> &'static str {
        match mode.or(self.is_given().then(|| self.default_mode())) {
            None => "none",
            Some(Mode::Worker) => "ranks (--parts)",
            Some(Mode::Server) => "servers (--servers)",
        }
    }

    fn default_mode(&self) -> Mode {
        if self.servers.is_empty() { Mode::Worker } else { Mode::Server }
    }

    /// Opens the folder of partitions, or connects to the servers if they are given, and prints a summary.
    pub(crate) fn open(&self, config: PartitionsConfig) -> anyhow::Result<PartitionedGraph> {
        self.open_in(self.default_mode(), config)
    }

    fn open_in(&self, mode: Mode, config: PartitionsConfig) -> anyhow::Result<PartitionedGraph> {
        let config = PartitionsConfig { host: self.host.clone(), ..config };
        let graph = match (mode, &self.parts, &self.servers[..]) {
            (Mode::Worker, Some(folder), []) => PartitionedGraph::open(folder, config)?,
            (Mode::Worker, ..) => {
                bail!(
                    "--mode worker needs --parts DIR, the folder with this rank's partition, and cannot be used with \
                     --servers"
                )
            }
            (Mode::Server, None, [_, ..]) => {
                ensure!(
                    self.host.is_none(),
                    "--host requires --mode worker: with servers, ranks serve no partition"
                );
                PartitionedGraph::connect(self.servers.clone(), config)?
            }
            (Mode::Server, ..) => {
                bail!(
                    "--mode server needs --servers HOST:PORT,... for all partitions, and cannot be used with --parts"
                )
            }
        };
        print_rank_zero(&graph);
        Ok(graph.static_cache(!self.no_static_cache).cache_size(self.cache_size as usize))
    }
}

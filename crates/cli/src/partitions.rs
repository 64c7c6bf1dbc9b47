//! The partitioned graphs of `kiln train`.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use kiln::comm::rpc::{Token, secret};
use kiln::remote::{FetchStats, PartitionsConfig};
use kiln::train::{EpochReport, MetricSums, StepReport, TrainCallback};
use kiln::{GraphMode, JoinedGraph, NeighborLoader, PartitionedGraph, RankHandle};

use crate::flags;
use crate::output::print_rank_zero;
use crate::ranks::TlsArgs;

/// Who holds the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The ranks: each holds a part, which it serves to the others, and trains.
    Worker,
    /// Servers (`kiln serve`): ranks hold none.
    Server,
}

/// Where the parts of the graph are, and how they are reached.
#[derive(Debug, Args)]
#[command(next_help_heading = "Partitioned graphs, in the place of --data")]
pub(crate) struct PartitionArgs {
    /// Who holds the parts; if not given, servers with --servers and otherwise ranks.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// With `--mode worker`: folder with `part0`, `part1`, ... (`kiln data partition`). A machine needs those of its own ranks only; where there are more ranks than parts, each part has as many ranks, those that follow each other.
    #[arg(long, value_name = "DIR")]
    parts: Option<PathBuf>,
    /// With `--mode server`: the servers of all parts. They want a token, in KILN_GRAPH_TOKEN or a file that KILN_GRAPH_TOKEN_FILE names, unless there are certificates.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    servers: Vec<String>,
    /// With `--mode worker`: name or address of this machine, by which other ranks reach it; if not given, the address from which it reaches rank 0.
    #[arg(long, value_parser = flags::host)]
    host: Option<String>,
    /// Asks for the feature rows that are kept beside the own part, too, as if they were not.
    #[arg(long)]
    no_static_cache: bool,
    /// Bytes of other rows to keep as they come, as in 256MiB: those that are asked for again stay (SIEVE).
    #[arg(long, value_parser = kiln::data::convert::parse_bytes, default_value = "0")]
    cache_size: u64,
    /// Batches that each of the --workers prepares at once, most of which wait for the network.
    #[arg(long, value_parser = flags::threads, default_value = "4")]
    pub(crate) worker_concurrency: usize,
    /// Bytes of batches that may be finished or in preparation.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes, default_value = "1GiB")]
    channel_size: u64,
}

impl PartitionArgs {
    /// Whether the graph is partitioned.
    pub(crate) fn are_given(&self) -> bool {
        self.parts.is_some() || !self.servers.is_empty() || self.mode.is_some()
    }

    /// Bytes of batches that may be finished or in preparation.
    pub(crate) fn queue_bytes(&self) -> usize {
        self.channel_size as usize
    }

    /// Opens the parts, or asks the servers.
    pub(crate) fn open(&self, tls: &TlsArgs, graph_mode: GraphMode) -> anyhow::Result<PartitionedGraph> {
        let default = if self.servers.is_empty() { Mode::Worker } else { Mode::Server };
        let config = PartitionsConfig {
            host: self.host.clone(),
            token: graph_token(tls)?,
            tls: tls.files()?,
            in_flight_bytes: self.queue_bytes().min(256 << 20),
            ..PartitionsConfig::default()
        };
        let graph = match (self.mode.unwrap_or(default), &self.parts, &self.servers[..]) {
            (Mode::Worker, Some(folder), []) => PartitionedGraph::open(folder, config)?,
            (Mode::Worker, ..) => {
                bail!("--mode worker needs --parts DIR, the folder with this rank's part, and no --servers")
            }
            (Mode::Server, None, [_, ..]) => {
                ensure!(
                    self.host.is_none(),
                    "--host is for --mode worker: with servers, ranks serve nothing"
                );
                ensure!(
                    graph_mode == GraphMode::Host,
                    "--graph-mode device and zero-copy are for --mode worker: servers sample on their processors"
                );
                PartitionedGraph::connect(self.servers.clone(), config)?
            }
            (Mode::Server, ..) => {
                bail!("--mode server needs --servers HOST:PORT,..., those of all parts, and no --parts")
            }
        };
        print_rank_zero(&graph);
        Ok(graph.static_cache(!self.no_static_cache).cache_size(self.cache_size as usize))
    }
}

/// The word between graph servers and their clients, as the environment has it. With certificates it may be left out.
pub(crate) fn graph_token(tls: &TlsArgs) -> anyhow::Result<Option<Token>> {
    // What servers and clients take that have certificates instead.
    const CERTIFICATES: &str = "certificates-in-place-of-a-token";
    let word = secret("KILN_GRAPH_TOKEN", |name| std::env::var(name).ok())?;
    let word = word.or(tls.files()?.map(|_| CERTIFICATES.to_owned()));
    Ok(word.map(|word| Token::new(&word)).transpose()?)
}

/// Prints where the own part is sampled, and how much memory the graph takes at most, which is what grows with it.
pub(crate) fn print_memory(joined: &JoinedGraph, workers: usize, queue_bytes: usize, mode: GraphMode) {
    let n_nodes = joined.graph.n_nodes();
    // Each worker numbers nodes by a table of all: those of the loaders to train, to validate and to test.
    let tables = 3 * workers.max(1) * 8 * n_nodes;
    // Where a device samples, the own part by nodes.
    let by_node = if mode == GraphMode::Host { 0 } else { 8 * n_nodes };
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    let graph = mib(joined.graph.memory_bytes() + joined.features.memory_bytes() + tables + by_node);
    let batches = mib(queue_bytes);
    let (besides, place) = match mode {
        GraphMode::Host => ("", None),
        GraphMode::Device => (", and the own part on the device", Some("are on the device")),
        GraphMode::ZeroCopy => {
            (", and the neighbours of each hop that is sampled", Some("stay with the host"))
        }
    };
    if let (Some(part), Some(place)) = (joined.graph.part(), place) {
        let (index, n_edges) = (part.index, part.graph.n_edges());
        print_rank_zero(format_args!("sampling        of part {index}, {n_edges} edges {place}"));
    }
    print_rank_zero(format_args!(
        "memory          at most {graph} MiB for the graph, {batches} MiB of batches ahead, a rank; and the step's{besides}"
    ));
}

/// Prints a line an epoch for each rank, with the traffic of training; that of validation is left out.
pub(crate) struct TrafficLines {
    rank: usize,
    joined: Option<JoinedGraph>,
    stats: Cell<FetchStats>,
}

impl TrafficLines {
    /// The lines of a rank and its loader.
    pub(crate) fn new(rank: &RankHandle, loader: &NeighborLoader) -> Self {
        let (rank, joined) = (rank.index(), loader.partition().cloned());
        Self { rank, joined, stats: Cell::default() }
    }

    fn take(&self) -> FetchStats {
        self.joined.as_ref().map(|joined| joined.graph.take_fetch_stats()).unwrap_or_default()
    }
}

impl TrainCallback for TrafficLines {
    fn started(&mut self, _: &kiln::train::Run, _: usize) {
        self.take();
    }

    fn step(&mut self, _: &StepReport) {}

    fn epoch_trained(&mut self, _: &EpochReport) {
        self.stats.set(self.take());
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, _: &MetricSums, _: bool) {
        self.take();
        let (rank, loss, seconds) = (self.rank, train.counts.loss(), train.wall.as_secs_f64());
        let stats = self.stats.get();
        // Of every process, not of the first one alone.
        let line = format!("trainer {rank}  epoch {epoch:3}  loss {loss:.4}  {seconds:.2} s  {stats}");
        let _ = writeln!(io::stdout(), "{line}");
    }
}

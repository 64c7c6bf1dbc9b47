//! The ranks of `kiln train` and `kiln predict`: threads of this process, or processes that a launcher started.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use kiln::comm::rpc::{Tls, Token, ensure_private, secret};
use kiln::comm::{CommBackend, LaunchEnv, LaunchFlags, MasterAddress, ThreadRanks};
use kiln::kernels::{Devices, is_cpu};
use kiln::loader::{LoaderConfig, UnevenShards};
use kiln::remote::PartitionsConfig;
use kiln::train::BatchConfig;
use kiln::{Error, PartitionedGraph, RankConfig, RankCount};
use kiln_usage::ensure;

use crate::flags::partitions::PartitionSource;
use crate::flags::{GivenFlags, list_names, parse};
use crate::output::print_note_lines;

/// The flags for the ranks of a job and their devices.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ranks")]
pub(crate) struct JobArgs {
    /// Number of ranks, each a thread with its own replica of the model. `auto` is one rank per device, or on the CPU
    /// the number of cores divided by --threads-per-rank. With --parts, `auto` is the largest multiple of the number of
    /// partitions that is at most this number.
    #[arg(long, default_value = "1")]
    ranks: RankCount,
    /// The number of ranks for `--ranks auto`, once the graph whose partitions they share is open.
    #[arg(skip)]
    n_sharing: OnceLock<usize>,
    /// Compute threads of each rank. Default: the rank's share of the cores.
    #[arg(long, value_parser = parse::whole(1, 1024))]
    threads_per_rank: Option<usize>,
    /// Seconds that ranks wait for a missing rank before all ranks fail, and for progress of a request to a server of
    /// partitions. Default: 600, or 120 if ranks are processes; 60 for servers.
    #[arg(long, value_parser = parse::size)]
    deadline: Option<usize>,
    /// Compute devices: `cpu`, or with the feature of that name `cuda`, `wgpu` or `cube-cpu`. `cuda` is all n GPUs;
    /// local rank i uses GPU i mod n. `cuda:1` is one GPU, `cuda:0,cuda:2` are two.
    #[arg(long, default_value = "cpu")]
    pub(crate) device: Devices,
    #[command(flatten)]
    launch: LaunchArgs,
}

/// The flags for ranks, batches and devices.
#[derive(Debug, Args)]
#[command(next_help_heading = "Batches")]
pub(crate) struct RankArgs {
    /// Nodes, links or graphs in a batch of one rank. Default: 1024 nodes or links, or 32 graphs.
    #[arg(long, value_parser = parse::size)]
    batch_size: Option<usize>,
    /// Drops the last step of an epoch if it has fewer items than a full batch for each rank.
    #[arg(long)]
    drop_last: bool,
    /// Policy for a last step whose number of items is not a multiple of the number of ranks.
    #[arg(long, default_value = "join", value_parser = parse::choice([
        ("join", "Uses all items; some ranks get one item more", UnevenShards::Join),
        ("drop", "Drops the last items", UnevenShards::Drop),
        ("pad", "Repeats the first items of the epoch", UnevenShards::Pad),
    ]))]
    uneven: UnevenShards,
    /// Seed of item order, sampling, initial weights, dropout, synthetic data and random
    /// splits of graphs and links.
    #[arg(long, default_value = "0")]
    pub(crate) seed: u64,
    /// Loader threads of each rank, in addition to its compute threads; 0 prepares each batch between the steps.
    /// Default: 1 if a rank has several compute threads or is the only one, otherwise 0; for a
    /// partitioned graph 2.
    #[arg(long, value_parser = parse::whole(0, 1024))]
    pub(crate) workers: Option<usize>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// The flags by which ranks that are processes find each other.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Ranks that are processes (read from the environment of torchrun, mpirun or srun)"
)]
pub(crate) struct LaunchArgs {
    /// Rank of this process.
    #[arg(long)]
    rank: Option<usize>,
    /// Number of processes.
    #[arg(long)]
    world_size: Option<usize>,
    /// Rank of this process among those of its machine, which selects its device.
    #[arg(long)]
    local_rank: Option<usize>,
    /// Address at which rank 0 listens for the other ranks.
    #[arg(long, value_name = "HOST:PORT")]
    master: Option<MasterAddress>,
    /// Backend of the collectives.
    #[arg(long, default_value = "auto", value_parser = parse::choice([
        ("auto", "MPI if it is built in, otherwise NCCL; joining fails if it does not work", CommBackend::Auto),
        ("mpi", "MPI (feature `mpi`)", CommBackend::Mpi),
        ("nccl", "NCCL, one GPU per rank (feature `nccl`)", CommBackend::Nccl),
        ("store", "Through rank 0: needs no library, suits small models only", CommBackend::Store),
    ]))]
    engine: CommBackend,
    /// Seconds that a process waits for all others to join, and for the servers of partitions to start.
    #[arg(long, value_parser = parse::size, default_value = "300")]
    join_within: usize,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The flags for mutual TLS between processes.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// PEM file with the certificate of the authority that signed the certificates of all processes (feature `tls`).
    #[arg(long, requires = "tls_cert", requires = "tls_key")]
    tls_ca: Option<PathBuf>,
    /// PEM file with the certificate of this process.
    #[arg(long, requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the private key of --tls-cert, readable only by its owner.
    #[arg(long, requires = "tls_ca")]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the TLS files if the flags were given. Rejects a key file that other users can read.
    pub(crate) fn files(&self) -> anyhow::Result<Option<Tls>> {
        let Self { tls_ca: Some(ca), tls_cert: Some(cert), tls_key: Some(key) } = self else {
            return Ok(None);
        };
        ensure_private("--tls-key", key)?;
        Ok(Some(Tls { authority: ca.clone(), certificate: cert.clone(), key: key.clone() }))
    }

    /// Returns the token that graph servers and their clients share, from the environment. It is optional with certificates.
    pub(crate) fn graph_token(&self) -> anyhow::Result<Option<Token>> {
        // The protocol always has a token. Servers and clients that authenticate by certificates use this constant.
        const CERTIFICATES: &str = "certificates-in-place-of-a-token";
        let word = secret("KILN_GRAPH_TOKEN", |name| std::env::var(name).ok())?;
        let word = word.or(self.files()?.map(|_| CERTIFICATES.to_owned()));
        Ok(word.map(|word| Token::new(&word)).transpose()?)
    }
}

impl JobArgs {
    /// Returns the launch environment of this process, or `None` if it is the only process.
    pub(crate) fn launch(&self) -> anyhow::Result<Option<LaunchEnv>> {
        let &LaunchArgs { rank, world_size, local_rank, ref master, .. } = &self.launch;
        let flags = LaunchFlags { rank, world_size, local_rank, master: master.clone() };
        // A launcher that started a single process is ignored, so the user may set --ranks.
        let launch = LaunchEnv::detect(&flags, |name| std::env::var(name).ok())?;
        Ok(launch.filter(|launch| 1 < launch.world_size))
    }

    /// Returns the configuration of this process's ranks: one rank if a launcher started it, otherwise threads.
    pub(crate) fn config(&self, launch: Option<&LaunchEnv>) -> anyhow::Result<RankConfig> {
        let LaunchArgs { engine, join_within, tls, .. } = &self.launch;
        let has_nccl = cfg!(feature = "nccl") || launch.is_some() || *engine != CommBackend::Nccl;
        ensure!(has_nccl, "--engine nccl needs the feature `nccl`, which this build lacks");
        let mut config = match launch {
            Some(launch) => {
                let n = launch.world_size;
                ensure!(
                    self.ranks == RankCount::Auto || [1, n].contains(&self.n_threads()),
                    "this process is {launch}, because each process is one rank: use --ranks {n}"
                );
                let mut config = RankConfig::process(launch.clone());
                if let Some(cuda_device) = self.device.cuda_index(launch.local_rank) {
                    config = config.cuda_device(cuda_device);
                }
                if let Some(token) = secret("KILN_JOB_TOKEN", |name| std::env::var(name).ok())? {
                    config = config.token(token);
                }
                config
            }
            None => RankConfig::threads(self.n_threads()),
        };
        config = config
            .backend(*engine)
            .join_within(Duration::from_secs(*join_within as u64))
            .version(env!("CARGO_PKG_VERSION"));
        if let Some(seconds) = self.deadline {
            config = config.deadline(Duration::from_secs(seconds as u64));
        }
        if let Some(threads) = self.threads_per_rank {
            config = config.threads_per_rank(threads);
        }
        if let Some(tls) = tls.files()? {
            config = config.tls(tls);
        }
        Ok(config)
    }

    /// Prints notes about the given flags that a single process or a single rank does not read. On partitions, ranks read the
    /// certificates, and wait for the servers of partitions.
    pub(crate) fn note_unused(
        &self,
        given: &GivenFlags,
        launch: Option<&LaunchEnv>,
        partitions: &PartitionSource,
    ) {
        if launch.is_some() {
            return;
        }
        let mut unused = list_names::<LaunchArgs>();
        unused.retain(|flag| !(partitions.is_given() && flag.starts_with("tls-")));
        unused.retain(|flag| !(partitions.has_servers() && flag == "join-within"));
        if self.launch.engine == CommBackend::Nccl {
            unused.retain(|flag| flag != "engine");
        }
        let unused: Vec<&str> = unused.iter().map(String::as_str).collect();
        print_note_lines(given.note_unused(&unused, "in a single process"));
        if self.n_threads() == 1 {
            let unused = if partitions.has_servers() { &["uneven"][..] } else { &["deadline", "uneven"] };
            print_note_lines(given.note_unused(unused, "on a single rank"));
        }
    }

    /// Returns the configuration of the connections to the servers of partitions, of this process and other ranks.
    pub(crate) fn partitions_config(&self) -> anyhow::Result<PartitionsConfig> {
        let LaunchArgs { tls, join_within, .. } = &self.launch;
        let default = PartitionsConfig::default();
        Ok(PartitionsConfig {
            token: tls.graph_token()?,
            tls: tls.files()?,
            deadline: self.deadline.map_or(default.deadline, |seconds| Duration::from_secs(seconds as u64)),
            join_within: Duration::from_secs(*join_within as u64),
            ..default
        })
    }

    /// Returns the number of ranks that are threads of this process.
    fn n_threads(&self) -> usize {
        let is_on_cpu = self.device.len() == 1 && is_cpu(&self.device.of_rank(0).device);
        let n_cores = ThreadRanks::of(1).threads_per_rank;
        match (self.ranks, self.n_sharing.get()) {
            (RankCount::Auto, Some(n_ranks)) => *n_ranks,
            (RankCount::Auto, None) if is_on_cpu => (n_cores / self.threads_per_rank.unwrap_or(1)).max(1),
            (ranks, _) => ranks.on(&self.device),
        }
    }

    /// Checks that the ranks can share the partitions of a graph equally, after choosing the number of ranks for
    /// `--ranks auto`.
    ///
    /// # Errors
    /// Returns the error of [`PartitionedGraph::check_ranks`].
    pub(crate) fn share_partitions(
        &self,
        graph: &PartitionedGraph,
        launch: Option<&LaunchEnv>,
    ) -> kiln::Result<()> {
        self.n_sharing.get_or_init(|| graph.ranks_within(self.n_threads()));
        graph.check_ranks(self.n_ranks(launch))
    }

    /// Returns the number of ranks of the job.
    pub(crate) fn n_ranks(&self, launch: Option<&LaunchEnv>) -> usize {
        launch.map_or_else(|| self.n_threads(), |launch| launch.world_size)
    }
}

impl RankArgs {
    /// Returns the batch settings, with the default batch size of the task.
    pub(crate) fn batches(&self, is_of_graphs: bool) -> BatchConfig {
        let batch_size = self.batch_size.unwrap_or(if is_of_graphs { 32 } else { 1024 });
        BatchConfig { batch_size, shuffle: true, drop_last: self.drop_last, uneven: self.uneven }
    }

    /// Returns the number of loader workers for a partitioned graph: `--workers` times the batches that each prepares
    /// at once, at most 1024.
    pub(crate) fn remote_workers(&self, concurrency: usize) -> usize {
        const MAX_WORKERS: usize = 1024;
        let default = LoaderConfig::default().workers.max(2);
        (self.workers.unwrap_or(default) * concurrency).min(MAX_WORKERS)
    }
}

/// Returns an error of the program as an error of a rank.
pub(crate) fn convert_error(error: anyhow::Error) -> Error {
    error.downcast().unwrap_or_else(|error| Error::Other(error.into()))
}

#[cfg(test)]
#[path = "../../tests/flags/ranks.rs"]
mod tests;

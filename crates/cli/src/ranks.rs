//! The ranks of `kiln train`: threads of this process, or processes that a launcher started.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use kiln::RankConfig;
use kiln::comm::rpc::{Tls, ensure_private, secret};
use kiln::comm::{CommBackend, LaunchEnv, LaunchFlags, MasterAddress, ThreadRanks};
use kiln::kernels::Devices;
use kiln::loader::{LoaderConfig, UnevenShards};
use kiln::train::BatchConfig;

use crate::flags;

/// A number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RankCount {
    /// One per device; on the CPU, as many as the cores have room for.
    Auto,
    Exactly(usize),
}

/// Where and how the program runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Ranks and batches")]
pub(crate) struct RankArgs {
    /// Number of ranks that train together, each a thread with a model of its own; `auto` is one rank per device, or on the CPU the number of cores divided by --threads-per-rank.
    #[arg(long, value_parser = flags::ranks, default_value = "1")]
    ranks: RankCount,
    /// Threads that compute in each rank; its share of the cores if not given.
    #[arg(long, value_parser = flags::threads)]
    threads_per_rank: Option<usize>,
    /// Seconds that ranks wait for one that does not come, before all of them give up; if not given, 600, and 120 where ranks are processes.
    #[arg(long, value_parser = flags::size)]
    deadline: Option<usize>,
    /// Nodes or graphs in a batch of one rank: 1024 if not given, and 32 graphs.
    #[arg(long, value_parser = flags::size)]
    batch_size: Option<usize>,
    /// Leaves out the last step of an epoch, if it has fewer items than a batch for each rank.
    #[arg(long)]
    drop_last: bool,
    /// What happens to the items of an epoch's last step that do not divide by the number of ranks.
    #[arg(long, default_value = "join", value_parser = flags::choice([
        ("join", "All are used, some ranks get one more than others", UnevenShards::Join),
        ("drop", "The last ones are left out", UnevenShards::Drop),
        ("pad", "The first ones of the epoch are used once more", UnevenShards::Pad),
    ]))]
    uneven: UnevenShards,
    /// Seed of the order, the samples, the initial weights and dropout, and of the split of a set of graphs.
    #[arg(long, default_value = "0")]
    pub(crate) seed: u64,
    /// Threads of each rank that sample and gather ahead, besides those that compute; 0 does so between the steps. If not given, 1 where a rank computes on several threads, or there is one rank; with partitions 2.
    #[arg(long, value_parser = flags::workers)]
    pub(crate) workers: Option<usize>,
    /// Device that computes: `cpu`, or with the feature of that name `cuda`, `wgpu` or `cube-cpu`. `cuda` is all GPUs: the rank with local rank i takes GPU i mod n. `cuda:1` is one of them, `cuda:0,cuda:2` are two.
    #[arg(long, value_parser = |names: &str| Devices::open(names), default_value = "cpu")]
    pub(crate) device: Devices,
    #[command(flatten)]
    launch: LaunchArgs,
}

/// How this process finds the others, where ranks are processes.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Ranks that are processes (read from the environment of torchrun, mpirun or srun)"
)]
struct LaunchArgs {
    /// This process among all.
    #[arg(long)]
    rank: Option<usize>,
    /// Processes that train together.
    #[arg(long)]
    world_size: Option<usize>,
    /// This process among those of its machine: which of its devices it takes.
    #[arg(long)]
    local_rank: Option<usize>,
    /// Where rank 0 serves the others.
    #[arg(long, value_name = "HOST:PORT")]
    master: Option<MasterAddress>,
    /// What carries gradients.
    #[arg(long, default_value = "auto", value_parser = flags::choice([
        ("auto", "The first of mpi and nccl that was built in and works on this machine", CommBackend::Auto),
        ("mpi", "MPI (feature `mpi`)", CommBackend::Mpi),
        ("nccl", "NCCL, one GPU a rank (feature `nccl`)", CommBackend::Nccl),
        ("store", "The first process; needs nothing, and is for small models", CommBackend::Store),
    ]))]
    engine: CommBackend,
    /// Seconds that a process waits for all others to start.
    #[arg(long, value_parser = flags::size, default_value = "300")]
    join_within: usize,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Certificates, which this process shows others and expects of them.
#[derive(Debug, Args)]
pub(crate) struct TlsArgs {
    /// Certificate of the authority that has signed those of all processes, as PEM (feature `tls`).
    #[arg(long, requires = "tls_cert", requires = "tls_key")]
    tls_ca: Option<PathBuf>,
    /// Certificate that this process shows.
    #[arg(long, requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Its private key.
    #[arg(long, requires = "tls_ca")]
    tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// The files, if they were given. A key that others can read is refused.
    pub(crate) fn files(&self) -> anyhow::Result<Option<Tls>> {
        let Self { tls_ca: Some(ca), tls_cert: Some(cert), tls_key: Some(key) } = self else {
            return Ok(None);
        };
        ensure_private("--tls-key", key)?;
        Ok(Some(Tls { authority: ca.clone(), certificate: cert.clone(), key: key.clone() }))
    }
}

impl RankArgs {
    /// How this process was started, where it is one of several.
    pub(crate) fn launch(&self) -> anyhow::Result<Option<LaunchEnv>> {
        let &LaunchArgs { rank, world_size, local_rank, ref master, .. } = &self.launch;
        let flags = LaunchFlags { rank, world_size, local_rank, master: master.clone() };
        // A world of one process needs no other.
        let launch = LaunchEnv::detect(&flags, |name| std::env::var(name).ok())?;
        Ok(launch.filter(|launch| 1 < launch.world_size))
    }

    /// The ranks of this process, for a process that was started so.
    pub(crate) fn config(&self, launch: Option<&LaunchEnv>) -> anyhow::Result<RankConfig> {
        let LaunchArgs { engine, join_within, tls, .. } = &self.launch;
        let has_nccl = cfg!(feature = "nccl") || launch.is_some() || *engine != CommBackend::Nccl;
        ensure!(has_nccl, "--engine nccl needs the feature `nccl`, which this build leaves out");
        let mut config = match launch {
            Some(launch) => {
                let has_threads = self.ranks != RankCount::Auto && self.n_threads() != 1;
                ensure!(!has_threads, "{launch}: leave out --ranks, each process is a rank");
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

    /// The certificates of this process.
    pub(crate) fn tls(&self) -> &TlsArgs {
        &self.launch.tls
    }

    /// Ranks that are threads of this process.
    fn n_threads(&self) -> usize {
        let device = &self.device.of_rank(0).device;
        match self.ranks {
            RankCount::Exactly(n_ranks) => n_ranks,
            RankCount::Auto if self.device.len() == 1 && kiln::kernels::is_cpu(device) => {
                (ThreadRanks::of(1).threads_per_rank / self.threads_per_rank.unwrap_or(1)).max(1)
            }
            RankCount::Auto => self.device.len(),
        }
    }

    /// Ranks that train together.
    pub(crate) fn n_ranks(&self, launch: Option<&LaunchEnv>) -> usize {
        launch.map_or_else(|| self.n_threads(), |launch| launch.world_size)
    }

    /// How items become a rank's batches.
    pub(crate) fn batches(&self, is_of_graphs: bool) -> BatchConfig {
        let batch_size = self.batch_size.unwrap_or(if is_of_graphs { 32 } else { 1024 });
        BatchConfig { batch_size, shuffle: true, drop_last: self.drop_last, uneven: self.uneven }
    }

    /// The workers that prepare batches of a partitioned graph.
    pub(crate) fn remote_workers(&self, concurrency: usize) -> usize {
        const MAX_WORKERS: usize = 1024;
        let default = LoaderConfig::default().workers.max(2);
        (self.workers.unwrap_or(default) * concurrency).min(MAX_WORKERS)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        ranks: RankArgs,
    }

    fn n_ranks(flags: &str) -> usize {
        let words = ["program"].into_iter().chain(flags.split_whitespace());
        Program::try_parse_from(words).expect("these flags should be understood").ranks.n_ranks(None)
    }

    #[test]
    fn auto_is_one_rank_per_device_or_the_cores() {
        assert_eq!(n_ranks("--ranks 3"), 3);
        assert_eq!(n_ranks("--ranks auto --device cpu,cpu,cpu"), 3);
        let n_cores = ThreadRanks::of(1).threads_per_rank;
        assert_eq!(n_ranks("--ranks auto"), n_cores);
        assert_eq!(n_ranks("--ranks auto --threads-per-rank 2"), (n_cores / 2).max(1));
        assert!(Program::try_parse_from(["program", "--ranks", "all"]).is_err());
    }
}

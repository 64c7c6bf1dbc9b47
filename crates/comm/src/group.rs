use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

#[cfg(feature = "grpc")]
use crate::ProcessGroup;
use crate::config::Start;
use crate::{
    BoxError, CommBackend, Communicator, EngineError, JobError, RankConfig, RankError, RankInfo, ThreadRanks,
};

/// One rank of a program.
#[derive(Debug)]
pub struct Rank {
    /// The communicator of all ranks.
    pub comm: Box<dyn Communicator>,
    /// The position of this rank in the world and on its machine.
    pub info: RankInfo,
    /// The number of threads of this rank's pool, which runs its data-parallel loops.
    pub threads: usize,
}

/// The joined ranks of this process, before they run.
#[derive(Debug)]
#[non_exhaustive]
pub enum RankGroup {
    /// All ranks, which are threads of this process.
    Threads(ThreadRanks),
    /// One rank, which is this process; the others have joined too.
    #[cfg(feature = "grpc")]
    Process(ProcessGroup),
}

/// Starts the ranks as threads, or joins the processes that a launcher started. Then runs `body` once on each rank of
/// this process. Returns the results in the order of the ranks if these are threads, otherwise the single result of
/// this process.
///
/// Once it has joined, a process ends with its job: if any rank fails or is lost, `launch` does not return, and the
/// process exits with [`EXIT_FAILED`](crate::EXIT_FAILED) or [`EXIT_RETRY`](crate::EXIT_RETRY). The latter is used if a
/// rank is lost or its body returns a [`TransientError`](crate::TransientError). To do work between joining and
/// running, call [`RankGroup::join`] and [`RankGroup::run`] instead.
///
/// # Errors
/// Returns [`RankError::Join`] if joining fails, and the errors of [`ThreadRanks::run`]. A program that a launcher
/// restarts should exit with [`RankError::exit_status`].
pub fn launch<R: Send, E: Into<BoxError>>(
    config: RankConfig,
    body: impl Fn(Rank) -> Result<R, E> + Sync,
) -> Result<Vec<R>, RankError> {
    RankGroup::join(config)?.run(body)
}

impl RankGroup {
    /// Joins the other processes, and returns when all have joined. Returns at once if the ranks are threads.
    ///
    /// # Errors
    /// Returns an error if the launcher's variables are incomplete or contradictory, if there are several processes and
    /// the feature `grpc` is off, if the engine, the token or a certificate cannot be used, or if rank 0 cannot be
    /// reached. If one of the processes does not join in time or was started with different settings, all of them get
    /// an error.
    pub fn join(mut config: RankConfig) -> Result<Self, JobError> {
        match std::mem::replace(&mut config.start, Ok(Start::Threads(0)))? {
            Start::Threads(_) if config.engine == CommBackend::Nccl && cfg!(not(feature = "nccl")) => {
                Err(JobError::Engine(EngineError::NotBuilt { engine: "nccl" }))
            }
            Start::Threads(n_ranks) => {
                let ranks = ThreadRanks::of(n_ranks);
                let threads_per_rank = config.threads_per_rank.unwrap_or(ranks.threads_per_rank);
                let deadline = config.deadline.unwrap_or(ranks.deadline);
                Ok(Self::Threads(ThreadRanks { n_ranks, threads_per_rank, deadline }))
            }
            #[cfg(feature = "grpc")]
            Start::Process(launch) => ProcessGroup::join(launch, config).map(Self::Process),
            #[cfg(not(feature = "grpc"))]
            Start::Process(launch) => Err(JobError::NoProcesses { launch: launch.to_string() }),
        }
    }

    /// Returns the number of threads of each rank's pool.
    pub fn threads(&self) -> usize {
        match self {
            Self::Threads(ranks) => ranks.threads_per_rank,
            #[cfg(feature = "grpc")]
            Self::Process(job) => job.threads(),
        }
    }

    /// Returns the number of threads for work that one rank of this machine does while the others wait.
    pub fn machine_threads(&self) -> usize {
        match self {
            Self::Threads(ranks) => ranks.n_ranks.saturating_mul(ranks.threads_per_rank),
            #[cfg(feature = "grpc")]
            Self::Process(job) => job.machine_threads(),
        }
    }

    /// Returns the maximum time that a rank waits in a collective.
    pub fn deadline(&self) -> Duration {
        match self {
            Self::Threads(ranks) => ranks.deadline,
            #[cfg(feature = "grpc")]
            Self::Process(job) => job.deadline(),
        }
    }

    /// Returns the address at which other ranks reach servers of this process.
    ///
    /// # Errors
    /// Returns [`JobError::NoAddress`] if there is no address that ranks on other machines can reach.
    pub fn local_ip(&self) -> Result<IpAddr, JobError> {
        match self {
            Self::Threads(_) => Ok(Ipv4Addr::LOCALHOST.into()),
            #[cfg(feature = "grpc")]
            Self::Process(job) => job.local_ip(),
        }
    }

    /// Runs `body` once on each rank of this process, as [`launch`] does.
    ///
    /// # Errors
    /// Returns the errors of [`ThreadRanks::run`] if the ranks are threads. A process exits instead.
    pub fn run<R: Send, E: Into<BoxError>>(
        self,
        body: impl Fn(Rank) -> Result<R, E> + Sync,
    ) -> Result<Vec<R>, RankError> {
        let threads = self.threads();
        let body = |comm: Box<dyn Communicator>| {
            let info = comm.rank_info();
            body(Rank { comm, info, threads }).map_err(Into::into)
        };
        match self {
            Self::Threads(ranks) => ranks.run(body),
            #[cfg(feature = "grpc")]
            Self::Process(job) => Ok(vec![job.run(body)]),
        }
    }
}

/// Formats a one-line summary: the number of ranks and, for processes, their launcher, machines and engine.
impl fmt::Display for RankGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(ranks) => write!(f, "{} ranks, threads of one process", ranks.n_ranks),
            #[cfg(feature = "grpc")]
            Self::Process(job) => job.fmt(f),
        }
    }
}

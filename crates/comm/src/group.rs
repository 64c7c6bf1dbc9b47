#[cfg(feature = "grpc")]
use std::net::{IpAddr, Ipv4Addr};

#[cfg(feature = "grpc")]
use crate::ProcessGroup;
use crate::config::Start;
use crate::{BoxError, Communicator, JobError, RankConfig, RankError, RankInfo, ThreadRanks};

/// One rank of a program.
#[derive(Debug)]
pub struct Rank {
    /// The way to the other ranks.
    pub comm: Box<dyn Communicator>,
    /// The number of this rank, of all ranks and of those of its machine.
    pub info: RankInfo,
    /// The number of threads of this rank's pool, in which its data-parallel loops run.
    pub threads: usize,
}

/// The ranks of this process, before they run.
#[derive(Debug)]
#[non_exhaustive]
pub enum RankGroup {
    /// Threads of this process.
    Threads(ThreadRanks),
    /// This process, of several that have joined.
    #[cfg(feature = "grpc")]
    Process(ProcessGroup),
}

/// Starts the ranks as threads, or joins the processes that a launcher started, runs `body` once on each rank of this
/// process, and returns the results by rank: of all ranks that are threads, or of this process's one.
///
/// From joining on, a process ends with its job: where another rank fails or is lost, `launch` does not return, and the
/// process exits with [`EXIT_FAILED`](crate::EXIT_FAILED) or [`EXIT_RETRY`](crate::EXIT_RETRY). A body that returns a
/// [`TransientError`](crate::TransientError) asks for the latter. A program that has something to do between joining and
/// running calls [`RankGroup::join`] and [`RankGroup::run`].
///
/// # Errors
/// [`RankError::Join`] where the ranks could not be joined, and those of [`ThreadRanks::run`]. A program that launchers
/// start again should exit with [`RankError::exit_status`].
pub fn launch<R: Send, E: Into<BoxError>>(
    config: RankConfig,
    body: impl Fn(Rank) -> Result<R, E> + Sync,
) -> Result<Vec<R>, RankError> {
    RankGroup::join(config)?.run(body)
}

impl RankGroup {
    /// Joins the other processes, and returns when all have; threads have nothing to join.
    ///
    /// # Errors
    /// When the launcher's variables are incomplete or contradict each other, when this process is one of several and the
    /// program was built without the feature `grpc`, when there is no engine, when rank 0 cannot be reached, and when
    /// processes do not join in time or were started differently: then all of them get the error.
    pub fn join(mut config: RankConfig) -> Result<Self, JobError> {
        match std::mem::replace(&mut config.start, Ok(Start::Threads(0)))? {
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

    /// The number of threads of each rank's pool.
    pub fn threads(&self) -> usize {
        match self {
            Self::Threads(ranks) => ranks.threads_per_rank,
            #[cfg(feature = "grpc")]
            Self::Process(job) => job.threads(),
        }
    }

    /// The address by which other ranks reach what this process serves.
    ///
    /// # Errors
    /// [`JobError::NoAddress`] where there is none that those of other machines could use.
    #[cfg(feature = "grpc")]
    pub fn local_ip(&self) -> Result<IpAddr, JobError> {
        match self {
            Self::Threads(_) => Ok(Ipv4Addr::LOCALHOST.into()),
            Self::Process(job) => job.local_ip(),
        }
    }

    /// Runs `body` once on each rank of this process, as [`launch`] does.
    ///
    /// # Errors
    /// Those of [`ThreadRanks::run`]; none where ranks are processes.
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

use std::fmt;
use std::time::Duration;

#[cfg(feature = "grpc")]
use crate::rpc::{Tls, secret};
use crate::{JobError, LaunchEnv, LaunchFlags};

/// The transport of collectives between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CommBackend {
    /// The first of MPI and NCCL that was built in and works on this machine.
    #[default]
    Auto,
    /// MPI.
    Mpi,
    /// NCCL, one GPU a process.
    Nccl,
    /// The first process, over the connection by which the processes meet: nothing else is needed, everything goes
    /// through one machine. For small models, and to try things out.
    Store,
}

/// The ranks of a program: threads of this process, or processes of which this is one; and how long they wait for each
/// other.
///
/// ```
/// use kiln_comm::{RankConfig, RankError, launch};
/// let ranks = launch(RankConfig::threads(2).threads_per_rank(1), |rank| Ok::<_, RankError>(rank.info.rank))?;
/// assert_eq!(ranks, [0, 1]);
/// # Ok::<(), RankError>(())
/// ```
#[cfg_attr(
    not(feature = "grpc"),
    allow(dead_code, reason = "processes are refused before they read their settings")
)]
pub struct RankConfig {
    /// An error is that of the first step of [`RankGroup::join`](crate::RankGroup::join).
    pub(crate) start: Result<Start, JobError>,
    pub(crate) threads_per_rank: Option<usize>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) join_within: Duration,
    pub(crate) engine: CommBackend,
    pub(crate) cuda_device: Option<usize>,
    pub(crate) token: Option<String>,
    #[cfg(feature = "grpc")]
    pub(crate) tls: Option<Tls>,
    pub(crate) version: String,
    pub(crate) settings: Vec<(String, String)>,
}

/// The way in which ranks start.
#[derive(Debug)]
pub(crate) enum Start {
    /// This process starts so many threads.
    Threads(usize),
    /// A launcher has started this process as one of the ranks.
    Process(LaunchEnv),
}

impl RankConfig {
    /// Ranks that are threads of this process.
    pub fn threads(n_ranks: usize) -> Self {
        Self::new(Ok(Start::Threads(n_ranks)))
    }

    /// The rank of this process, of the processes that a launcher started.
    pub fn process(launch: LaunchEnv) -> Self {
        Self::new(Ok(Start::Process(launch)))
    }

    /// The rank of this process where `srun`, `mpirun` or `torchrun` started several; otherwise `n_ranks` threads. Reads
    /// the environment, as [`RankConfig::from_vars_or_threads`] does with its function.
    pub fn from_env_or_threads(n_ranks: usize) -> Self {
        Self::from_vars_or_threads(n_ranks, &LaunchFlags::default(), |name| std::env::var(name).ok())
    }

    /// The rank of this process where the flags or the variables of a launcher ([`LaunchEnv::detect`]) name several
    /// processes; otherwise `n_ranks` threads. The token of processes is that of `KILN_JOB_TOKEN`, or of the file that
    /// `KILN_JOB_TOKEN_FILE` names. What is wrong with either is the error of joining the ranks.
    pub fn from_vars_or_threads(
        n_ranks: usize,
        flags: &LaunchFlags,
        var: impl Fn(&str) -> Option<String>,
    ) -> Self {
        match LaunchEnv::detect(flags, &var) {
            // A world of one process needs no other.
            Ok(launch) => match launch.filter(|launch| 1 < launch.world_size) {
                Some(launch) => Self::process(launch).read_token(var),
                None => Self::threads(n_ranks),
            },
            Err(error) => Self::new(Err(error.into())),
        }
    }

    #[cfg(feature = "grpc")]
    fn read_token(mut self, var: impl Fn(&str) -> Option<String>) -> Self {
        match secret("KILN_JOB_TOKEN", var) {
            Ok(token) => self.token = token,
            Err(error) => self.start = Err(JobError::Token(error)),
        }
        self
    }

    #[cfg(not(feature = "grpc"))]
    fn read_token(self, _: impl Fn(&str) -> Option<String>) -> Self {
        self
    }

    fn new(start: Result<Start, JobError>) -> Self {
        let has_engine = cfg!(any(feature = "mpi", feature = "nccl"));
        Self {
            start,
            threads_per_rank: None,
            deadline: None,
            join_within: Duration::from_secs(300),
            engine: if has_engine { CommBackend::Auto } else { CommBackend::Store },
            cuda_device: None,
            token: None,
            #[cfg(feature = "grpc")]
            tls: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: Vec::new(),
        }
    }

    /// The number of threads of each rank's pool, at least 1. If not given, ranks that are threads share the machine's
    /// cores, and a process has the cores that it may use, or its share of them where the processes of the machine may all
    /// use the same.
    pub fn threads_per_rank(mut self, threads_per_rank: usize) -> Self {
        self.threads_per_rank = Some(threads_per_rank);
        self
    }

    /// How long a rank waits in a collective, and for a process without a sign of life, before all ranks end. If not given,
    /// 10 minutes, and 2 where ranks are processes.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long a process waits for all to join: 5 minutes if not given.
    pub fn join_within(mut self, join_within: Duration) -> Self {
        self.join_within = join_within;
        self
    }

    /// The transport of collectives between processes. If not given, [`CommBackend::Auto`], and [`CommBackend::Store`]
    /// in a program that was built with neither MPI nor NCCL.
    pub fn backend(mut self, engine: CommBackend) -> Self {
        self.engine = engine;
        self
    }

    /// The CUDA device of the engine NCCL, counted from 0: the one that this process computes on. If not given, the one of
    /// the local rank's number, or the only one.
    pub fn cuda_device(mut self, cuda_device: usize) -> Self {
        self.cuda_device = Some(cuda_device);
        self
    }

    /// The secret word by which the processes of a job know each other. With MPI one is made, if none is given.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Certificates for the connections of the processes to rank 0.
    #[cfg(feature = "grpc")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The version of the program, which must be the same on all processes: this crate's if not given.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// A setting that must be the same on all processes, as the hash of the data: they refuse to join otherwise, with an
    /// error that has its name and both values.
    pub fn agree_on(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }
}

/// The token is left out.
impl fmt::Debug for RankConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, threads_per_rank, deadline, join_within, engine, version, settings, .. } = self;
        f.debug_struct("RankConfig")
            .field("start", start)
            .field("threads_per_rank", threads_per_rank)
            .field("deadline", deadline)
            .field("join_within", join_within)
            .field("engine", engine)
            .field("version", version)
            .field("settings", settings)
            .finish_non_exhaustive()
    }
}

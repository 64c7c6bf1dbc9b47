use std::fmt;
use std::time::Duration;

#[cfg(feature = "grpc")]
use crate::rpc::{Tls, secret};
use crate::{JobError, LaunchEnv, LaunchFlags};

/// The transport of collectives between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CommBackend {
    /// MPI if the program was built with it, otherwise NCCL. If the engine does not work, joining fails.
    #[default]
    Auto,
    /// MPI.
    Mpi,
    /// NCCL, with one GPU per process.
    Nccl,
    /// A transfer of all data through rank 0, over gRPC. It needs no library, but one machine handles all data, so it
    /// suits small models and experiments only.
    Store,
}

/// The configuration of a program's ranks. It determines whether they are threads of this process or processes that a
/// launcher started, and sets their engine and deadlines.
///
/// ```
/// use kiln_comm::{RankConfig, RankError, launch};
/// let ranks = launch(RankConfig::threads(2).threads_per_rank(1), |rank| Ok::<_, RankError>(rank.info.rank))?;
/// assert_eq!(ranks, [0, 1]);
/// # Ok::<(), RankError>(())
/// ```
#[cfg_attr(
    not(feature = "grpc"),
    allow(dead_code, reason = "without grpc, processes are rejected before these settings are read")
)]
pub struct RankConfig {
    /// The way ranks start, or the error that [`RankGroup::join`](crate::RankGroup::join) returns.
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
    /// This process starts this number of threads.
    Threads(usize),
    /// A launcher has started this process as one of the ranks.
    Process(LaunchEnv),
}

impl RankConfig {
    /// Configures `n_ranks` ranks that are threads of this process.
    pub fn threads(n_ranks: usize) -> Self {
        Self::new(Ok(Start::Threads(n_ranks)))
    }

    /// Configures this process as one of the ranks that a launcher started.
    pub fn process(launch: LaunchEnv) -> Self {
        Self::new(Ok(Start::Process(launch)))
    }

    /// Configures this process as one rank if `srun`, `mpirun` or `torchrun` started several processes, otherwise
    /// `n_ranks` threads. Same as [`RankConfig::from_vars_or_threads`] without flags, but reads the environment.
    pub fn from_env_or_threads(n_ranks: usize) -> Self {
        Self::from_vars_or_threads(n_ranks, &LaunchFlags::default(), |name| std::env::var(name).ok())
    }

    /// Configures this process as one rank if the flags or the launcher's variables ([`LaunchEnv::detect`]) describe
    /// several processes, otherwise `n_ranks` threads. Processes read their token from `KILN_JOB_TOKEN`, or from the
    /// file that `KILN_JOB_TOKEN_FILE` names. If the launch is invalid or the token cannot be read,
    /// [`RankGroup::join`](crate::RankGroup::join) returns the error.
    pub fn from_vars_or_threads(
        n_ranks: usize,
        flags: &LaunchFlags,
        var: impl Fn(&str) -> Option<String>,
    ) -> Self {
        match LaunchEnv::detect(flags, &var) {
            // A world of one process needs no rendezvous, so its ranks are threads.
            Ok(launch) => match launch.filter(|launch| 1 < launch.world_size) {
                Some(launch) => Self::process(launch).read_token(var),
                None => Self::threads(n_ranks),
            },
            Err(error) => Self::new(Err(error.into())),
        }
    }

    /// Returns the launch of this process, or `None` if its ranks are threads or the launch is invalid.
    pub fn launch_env(&self) -> Option<&LaunchEnv> {
        match &self.start {
            Ok(Start::Process(launch)) => Some(launch),
            _ => None,
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

    /// Sets the number of threads of each rank's pool, at least 1. By default, ranks that are threads share the
    /// machine's cores. A process uses all cores available to it, divided by the number of processes on the machine
    /// unless each of them is bound to its own cores.
    pub fn threads_per_rank(mut self, threads_per_rank: usize) -> Self {
        self.threads_per_rank = Some(threads_per_rank);
        self
    }

    /// Sets the deadline. All ranks end if one of them waits in a collective for longer than this, or if a process
    /// sends no heartbeat for longer than this. Defaults to 10 minutes for threads and 2 minutes for processes.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the maximum time that a process waits for all processes to join. Defaults to 5 minutes.
    pub fn join_within(mut self, join_within: Duration) -> Self {
        self.join_within = join_within;
        self
    }

    /// Sets the transport of collectives between processes. Defaults to [`CommBackend::Auto`], or to
    /// [`CommBackend::Store`] in a program that was built with neither MPI nor NCCL.
    pub fn backend(mut self, engine: CommBackend) -> Self {
        self.engine = engine;
        self
    }

    /// Returns the configured transport of collectives.
    pub fn comm_backend(&self) -> CommBackend {
        self.engine
    }

    /// Sets the index, from 0, of the CUDA device that the NCCL engine uses. It should be the device on which this
    /// process computes. Defaults to the only visible device, or, if there are several, to the device whose index is
    /// the local rank.
    pub fn cuda_device(mut self, cuda_device: usize) -> Self {
        self.cuda_device = Some(cuda_device);
        self
    }

    /// Sets the shared secret that authenticates the processes of a job. With MPI, it defaults to
    /// a random one; otherwise it is required.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the certificates for the connections of the processes to rank 0.
    #[cfg(feature = "grpc")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the version of the program, which must be the same in all processes. Defaults to the version of this crate.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Adds a setting that must be the same in all processes, such as a hash of the data. If it differs, joining fails
    /// with an error that contains the name and both values.
    pub fn agree_on(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }
}

/// Formats the configuration without the token, which is a secret.
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

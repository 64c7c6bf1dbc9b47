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
    ///
    /// ```
    /// # use kiln_comm::{RankConfig, RankError, launch};
    /// let world_sizes = launch(RankConfig::threads(4), |rank| Ok::<_, RankError>(rank.info.world_size))?;
    /// assert_eq!(world_sizes, [4; 4]);
    /// # Ok::<(), kiln_comm::RankError>(())
    /// ```
    pub fn threads(n_ranks: usize) -> Self {
        Self::new(Ok(Start::Threads(n_ranks)))
    }

    /// Configures this process as one of the ranks that a launcher started.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// use kiln_comm::{LaunchEnv, LaunchFlags};
    /// // Rank 1 of 2, whatever the environment of the process contains.
    /// let flags = LaunchFlags { rank: Some(1), world_size: Some(2), ..LaunchFlags::default() };
    /// let launch = LaunchEnv::detect(&flags, |_| None)?.expect("there are two processes");
    /// assert_eq!(RankConfig::process(launch).launch_env().map(|launch| launch.rank), Some(1));
    /// # Ok::<(), kiln_comm::LaunchError>(())
    /// ```
    pub fn process(launch: LaunchEnv) -> Self {
        Self::new(Ok(Start::Process(launch)))
    }

    /// Configures this process as one rank if `srun`, `mpirun` or `torchrun` started several processes, otherwise
    /// `n_ranks` threads. Same as [`RankConfig::from_vars_or_threads`] without flags, but reads the environment.
    ///
    /// ```no_run
    /// # use kiln_comm::{RankConfig, RankError, launch};
    /// // `mpirun -n 8 program` starts eight ranks on one or several machines, `program` alone starts two threads.
    /// launch(RankConfig::from_env_or_threads(2), |rank| {
    ///     println!("rank {} of {}", rank.info.rank, rank.info.world_size);
    ///     Ok::<_, RankError>(())
    /// })?;
    /// # Ok::<(), kiln_comm::RankError>(())
    /// ```
    pub fn from_env_or_threads(n_ranks: usize) -> Self {
        Self::from_vars_or_threads(n_ranks, &LaunchFlags::default(), |name| std::env::var(name).ok())
    }

    /// Configures this process as one rank if the flags or the launcher's variables ([`LaunchEnv::detect`]) describe
    /// several processes, otherwise `n_ranks` threads. Processes read their token from `KILN_JOB_TOKEN`, or from the
    /// file that `KILN_JOB_TOKEN_FILE` names. If the launch is invalid or the token cannot be read,
    /// [`RankGroup::join`](crate::RankGroup::join) returns the error.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// use kiln_comm::LaunchFlags;
    /// # use std::collections::HashMap;
    /// // These are the variables that torchrun sets.
    /// let mut vars = HashMap::from([("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4")]);
    /// vars.extend([("MASTER_ADDR", "n1"), ("MASTER_PORT", "29500")]);
    /// let var = |name: &str| vars.get(name).map(|value| value.to_string());
    /// let config = RankConfig::from_vars_or_threads(2, &LaunchFlags::default(), var);
    /// assert_eq!(config.launch_env().map(|launch| launch.world_size), Some(4));
    /// ```
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
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// // Only one process of a machine prepares its local files.
    /// let config = RankConfig::threads(2);
    /// if config.launch_env().is_none_or(|launch| launch.local_rank == 0) {
    ///     println!("preparing the files of this machine");
    /// }
    /// ```
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
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// // Two ranks on a machine of 16 cores, of which the program leaves 4 to others.
    /// let config = RankConfig::threads(2).threads_per_rank(6);
    /// ```
    pub fn threads_per_rank(mut self, threads_per_rank: usize) -> Self {
        self.threads_per_rank = Some(threads_per_rank);
        self
    }

    /// Sets the deadline. All ranks end if one of them waits in a collective for longer than this, or if a process
    /// sends no heartbeat for longer than this. Defaults to 10 minutes for threads and 2 minutes for processes.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// use std::time::Duration;
    /// // Rank 0 evaluates alone for up to half an hour, while the others wait in a collective.
    /// let config = RankConfig::from_env_or_threads(4).deadline(Duration::from_secs(30 * 60));
    /// ```
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the maximum time that a process waits for all processes to join. Defaults to 5 minutes.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// use std::time::Duration;
    /// // The machines of a batch job may start up to 20 minutes apart.
    /// let config = RankConfig::from_env_or_threads(1).join_within(Duration::from_secs(20 * 60));
    /// ```
    pub fn join_within(mut self, join_within: Duration) -> Self {
        self.join_within = join_within;
        self
    }

    /// Sets the transport of collectives between processes. Defaults to [`CommBackend::Auto`], or to
    /// [`CommBackend::Store`] in a program that was built with neither MPI nor NCCL.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// use kiln_comm::CommBackend;
    /// // On two machines without MPI, for a test of a small model.
    /// let config = RankConfig::from_env_or_threads(1).backend(CommBackend::Store).token("the secret of this job");
    /// ```
    pub fn backend(mut self, engine: CommBackend) -> Self {
        self.engine = engine;
        self
    }

    /// Returns the configured transport of collectives.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// use kiln_comm::CommBackend;
    /// let config = RankConfig::threads(2).backend(CommBackend::Nccl);
    /// assert_eq!(config.comm_backend(), CommBackend::Nccl);
    /// ```
    pub fn comm_backend(&self) -> CommBackend {
        self.engine
    }

    /// Sets the index, from 0, of the CUDA device that the NCCL engine uses. It should be the device on which this
    /// process computes. Defaults to the only visible device, or, if there are several, to the device whose index is
    /// the local rank.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// // The program computes on the second GPU of the machine, whatever its local rank.
    /// let config = RankConfig::from_env_or_threads(1).cuda_device(1);
    /// ```
    pub fn cuda_device(mut self, cuda_device: usize) -> Self {
        self.cuda_device = Some(cuda_device);
        self
    }

    /// Sets the shared secret that authenticates the processes of a job. With MPI, it defaults to
    /// a random one; otherwise it is required.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// let token = std::env::var("JOB_TOKEN").unwrap_or_default();
    /// let config = RankConfig::from_env_or_threads(1).token(token);
    /// // The token is not in messages.
    /// assert!(!format!("{config:?}").contains("token"));
    /// ```
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the certificates for the connections of the processes to rank 0.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// use kiln_comm::rpc::Tls;
    /// let tls = Tls {
    ///     authority: "certs/ca.pem".into(),
    ///     certificate: "certs/rank.pem".into(),
    ///     key: "certs/rank-key.pem".into(),
    /// };
    /// let config = RankConfig::from_env_or_threads(1).tls(tls);
    /// ```
    #[cfg(feature = "grpc")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the version of the program, which must be the same in all processes. Defaults to the version of this crate.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// // A process with another version of the program is an error before the training starts.
    /// let config = RankConfig::from_env_or_threads(1).version("my-program 2.1.0");
    /// ```
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Adds a setting that must be the same in all processes, such as a hash of the data. If it differs, joining fails
    /// with an error that contains the name and both values.
    ///
    /// ```
    /// # use kiln_comm::RankConfig;
    /// # let data_hash = "5f0c3a";
    /// // Processes with other data or another batch size are an error before the training starts.
    /// let config = RankConfig::from_env_or_threads(4).agree_on("data hash", data_hash).agree_on("batch size", "1024");
    /// ```
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

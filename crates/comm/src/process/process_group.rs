use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::failure::error_text;
use crate::process::carrier::{Carrier, Meet};
use crate::process::communicator::{Context, ProcessCommunicator};
use crate::process::machine::{self, host, machine_id};
use crate::process::proto::{Join, Setting};
use crate::process::watchdog::activity::Activity;
use crate::process::watchdog::alarm::Alarm;
use crate::process::watchdog::control::{Control, Start};
use crate::process::watchdog::timing::Timing;
use crate::{
    BoxError, CommBackend, Communicator, JobError, LaunchEnv, RankConfig, RankInfo, ThreadRanks,
    TransientError,
};

/// The default maximum time that a rank waits in a collective.
const DEADLINE: Duration = Duration::from_secs(120);

/// The maximum time that finished processes wait for the others: a day. The watchdog detects lost processes earlier.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// A handle of this process to its job: the group of processes that train together, one rank each.
///
/// After [`RankGroup::join`](crate::RankGroup::join), this process ends with its job, whatever its threads do. The exit
/// status is [`EXIT_FAILED`](crate::EXIT_FAILED) if a rank failed or panicked (in any thread), and
/// [`EXIT_RETRY`](crate::EXIT_RETRY) if a rank was lost or failed with a [`TransientError`]. Standard error then names
/// the rank, its machine and its activity.
pub struct ProcessGroup {
    control: Arc<Control>,
    context: Arc<Context>,
    launch: LaunchEnv,
    engine: &'static str,
    threads: Option<usize>,
    /// The address at which rank 0 serves the others.
    address: String,
    /// True if this rank's body has returned.
    has_run: AtomicBool,
}

impl ProcessGroup {
    /// Joins the job, and returns when all its processes have joined.
    pub(crate) fn join(launch: LaunchEnv, config: RankConfig) -> Result<Self, JobError> {
        // The start of MPI waits for all processes. The alarm bounds the wait, because the watchdog does not run yet. Other
        // engines do not wait, except for a port that is in use, within the same limit.
        let is_mpi = cfg!(feature = "mpi") && matches!(config.engine, CommBackend::Auto | CommBackend::Mpi);
        let alarm = is_mpi.then(|| Alarm::set(config.join_within, "all processes to start MPI"));
        let (carrier, engine) = Carrier::start(&launch, &config)?;
        let Meet { rpc_endpoint, listener } = carrier.meet(&launch, &config)?;
        drop(alarm);
        let activity = Arc::new(Activity::new());
        let RankConfig { join_within, threads_per_rank, version, settings, .. } = config;
        let deadline = config.deadline.unwrap_or(DEADLINE);
        let timing = Timing { join: join_within, deadline };
        let address = rpc_endpoint.address.clone();
        let join = Join {
            rank: launch.rank as u64,
            world_size: launch.world_size as u64,
            host: host(),
            pid: u64::from(std::process::id()),
            version,
            settings: settings.into_iter().map(|(name, value)| Setting { name, value }).collect(),
            job: launch.job_id.clone().unwrap_or_default(),
            machine: machine_id(),
        };
        let start = Start { join, listener, rpc_endpoint, timing, activity: Arc::clone(&activity) };
        let control = Arc::new(Control::start(start)?);
        let LaunchEnv { rank, world_size, local_rank, .. } = launch;
        let rank_info = RankInfo { rank, world_size, local_rank };
        let engines = carrier.engines(&control)?;
        let context = Arc::new(Context { rank_info, activity, engines, deadline, over: OnceLock::new() });
        fail_on_panic(&control);
        let has_run = AtomicBool::new(false);
        Ok(Self { control, context, launch, engine, threads: threads_per_rank, address, has_run })
    }

    /// Returns the position of this process in the job and on its machine.
    pub fn rank_info(&self) -> RankInfo {
        self.context.rank_info
    }

    /// Returns the ranks on this machine, in order. Pass them to [`subgroup`](Communicator::subgroup) for a group of
    /// this machine.
    pub fn local_ranks(&self) -> Vec<usize> {
        machine::ranks_beside(self.control.members(), self.context.rank_info.rank)
    }

    /// Returns the id of this attempt at the job, which is the same on all ranks: that of the launcher
    /// (`SLURM_JOB_ID.STEP` or torchrun's run id, with the number of restarts), or a random one of rank 0.
    pub fn id(&self) -> &str {
        self.control.job_id()
    }

    /// Returns the local address of the route to rank 0, at which the other processes can reach servers of this one.
    ///
    /// # Errors
    /// Returns [`JobError::NoAddress`] if there is no route, or if other machines cannot reach the address.
    pub fn local_ip(&self) -> Result<IpAddr, JobError> {
        let failed = |reason: String| JobError::NoAddress { host: host(), reason };
        let ip = way_to(&self.address)
            .map_err(|error| failed(format!("no route to rank 0 at {}: {error}", self.address)))?;
        match ip.is_loopback() && self.local_ranks().len() < self.control.members().len() {
            true => Err(failed(format!("other machines cannot reach {ip}"))),
            false => Ok(ip),
        }
    }

    /// Returns the number of threads of this rank's pool: the configured number, or all cores available to this
    /// process, divided by the number of processes on the machine unless each of them is bound to its own cores.
    pub fn threads(&self) -> usize {
        let own = ThreadRanks::of(1).threads_per_rank;
        let n_local = self.local_ranks().len();
        let is_bound = own * n_local <= n_cores().unwrap_or(0);
        self.threads.unwrap_or(if is_bound { own } else { (own / n_local).max(1) })
    }

    /// Returns the number of threads for work that this rank does while the others on its machine wait: the configured
    /// number, or all cores available to this process.
    pub(crate) fn machine_threads(&self) -> usize {
        self.threads.unwrap_or_else(|| ThreadRanks::of(1).threads_per_rank)
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.context.deadline
    }

    /// Stores a value under a key at rank 0, for all processes. Replaces the previous value.
    ///
    /// # Errors
    /// Returns [`JobError::Refused`] if the request fails.
    pub fn put(&self, key: &str, value: Vec<u8>) -> Result<(), JobError> {
        self.control.put(key, value).map_err(|reason| JobError::Refused { reason })
    }

    /// Returns the value that a process stores under the key. Waits for the value, at most for the deadline of
    /// collectives.
    ///
    /// # Errors
    /// Returns [`JobError::Refused`] if no process has stored a value in time, or if the request fails.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, JobError> {
        self.control.get(key, self.context.deadline).map_err(|reason| JobError::Refused { reason })
    }

    /// Runs the body on this rank, in a pool of [`threads`](Self::threads) threads as [`ThreadRanks::run`] does.
    /// Returns its result when the bodies of all ranks have returned. Ends this process if any of the bodies fails.
    pub fn run<R: Send>(self, body: impl Fn(Box<dyn Communicator>) -> Result<R, BoxError> + Sync) -> R {
        let mut world = ProcessCommunicator::world(Arc::clone(&self.context));
        let comm = world.duplicate("job").map(|comm| Mutex::new(Some(comm)));
        let threads_per_rank = self.threads();
        let alone = ThreadRanks { n_ranks: 1, threads_per_rank, deadline: self.context.deadline };
        let outcome = alone.run(|_| {
            let comm = comm.as_ref().map_err(|error| Box::new(error.clone()))?;
            let comm = comm.lock().unwrap_or_else(PoisonError::into_inner).take();
            body(comm.ok_or("the communicator of the job was already taken")?)
        });
        let result = match outcome.map(|mut results| results.pop()) {
            Ok(Some(result)) => result,
            Ok(None) => self.fail("the body returned no result"),
            Err(error) if TransientError::is_cause_of(&error) => self.retry(&error_text(&error)),
            Err(error) => self.fail(&error_text(&error)),
        };
        drop(comm);
        self.has_run.store(true, Ordering::Relaxed);
        self.context.activity.set_stage("end");
        if let Err(error) = world.barrier(PATIENCE) {
            self.fail(&error_text(&error));
        }
        drop(world);
        self.control.leave();
        // The end of MPI waits for all processes. The alarm bounds the wait, because the watchdog has ended.
        let alarm = Alarm::set(self.context.deadline, "all processes to end MPI");
        self.context.engines.finish();
        drop(alarm);
        result
    }

    fn fail(&self, why: &str) -> ! {
        self.control.fail("failed", &self.failure(why))
    }

    /// Fails with the status that asks for another attempt.
    fn retry(&self, why: &str) -> ! {
        self.control.retry("failed", &self.failure(why))
    }

    fn failure(&self, why: &str) -> String {
        format!("Error: {} failed {}: {why}", self.control.name(), self.control.whereabouts())
    }
}

/// Dropping the group before it has run fails the job on all ranks.
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.has_run.load(Ordering::Relaxed) {
            self.control.report("has left before it ran its body,");
        }
    }
}

/// Formats a one-line summary: the number of ranks, the launcher, the machines and the engine.
impl fmt::Display for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { launch, engine, .. } = self;
        let machines = machine::list(self.control.members());
        let n_ranks = launch.world_size;
        let source = launch.source;
        write!(f, "{n_ranks} ranks by {source}, {machines}; engine {engine}")
    }
}

impl fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { launch, engine, threads, .. } = self;
        f.debug_struct("ProcessGroup")
            .field("launch", launch)
            .field("engine", engine)
            .field("threads", threads)
            .finish_non_exhaustive()
    }
}

/// Returns the number of cores of this machine.
fn n_cores() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    Some(text.lines().filter(|line| line.starts_with("processor")).count())
}

/// Ends the job when any thread of this process panics, because a rank without that thread may never join the
/// collective that the others wait in. The previous panic hook runs first, so it prints the message of the panic.
fn fail_on_panic(control: &Arc<Control>) {
    let control = Arc::downgrade(control);
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        previous(info);
        if let Some(control) = control.upgrade() {
            let line = format!("{} has panicked {}", control.name(), control.whereabouts());
            control.fail("has panicked", &line);
        }
    }));
}

/// Returns the IP address of this machine from which packets to `address` would be sent. Sends nothing itself.
fn way_to(address: &str) -> std::io::Result<IpAddr> {
    let mut outcome = Err(std::io::ErrorKind::AddrNotAvailable.into());
    for to in address.to_socket_addrs()? {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        outcome = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(to)?;
            Ok(socket.local_addr()?.ip())
        });
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

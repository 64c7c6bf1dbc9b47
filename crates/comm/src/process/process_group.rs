use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::failure::chain;
use crate::process::carrier::{Carrier, Meet};
use crate::process::communicator::{Context, ProcessCommunicator};
use crate::process::machine::{self, host, machine_id};
use crate::process::proto::{Join, Setting};
use crate::process::watchdog::alarm::Alarm;
use crate::process::watchdog::control::{Control, Start};
use crate::process::watchdog::place::Place;
use crate::process::watchdog::timing::Timing;
use crate::{BoxError, Communicator, JobError, LaunchEnv, RankConfig, RankInfo, ThreadRanks, TransientError};

/// How long a rank waits in a collective, if the configuration does not say.
const DEADLINE: Duration = Duration::from_secs(120);

/// How long processes that are done wait for those that are not: a day. One that is lost is noticed.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The processes of a job, which are ranks that train together, as one of them sees the group.
///
/// From [`RankGroup::join`](crate::RankGroup::join) on, this process ends with its job, whatever its threads do: with status
/// [`EXIT_FAILED`](crate::EXIT_FAILED) when a rank has failed or panicked (any panic in any thread counts), with
/// [`EXIT_RETRY`](crate::EXIT_RETRY) when one is lost, or failed with a [`TransientError`]. Standard error then says which rank it was, on which machine,
/// and what it was doing.
pub struct ProcessGroup {
    control: Arc<Control>,
    context: Arc<Context>,
    launch: LaunchEnv,
    engine: &'static str,
    threads: Option<usize>,
    /// Where rank 0 serves the others.
    address: String,
    /// Whether this rank's body has come to its end.
    has_run: AtomicBool,
}

impl ProcessGroup {
    /// Joins the job: returns when all its processes have.
    pub(crate) fn join(launch: LaunchEnv, config: RankConfig) -> Result<Self, JobError> {
        // Until there is a thread that watches, this does: MPI's start waits for all processes.
        let alarm = Alarm::set(config.join_within, "all processes to start MPI");
        let (carrier, engine) = Carrier::start(&launch, &config)?;
        let Meet { rpc_endpoint, listener } = carrier.meet(&launch, &config)?;
        drop(alarm);
        let place = Arc::new(Place::new());
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
        let start = Start { join, listener, rpc_endpoint, timing, place: Arc::clone(&place) };
        let control = Arc::new(Control::start(start)?);
        let LaunchEnv { rank, world_size, local_rank, .. } = launch;
        let rank_info = RankInfo { rank, world_size, local_rank };
        let engines = carrier.engines(&control)?;
        let context = Arc::new(Context { rank_info, place, engines, deadline, over: OnceLock::new() });
        fail_on_panic(&control);
        let has_run = AtomicBool::new(false);
        Ok(Self { control, context, launch, engine, threads: threads_per_rank, address, has_run })
    }

    /// Which rank this process is.
    pub fn rank_info(&self) -> RankInfo {
        self.context.rank_info
    }

    /// The ranks on this machine, in order: those of the job's communicator that
    /// [`subgroup`](Communicator::subgroup) makes a group of this machine of.
    pub fn local_ranks(&self) -> Vec<usize> {
        machine::ranks_beside(self.control.members(), self.context.rank_info.rank)
    }

    /// Identifies this attempt at the job on all its ranks: the launcher's id (`SLURM_JOB_ID.STEP`, torchrun's run with the
    /// number of restarts), or one that rank 0 has drawn.
    pub fn id(&self) -> &str {
        self.control.job_id()
    }

    /// The address by which this machine reaches rank 0: for what this process serves to the others.
    ///
    /// # Errors
    /// [`JobError::NoAddress`] where there is none, or other machines cannot reach it.
    pub fn local_ip(&self) -> Result<IpAddr, JobError> {
        let failed = |reason: String| JobError::NoAddress { host: host(), reason };
        let ip = way_to(&self.address).map_err(|error| failed(format!("{}: {error}", self.address)))?;
        match ip.is_loopback() && self.local_ranks().len() < self.control.members().len() {
            true => Err(failed(format!("other machines cannot reach {ip}"))),
            false => Ok(ip),
        }
    }

    /// Threads of this rank's pool: those that were asked for, or the cores that this process may use, or its share of
    /// them where the processes of the machine may all use the same.
    pub fn threads(&self) -> usize {
        let (own, n_local) = (ThreadRanks::of(1).threads_per_rank, self.local_ranks().len());
        let is_bound = own * n_local <= n_cores().unwrap_or(0);
        self.threads.unwrap_or(if is_bound { own } else { (own / n_local).max(1) })
    }

    /// Keeps a value under a key for all processes, in the first of them; in the place of the one before.
    ///
    /// # Errors
    /// What the connection says.
    pub fn put(&self, key: &str, value: Vec<u8>) -> Result<(), JobError> {
        self.control.put(key, value).map_err(|reason| JobError::Refused { reason })
    }

    /// The value that some process keeps under the key; waits for it, as long as for a collective.
    ///
    /// # Errors
    /// What the connection says, and when nobody has put it there.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, JobError> {
        self.control.get(key, self.context.deadline).map_err(|reason| JobError::Refused { reason })
    }

    /// Runs the body on this rank, in a pool of `threads` threads as [`ThreadRanks::run`] does, and returns its result
    /// when the bodies of all ranks have returned. Ends the process where one of them has failed.
    pub fn run<R: Send>(self, body: impl Fn(Box<dyn Communicator>) -> Result<R, BoxError> + Sync) -> R {
        let mut world = ProcessCommunicator::world(Arc::clone(&self.context));
        let comm = world.duplicate("job").map(|comm| Mutex::new(Some(comm)));
        let threads_per_rank = self.threads();
        let alone = ThreadRanks { n_ranks: 1, threads_per_rank, deadline: self.context.deadline };
        let outcome = alone.run(|_| {
            let comm = comm.as_ref().map_err(|error| Box::new(error.clone()))?;
            let comm = comm.lock().unwrap_or_else(PoisonError::into_inner).take();
            body(comm.ok_or("the job's communicator was taken before")?)
        });
        let result = match outcome.map(|mut results| results.pop()) {
            Ok(Some(result)) => result,
            Ok(None) => self.fail("it gave no result"),
            Err(error) if TransientError::is_cause_of(&error) => self.retry(&chain(&error)),
            Err(error) => self.fail(&chain(&error)),
        };
        drop(comm);
        self.has_run.store(true, Ordering::Relaxed);
        self.context.place.set_stage("end");
        if let Err(error) = world.barrier(PATIENCE) {
            self.fail(&chain(&error));
        }
        drop(world);
        self.control.leave();
        // Nobody watches any more, and MPI's end waits for all processes.
        let alarm = Alarm::set(self.context.deadline, "all processes to end MPI");
        self.context.engines.finish();
        drop(alarm);
        result
    }

    fn fail(&self, why: &str) -> ! {
        self.control.fail("failed", &self.failure(why))
    }

    /// Fails for a reason that another attempt may not meet.
    fn retry(&self, why: &str) -> ! {
        self.control.retry("failed", &self.failure(why))
    }

    fn failure(&self, why: &str) -> String {
        format!("Error: {} failed {}: {why}", self.control.name(), self.control.whereabouts())
    }
}

/// A job that is dropped before it has run has failed, for all.
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.has_run.load(Ordering::Relaxed) {
            self.control.report("has left before it ran its part,");
        }
    }
}

/// A line on the job: its processes, their machines, who launched them, what carries bytes.
impl fmt::Display for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { launch, engine, .. } = self;
        let machines = machine::list(self.control.members());
        let (n_ranks, source) = (launch.world_size, launch.source);
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

/// All cores of this machine.
fn n_cores() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    Some(text.lines().filter(|line| line.starts_with("processor")).count())
}

/// Ends the job when any thread of this process panics, as a rank that has lost a thread may never come to the
/// collective that the others wait in. What the panic says has been printed by then, as always.
fn fail_on_panic(control: &Arc<Control>) {
    let (control, previous) = (Arc::downgrade(control), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        previous(info);
        if let Some(control) = control.upgrade() {
            let line = format!("{} has panicked {}", control.name(), control.whereabouts());
            control.fail("has panicked", &line);
        }
    }));
}

/// The own address on the way to another, to which nothing is sent.
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

//! Programs whose ranks are processes, that a launcher started: how they meet and how they end.

#[cfg(feature = "nccl")]
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
#[cfg(feature = "nccl")]
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "nccl")]
use anyhow::bail;
use anyhow::{anyhow, ensure};
use clap::{Args, ValueEnum};
#[cfg(feature = "nccl")]
use kiln_comm::RankInfo;
use kiln_comm::rpc::{Tls, ensure_private};
use kiln_comm::{
    BoxError, CommBackend, Communicator, EXIT_RETRY, LaunchEnv, LaunchFlags, MasterAddress, RankConfig,
    RankGroup, ThreadRanks, TransientError,
};
#[cfg(feature = "nccl")]
use kiln_kernels::NcclSum;

use crate::args::Settings;
use crate::run::RunArgs;
use crate::{flags, say};

/// How this process was started; read once, with the command line.
static LAUNCH: OnceLock<Option<LaunchEnv>> = OnceLock::new();

/// What carries gradients between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// The first of mpi and nccl that was built in and works on this machine.
    Auto,
    /// MPI (feature `mpi`).
    Mpi,
    /// NCCL, one GPU a process (feature `nccl`).
    Nccl,
    /// The first process; needs nothing, and is for small models.
    Store,
}

/// How this process finds the others, where ranks are processes.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Ranks that are processes (read from the environment of torchrun, mpirun or srun)"
)]
pub struct LaunchArgs {
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
    #[arg(long, value_enum, default_value = "auto")]
    engine: Engine,
    /// Seconds that a process waits for all others to start.
    #[arg(long, value_parser = flags::size, default_value = "300")]
    join_within: usize,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

impl LaunchArgs {
    /// Finds out how this process was started; to be called once, before anything is printed.
    ///
    /// # Errors
    /// When the environment is incomplete or contradicts itself.
    pub(crate) fn read(&self) -> anyhow::Result<()> {
        let &Self { rank, world_size, local_rank, ref master, .. } = self;
        let flags = LaunchFlags { rank, world_size, local_rank, master: master.clone() };
        let launch = LaunchEnv::detect(&flags, |name| std::env::var(name).ok())?;
        // A world of one process needs no other.
        LAUNCH.get_or_init(|| launch.filter(|launch| 1 < launch.world_size));
        Ok(())
    }
}

/// Certificates, which this process shows others and expects of them.
#[derive(Debug, Args)]
pub struct TlsArgs {
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
    /// The files, if they were given.
    ///
    /// # Errors
    /// When the key cannot be read, or others can read it.
    pub fn files(&self) -> anyhow::Result<Option<Tls>> {
        let Self { tls_ca: Some(ca), tls_cert: Some(cert), tls_key: Some(key) } = self else {
            return Ok(None);
        };
        ensure_private("--tls-key", key)?;
        Ok(Some(Tls { authority: ca.clone(), certificate: cert.clone(), key: key.clone() }))
    }

    /// Whether they were given.
    pub(crate) fn are_given(&self) -> bool {
        self.tls_ca.is_some()
    }
}

/// How this process was started, where it is one of several.
pub fn launch() -> Option<&'static LaunchEnv> {
    LAUNCH.get().and_then(Option::as_ref)
}

/// The ranks of a program: threads of this process, or this process is one of them.
#[derive(Debug)]
pub struct Crew(RankGroup);

impl Crew {
    /// Joins the other processes, if there are any: all must have been started alike, on the same data.
    ///
    /// # Errors
    /// When ranks are to be threads and processes at once. A process that cannot join ends here.
    pub fn meet(settings: &Settings, run: &RunArgs, data_hash: &str) -> anyhow::Result<Self> {
        let config = match launch() {
            Some(launch) => config_of_process(launch, settings, run, data_hash)?,
            None => config_of_threads(run)?,
        };
        let group = match RankGroup::join(config) {
            Ok(group) => group,
            Err(error) => {
                let status = error.status();
                exit(error.into(), status)
            }
        };
        if let RankGroup::Process(job) = &group {
            say(job);
        }
        run.threads.set(group.threads()).ok();
        Ok(Self(group))
    }

    /// The address by which ranks reach what this process serves.
    ///
    /// # Errors
    /// When there is none that those of other machines could use.
    pub fn local_ip(&self) -> anyhow::Result<IpAddr> {
        Ok(self.0.local_ip()?)
    }

    /// Runs the body on each rank of this process, and returns their results. A process whose job fails ends here, as one
    /// does whose threads fail for a transient reason ([`kiln_train::Error::is_transient`]): with status 75.
    ///
    /// # Errors
    /// The error of the first thread to fail.
    pub fn run<R: Send>(
        self,
        body: impl Fn(Box<dyn Communicator>) -> anyhow::Result<R> + Sync,
    ) -> anyhow::Result<Vec<R>> {
        let outcome = self.0.run(|rank| {
            body(rank.comm).map_err(|error| -> BoxError {
                if is_transient(&error) { TransientError(error.into()).into() } else { error.into() }
            })
        });
        match outcome {
            Err(error) if error.exit_status() == EXIT_RETRY => exit(error.into(), EXIT_RETRY),
            outcome => Ok(outcome?),
        }
    }
}

fn config_of_threads(run: &RunArgs) -> anyhow::Result<RankConfig> {
    let has_nccl = cfg!(feature = "nccl") || run.launch.engine != Engine::Nccl;
    ensure!(has_nccl, "--engine nccl needs the feature `nccl`, which this build leaves out");
    let ThreadRanks { n_ranks, threads_per_rank, deadline } = run.ranks();
    Ok(RankConfig::threads(n_ranks).threads_per_rank(threads_per_rank).deadline(deadline))
}

fn config_of_process(
    launch: &LaunchEnv,
    settings: &Settings,
    run: &RunArgs,
    data_hash: &str,
) -> anyhow::Result<RankConfig> {
    ensure!(!run.has_ranks_in_ranks(), "{launch}: leave out --ranks, each process is a rank");
    let args = &run.launch;
    let engine = match args.engine {
        Engine::Auto => CommBackend::Auto,
        Engine::Mpi => CommBackend::Mpi,
        Engine::Nccl => CommBackend::Nccl,
        Engine::Store => CommBackend::Store,
    };
    let mut config = RankConfig::process(launch.clone())
        .backend(engine)
        .deadline(run.ranks().deadline)
        .join_within(Duration::from_secs(args.join_within as u64))
        .version(env!("CARGO_PKG_VERSION"));
    if let Some(cuda_device) = run.cuda_indices().and_then(|indices| indices.first().copied()) {
        config = config.cuda_device(cuda_device);
    }
    if let Some(threads) = run.threads_per_rank() {
        config = config.threads_per_rank(threads);
    }
    if let Some(token) = secret("KILN_JOB_TOKEN")? {
        config = config.token(token);
    }
    if let Some(tls) = args.tls.files()? {
        config = config.tls(tls);
    }
    let settings = crate::keep::identity(settings, run, data_hash).settings;
    let config = settings.into_iter().fold(config, |config, (name, value)| config.agree_on(name, value));
    Ok(config.agree_on("the hash of the data", data_hash))
}

/// Ends the process with a status that says whether to start the same again.
fn exit(error: anyhow::Error, status: u8) -> ! {
    eprintln!("Error: {error:#}");
    std::process::exit(i32::from(status))
}

/// Whether another attempt may succeed, because a disk was full or the like.
fn is_transient(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(kiln_train::Error::is_transient)
}

/// The NCCL communicators of the ranks of this process, each of which takes its own.
#[cfg(feature = "nccl")]
#[derive(Debug)]
pub(crate) enum LocalNccl {
    /// By rank; `None` once it was taken.
    Ready(Mutex<Vec<Option<NcclSum>>>),
    /// There is no NCCL, or it failed.
    Failed(String),
}

/// The trainer, with gradients that NCCL sums where they are, if every rank has a GPU of its own: ranks that are
/// processes, or threads of this process. A collective: every rank calls it.
///
/// # Errors
/// Errors of NCCL and of the other ranks. Where NCCL is missing, the host sums, unless `--engine nccl` asks for it.
#[cfg(feature = "nccl")]
pub(crate) fn sum_on_device<T: kiln_train::Task>(
    mut trainer: kiln_train::Trainer<T>,
    run: &RunArgs,
) -> anyhow::Result<kiln_train::Trainer<T>> {
    let nccl = match launch() {
        Some(_) => join_processes(trainer.comm(), run)?,
        None => take_local(trainer.comm().rank_info(), run)?,
    };
    let Some(mut nccl) = nccl else { return Ok(trainer) };
    Ok(trainer.with_sync(kiln_train::DeviceAllReduce::new(move |bucket| Ok(nccl.sum(bucket)?))))
}

/// The NCCL communicator of this process, if every process computes on a GPU of its own and has NCCL. The processes agree
/// on that first: NCCL refuses two ranks on one GPU, and waits for a rank that does not take part.
#[cfg(feature = "nccl")]
fn join_processes(comm: &mut dyn Communicator, run: &RunArgs) -> anyhow::Result<Option<NcclSum>> {
    let is_asked_for = run.launch.engine == Engine::Nccl;
    let index = match run.cuda_indices().as_deref() {
        Some(&[index]) => Some(index),
        _ => None,
    };
    let uuid = index.map(NcclSum::device_uuid);
    let answer = match &uuid {
        Some(Ok(uuid)) => uuid.clone().into_bytes(),
        _ => Vec::new(),
    };
    let answers = comm.all_gather(&answer)?;
    let distinct: BTreeSet<&Vec<u8>> = answers.iter().filter(|answer| !answer.is_empty()).collect();
    let Some(index) = index.filter(|_| distinct.len() == answers.len()) else {
        if let (true, Some(Err(error))) = (is_asked_for, uuid) {
            bail!("--engine nccl: {error}");
        }
        if !distinct.is_empty() && comm.rank_info().rank == 0 {
            say(format_args!(
                "gradients       summed by the host: NCCL needs a GPU and libnccl for every rank"
            ));
        }
        return Ok(None);
    };
    let RankInfo { rank, world_size, .. } = comm.rank_info();
    let mut id = if rank == 0 { NcclSum::new_id()? } else { Vec::new() };
    comm.broadcast(0, &mut id)?;
    // NCCL waits for all ranks: a collective, so that the job's watchdog covers it.
    let (mut nccl, deadline) = (None, run.ranks().deadline);
    let mut join = || nccl = Some(NcclSum::join(index, rank, world_size, &id, deadline));
    comm.device_sum(0, &mut join)?;
    Ok(nccl.transpose()?)
}

/// The NCCL communicator of a rank that is a thread, if there are several and each has a GPU of its own.
#[cfg(feature = "nccl")]
fn take_local(rank_info: RankInfo, run: &RunArgs) -> anyhow::Result<Option<NcclSum>> {
    let is_asked_for = run.launch.engine == Engine::Nccl;
    let distinct = |indices: &Vec<usize>| indices.iter().collect::<BTreeSet<_>>().len() == indices.len();
    let Some(indices) = run.cuda_indices().filter(distinct).filter(|indices| 1 < indices.len()) else {
        ensure!(!is_asked_for || run.n_ranks() == 1, "--engine nccl needs a GPU for every rank");
        return Ok(None);
    };
    if !matches!(run.launch.engine, Engine::Auto | Engine::Nccl) {
        return Ok(None);
    }
    // The first rank initializes the communicators of all, in one group, while the others wait for it here.
    let made = run.nccl.get_or_init(|| match NcclSum::for_devices(&indices, run.ranks().deadline) {
        Ok(made) => LocalNccl::Ready(Mutex::new(made.into_iter().map(Some).collect())),
        Err(error) => LocalNccl::Failed(error.to_string()),
    });
    match made {
        LocalNccl::Ready(made) => {
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(made[rank_info.rank].take())
        }
        LocalNccl::Failed(reason) if is_asked_for => bail!("--engine nccl: {reason}"),
        LocalNccl::Failed(reason) => {
            if rank_info.rank == 0 {
                say(format_args!("gradients       summed by the host; tried nccl: {reason}"));
            }
            Ok(None)
        }
    }
}

/// The secret word that the environment holds under this name, or a file that it names, if either.
///
/// # Errors
/// When the file cannot be read, or others can read it.
pub fn secret(name: &str) -> anyhow::Result<Option<String>> {
    Ok(kiln_comm::rpc::secret(name, |name| std::env::var(name).ok())?)
}

/// How a program came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It has done what was asked for.
    Done,
    /// A signal stopped it; its checkpoint is written.
    Interrupted,
}

impl Ending {
    /// The exit status of a process with these ranks: 75 says to start the same again.
    pub fn status(endings: &[Self]) -> ExitCode {
        match endings.contains(&Self::Interrupted) {
            true => ExitCode::from(EXIT_RETRY),
            false => ExitCode::SUCCESS,
        }
    }
}

/// The flag that SIGTERM and SIGUSR1 raise, from the first call on, instead of ending the process.
///
/// # Errors
/// What the system says.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    static FLAG: OnceLock<Result<Arc<AtomicBool>, String>> = OnceLock::new();
    let caught = FLAG.get_or_init(|| {
        let flag = Arc::<AtomicBool>::default();
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGUSR1] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|error| error.to_string())?;
        }
        Ok(flag)
    });
    caught.clone().map_err(|error| anyhow!("catching signals: {error}"))
}

mod rank_count;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kiln_comm::{
    BoxError, CommBackend, Communicator, RankConfig, RankGroup, RankInfo, SingleRank, ThreadRanks,
    TransientError,
};
use kiln_store::progress::ProgressScope;
use rayon::ThreadPool;

pub use self::rank_count::{RankCount, device_count};
use crate::{Error, Result};

/// Runs `body` on each rank, and returns the results of this process's ranks in ascending order of ranks. If ranks are
/// threads, this process has all ranks; if they are processes, it has one. If the job fails, a process exits with a
/// status that states whether its launcher should restart it; see [`kiln_comm::launch`].
///
/// # Errors
/// Returns the error of the rank that failed first, or an error of joining the ranks.
pub fn launch<R: Send>(config: RankConfig, body: impl Fn(RankHandle) -> Result<R> + Sync) -> Result<Vec<R>> {
    let engine = config.comm_backend();
    let group = RankGroup::join(config).map_err(kiln_comm::RankError::from)?;
    let process = Arc::new(Process::of(&group, engine));
    let scope = ProgressScope::current();
    let results = group.run(|rank| {
        let rank = RankHandle::new(rank.comm, Arc::clone(&process));
        // Rank 0 reports for all.
        let scope = if rank.is_zero() { scope.clone() } else { ProgressScope::default() };
        let result = scope.run(|| body(rank.clone()).and_then(|value| rank.end().map(|()| value)));
        rank.close();
        result.map_err(|error| -> BoxError {
            if error.is_transient() { TransientError(error.into()).into() } else { error.into() }
        })
    });
    Ok(results?)
}

/// A handle of one rank of the job. Clones refer to the same rank.
#[derive(Clone)]
pub struct RankHandle {
    info: RankInfo,
    /// The communicator; `None` after the body of [`launch`] has returned, so that a trained model does not keep it
    /// alive: MPI cannot free a communicator after it was finalized.
    comm: Arc<Mutex<Option<Box<dyn Communicator>>>>,
    pub(crate) process: Arc<Process>,
    /// The work that [`RankHandle::at_end`] registered.
    at_end: Arc<Mutex<Vec<AtEnd>>>,
}

type AtEnd = Box<dyn FnOnce() -> Result<()> + Send>;

/// The state that the ranks of one process share.
pub(crate) struct Process {
    description: String,
    /// True if this process is one rank of several.
    pub(crate) is_one_rank: bool,
    threads: usize,
    machine_threads: usize,
    pub(crate) deadline: Duration,
    local_ip: std::result::Result<IpAddr, String>,
    pool: OnceLock<Arc<ThreadPool>>,
    #[cfg(feature = "nccl")]
    pub(crate) nccl: Option<kiln_train::NcclGroup>,
}

impl Process {
    fn of(group: &RankGroup, engine: CommBackend) -> Self {
        let _ = engine;
        Self {
            description: group.to_string(),
            is_one_rank: !matches!(group, RankGroup::Threads(_)),
            threads: group.threads(),
            machine_threads: group.machine_threads(),
            deadline: group.deadline(),
            local_ip: group.local_ip().map_err(|error| error.to_string()),
            pool: OnceLock::new(),
            // If ranks are processes, NCCL may sum the gradients even if another engine runs the other collectives.
            #[cfg(feature = "nccl")]
            nccl: (!matches!(group, RankGroup::Threads(_))
                || matches!(engine, CommBackend::Auto | CommBackend::Nccl))
            .then(|| kiln_train::NcclGroup::new(engine == CommBackend::Nccl, group.deadline())),
        }
    }

    /// Returns a pool with the threads of all ranks of this machine, for work of one rank while the others wait.
    pub(crate) fn machine_pool(&self) -> Result<Arc<ThreadPool>> {
        if let Some(pool) = self.pool.get() {
            return Ok(Arc::clone(pool));
        }
        let ranks =
            ThreadRanks { n_ranks: 1, threads_per_rank: self.machine_threads, deadline: self.deadline };
        let pool = Arc::new(ranks.machine_pool()?);
        Ok(Arc::clone(self.pool.get_or_init(|| pool)))
    }
}

impl RankHandle {
    /// Returns the handle of a rank that is alone, for methods that take one in a program without [`launch`].
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let rank = RankHandle::single();
    /// assert_eq!((rank.index(), rank.world_size()), (0, 1));
    /// ```
    pub fn single() -> Self {
        let group = RankGroup::Threads(ThreadRanks::of(1));
        Self::new(Box::new(SingleRank::new()), Arc::new(Process::of(&group, CommBackend::Store)))
    }

    fn new(comm: Box<dyn Communicator>, process: Arc<Process>) -> Self {
        Self {
            info: comm.rank_info(),
            comm: Arc::new(Mutex::new(Some(comm))),
            process,
            at_end: Arc::default(),
        }
    }

    /// Returns the number of this rank, from 0.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let indices = launch(RankConfig::threads(3), |rank| Ok(rank.index()))?;
    /// assert_eq!(indices, [0, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn index(&self) -> usize {
        self.info.rank
    }

    /// Returns the number of this rank among those of its machine, from 0.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let devices: Devices = "cpu,cpu".parse()?;
    /// launch(RankConfig::threads(2), |rank| {
    ///     println!("rank {} computes on {}", rank.index(), devices.of_rank(rank.local_index()).name);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn local_index(&self) -> usize {
        self.info.local_rank
    }

    /// Returns the number of ranks.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// launch(RankConfig::threads(2), |rank| {
    ///     // A step has 1,024 nodes for any number of ranks.
    ///     let batch_size = 1_024 / rank.world_size();
    ///     assert_eq!(batch_size, 512);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn world_size(&self) -> usize {
        self.info.world_size
    }

    /// Returns true for rank 0, which prints and writes files for all ranks.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// launch(RankConfig::threads(2), |rank| {
    ///     if rank.is_zero() {
    ///         println!("one line for all ranks");
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn is_zero(&self) -> bool {
        self.info.rank == 0
    }

    /// Returns the number of threads in the pool of each rank of this process.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let threads = launch(RankConfig::threads(2).threads_per_rank(1), |rank| Ok(rank.threads()))?;
    /// assert_eq!(threads, [1, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn threads(&self) -> usize {
        self.process.threads
    }

    /// Returns a line about the ranks: their number and their launcher; for processes also their machines and the
    /// backend.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// launch(RankConfig::threads(2), |rank| {
    ///     if rank.is_zero() {
    ///         println!("training on {}", rank.description());
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn description(&self) -> &str {
        &self.process.description
    }

    /// Runs `work` on this rank with the threads of all ranks of its machine, for work of one rank while the others
    /// wait.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// launch(RankConfig::threads(2), |rank| {
    ///     // Rank 0 computes statistics of the data with all threads of the machine.
    ///     if rank.is_zero() {
    ///         let degrees = rank.with_machine_threads(|| Ok(kiln::data::synthetic::ring(100)?.csc()?.out_degrees()))?;
    ///         assert_eq!(degrees[0], 2);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the error of `work`, and an error if the threads cannot be started.
    pub fn with_machine_threads<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let scope = ProgressScope::current();
        self.process.machine_pool()?.install(|| scope.run(work))
    }

    /// Returns a duplicate of the communicator of all ranks. Collective: every rank must call it, with the same names
    /// in the same order.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use kiln::comm::Reduce;
    /// let sums = launch(RankConfig::threads(2), |rank| {
    ///     let mut values = [rank.index() as f32 + 1.0];
    ///     rank.communicator("sums of the program")?.all_reduce_sum(Reduce::F32(&mut values))?;
    ///     Ok(values[0])
    /// })?;
    /// assert_eq!(sums, [3.0, 3.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::RanksEnded`] after the body of [`launch`] has returned, and the errors of the connection.
    pub fn communicator(&self, name: &str) -> Result<Box<dyn Communicator>> {
        let mut comm = self.comm.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(comm.as_mut().ok_or(Error::RanksEnded)?.duplicate(name)?)
    }

    /// Returns the address at which other ranks reach servers of this process.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(rank: RankHandle) -> Result<()> {
    /// println!("rank {} serves at {}:29600", rank.index(), rank.local_ip()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::NoAddress`] if ranks on other machines cannot reach this one.
    pub fn local_ip(&self) -> Result<IpAddr> {
        self.process.local_ip.clone().map_err(|reason| Error::NoAddress { reason })
    }

    /// Registers work that runs after the body of [`launch`] has returned without an error, for example to end a server. The
    /// work that was registered last runs first.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// launch(RankConfig::threads(2), |rank| {
    ///     let index = rank.index();
    ///     rank.at_end(move || {
    ///         println!("rank {index} ends its server, after all ranks have trained");
    ///         Ok(())
    ///     });
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn at_end(&self, work: impl FnOnce() -> Result<()> + Send + 'static) {
        self.at_end.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(work));
    }

    fn end(&self) -> Result<()> {
        let work = std::mem::take(&mut *self.at_end.lock().unwrap_or_else(PoisonError::into_inner));
        work.into_iter().rev().try_for_each(|work| work())
    }

    fn close(&self) {
        self.at_end.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.comm.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl fmt::Debug for RankHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RankHandle").field("info", &self.info).finish_non_exhaustive()
    }
}

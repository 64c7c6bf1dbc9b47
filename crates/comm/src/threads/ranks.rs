use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::failure::{BoxError, Failure, RankError, error_text};
use crate::threads::state::Ending;
use crate::threads::world::World;
use crate::{Communicator, SingleRank, ThreadGroup};

/// The maximum number of threads of all ranks together, which catches typing errors.
const MAX_THREADS: usize = 1024;

/// The stack size of each thread: that of a main thread on Linux, so code that runs in a main thread also runs here.
const STACK_BYTES: usize = 8 << 20;

/// The configuration of ranks that are threads of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadRanks {
    /// The number of ranks, at least 1.
    pub n_ranks: usize,
    /// The number of threads in each rank's pool, at least 1. All ranks together may have at most 1,024 threads.
    pub threads_per_rank: usize,
    /// The maximum time that a rank waits in a collective before all ranks fail. If one rank works alone for longer,
    /// let the others wait for it in a [`Communicator::barrier`] with a longer deadline.
    pub deadline: Duration,
}

impl Default for ThreadRanks {
    /// Returns one rank with a thread per core and a deadline of 10 minutes.
    fn default() -> Self {
        Self::of(1)
    }
}

impl ThreadRanks {
    /// Returns the configuration of `n_ranks` ranks with a deadline of 10 minutes. Each rank has one thread per core of
    /// its equal share of the machine's cores, rounded down, but at least one thread.
    pub fn of(n_ranks: usize) -> Self {
        let n_cores = thread::available_parallelism().map_or(1, usize::from);
        let threads_per_rank = (n_cores / n_ranks.max(1)).max(1);
        Self { n_ranks, threads_per_rank, deadline: Duration::from_secs(600) }
    }

    /// Runs `body` once on each rank, all ranks at the same time, and returns the results in rank order when all
    /// bodies have returned. A single rank gets a [`SingleRank`], several ranks get a [`ThreadGroup`].
    ///
    /// A body runs in a thread of its rank's pool of `threads_per_rank` threads, which also runs the body's
    /// data-parallel loops. Loops in threads that a body starts itself run in the global pool of the process. Only the
    /// body and such threads may call collectives, not tasks of the pool: if tasks that wait for other ranks occupy all
    /// threads of the pool, the task that those ranks wait for cannot run before the deadline.
    ///
    /// # Errors
    /// Returns [`RankError::Rank`] if a rank failed or panicked. It contains the first rank that did, because the other
    /// ranks fail as a consequence. If a rank returns early while others wait for it, its result is dropped and the
    /// error of a waiting rank is returned. Returns other [`RankError`]s if there are no ranks or threads, or too many.
    pub fn run<R: Send>(
        &self,
        body: impl Fn(Box<dyn Communicator>) -> Result<R, BoxError> + Sync,
    ) -> Result<Vec<R>, RankError> {
        self.run_in(|rank| thread::Builder::new().name(format!("kiln-rank-{rank}")), body)
    }

    /// Creates a pool with as many threads as all ranks have together, for work that one rank does while the others
    /// wait.
    ///
    /// # Errors
    /// Returns an error if there are no ranks or threads, or too many, or if the system cannot start the threads.
    pub fn machine_pool(&self) -> Result<ThreadPool, RankError> {
        let n_threads = self.n_threads()?;
        let named = ThreadPoolBuilder::new().thread_name(|thread| format!("kiln-machine-{thread}"));
        named.num_threads(n_threads).stack_size(STACK_BYTES).build().map_err(RankError::Pool)
    }

    /// Returns the number of threads of all ranks together.
    fn n_threads(&self) -> Result<usize, RankError> {
        let Self { n_ranks, threads_per_rank, .. } = *self;
        if n_ranks == 0 {
            return Err(RankError::NoRanks);
        }
        if threads_per_rank == 0 {
            return Err(RankError::NoThreads);
        }
        n_ranks
            .checked_mul(threads_per_rank)
            .filter(|n_threads| *n_threads <= MAX_THREADS)
            .ok_or(RankError::TooManyThreads { n_ranks, threads_per_rank, max: MAX_THREADS })
    }

    /// Runs `body` on each rank, in threads that `builder` creates.
    fn run_in<R: Send>(
        &self,
        builder: impl Fn(usize) -> thread::Builder,
        body: impl Fn(Box<dyn Communicator>) -> Result<R, BoxError> + Sync,
    ) -> Result<Vec<R>, RankError> {
        self.n_threads()?;
        let (watch, comms) = Watch::new(self);
        let run = Run { threads_per_rank: self.threads_per_rank, body, watch: Arc::new(watch) };
        let outcomes = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(self.n_ranks);
            for (rank, comm) in comms.into_iter().enumerate() {
                let run = &run;
                let started = builder(rank).spawn_scoped(scope, move || run.rank(rank, comm));
                threads.push(started.map_err(|source| run.watch.lost(rank, Failure::Spawn(source))));
                if threads.last().is_some_and(Result::is_err) {
                    break;
                }
            }
            threads.into_iter().map(|thread| thread.and_then(join)).collect()
        });
        run.watch.verdict(outcomes)
    }
}

/// The state that the threads of all ranks share.
struct Run<B> {
    threads_per_rank: usize,
    body: B,
    watch: Arc<Watch>,
}

impl<R: Send, B: Fn(Box<dyn Communicator>) -> Result<R, BoxError> + Sync> Run<B> {
    /// Runs the body in a new pool. The pool's threads have ended when this returns.
    fn rank(&self, rank: usize, comm: Box<dyn Communicator>) -> Result<R, Failure> {
        let watch = Arc::clone(&self.watch);
        let pool = ThreadPoolBuilder::new()
            .num_threads(self.threads_per_rank)
            .stack_size(STACK_BYTES)
            .thread_name(move |thread| format!("kiln-rank-{rank}-{thread}"))
            .panic_handler(move |payload| watch.stray(rank, message(payload)));
        let outcome = pool.build_scoped(|thread| thread.run(), |pool| pool.install(|| self.body(rank, comm)));
        let outcome = outcome.unwrap_or_else(|source| Err(self.watch.lost(rank, Failure::Pool(source))));
        match self.watch.take_stray(rank) {
            Some(message) => Err(Failure::Panicked { message }),
            None => outcome,
        }
    }

    /// Runs the body, and notifies the other ranks of its end before this thread does anything else.
    fn body(&self, rank: usize, comm: Box<dyn Communicator>) -> Result<R, Failure> {
        // After a panic, state that the body shares with other ranks may be inconsistent. That is safe, as all ranks
        // end.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // The error is formatted inside `catch_unwind` because its `Display` is user code that may panic.
            (self.body)(comm).map_err(|error| (error_text(error.as_ref()), error))
        }));
        let (outcome, ending) = match outcome {
            Ok(Ok(result)) => (Ok(result), Ending::Returned),
            Ok(Err((text, error))) => (Err(Failure::Failed(error)), Ending::Failed(text)),
            Err(payload) => {
                let message = message(payload);
                (Err(Failure::Panicked { message: message.clone() }), Ending::Panicked(message))
            }
        };
        self.watch.ended(rank, ending);
        outcome
    }
}

/// Records how ranks end and reports it to the world. Its lock and the world's are never held at the same time.
struct Watch {
    n_ranks: usize,
    /// The world; `None` for a single rank.
    world: Option<Arc<World>>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// The ranks that failed, in order of failure.
    failed: Vec<usize>,
    /// The messages of panics in jobs that a rank spawned in its pool, for ranks that had not failed before.
    strays: BTreeMap<usize, String>,
}

impl Watch {
    /// Creates the watch and one communicator per rank.
    fn new(ranks: &ThreadRanks) -> (Self, Vec<Box<dyn Communicator>>) {
        let ThreadRanks { n_ranks, deadline, .. } = *ranks;
        if n_ranks == 1 {
            return (
                Self { n_ranks, world: None, notes: Mutex::default() },
                vec![Box::new(SingleRank::new())],
            );
        }
        let world = Arc::new(World::with_bodies(n_ranks, deadline));
        let comms = ThreadGroup::of_world(&world, n_ranks);
        let comms = comms.into_iter().map(|comm| Box::new(comm) as Box<dyn Communicator>).collect();
        (Self { n_ranks, world: Some(world), notes: Mutex::default() }, comms)
    }

    /// Records the end of a rank's body.
    fn ended(&self, rank: usize, ending: Ending) {
        if !matches!(ending, Ending::Returned) {
            self.notes().failed.push(rank);
        }
        if let Some(world) = &self.world {
            world.end_body(rank, ending);
        }
    }

    /// Records that a rank has no thread for its body. Returns `failure`.
    fn lost(&self, rank: usize, failure: Failure) -> Failure {
        self.ended(rank, Ending::Failed(error_text(&failure)));
        failure
    }

    /// Records the panic of a job that the rank spawned in its pool.
    fn stray(&self, rank: usize, message: String) {
        let mut notes = self.notes();
        if !notes.failed.contains(&rank) {
            notes.strays.insert(rank, message.clone());
        }
        drop(notes);
        self.ended(rank, Ending::Panicked(message));
    }

    fn take_stray(&self, rank: usize) -> Option<String> {
        self.notes().strays.remove(&rank)
    }

    /// Returns the results of all ranks, or, if ranks failed, the failure that caused the others.
    fn verdict<R>(&self, outcomes: Vec<Result<R, Failure>>) -> Result<Vec<R>, RankError> {
        let mut results = Vec::with_capacity(outcomes.len());
        let mut failures = BTreeMap::new();
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(result) => results.push(result),
                Err(failure) => drop(failures.insert(rank, failure)),
            }
        }
        // The culprit may have no error of its own, because it returned early or because two ranks called different
        // collectives.
        let culprit = self.world.as_ref().and_then(|world| world.culprit());
        let in_order = culprit.into_iter().chain(self.notes().failed.clone()).chain(0..self.n_ranks);
        let first = in_order.into_iter().find_map(|rank| Some((rank, failures.remove(&rank)?)));
        match first {
            Some((rank, failure)) => Err(RankError::Rank { rank, n_ranks: self.n_ranks, failure }),
            None => Ok(results),
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn join<R>(thread: ScopedJoinHandle<'_, Result<R, Failure>>) -> Result<R, Failure> {
    thread.join().unwrap_or_else(|payload| Err(Failure::Panicked { message: message(payload) }))
}

/// Returns the message of a panic.
fn message(payload: Box<dyn Any + Send>) -> String {
    let message = if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    };
    // The payload is the user's. If dropping it panicked, the other ranks would not be notified, so it is leaked.
    std::mem::forget(payload);
    message
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    /// The system cannot start a thread whose stack exceeds the address space.
    #[test]
    fn failed_thread_start_ends_all_ranks() {
        let never = Duration::from_secs(1_000_000);
        let ranks = ThreadRanks { n_ranks: 4, threads_per_rank: 1, deadline: never };
        let builder =
            |rank| thread::Builder::new().stack_size(if rank == 2 { usize::MAX / 4 } else { 1 << 16 });
        let outcome = ranks.run_in(builder, |mut comm| Ok(comm.barrier(never)?));
        let error = outcome.unwrap_err();
        assert!(matches!(error, RankError::Rank { rank: 2, n_ranks: 4, failure: Failure::Spawn(_) }));
        let expected = "rank 2: failed to start the thread of the rank: use fewer threads";
        assert_eq!((error.to_string().as_str(), error.source().is_some()), (expected, true));
    }
}

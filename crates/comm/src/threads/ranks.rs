use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::failure::{BoxError, Failure, RankError, chain};
use crate::threads::state::Ending;
use crate::threads::world::World;
use crate::{Communicator, SingleRank, ThreadGroup};

/// The largest number of threads that is taken, of all ranks: more is a slip of the keyboard.
const MAX_THREADS: usize = 1024;

/// Stack of a thread: as much as a main thread has, so that what runs there runs in a rank.
const STACK_BYTES: usize = 8 << 20;

/// Ranks that are threads of this process: how many, and of what size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadRanks {
    /// Number of ranks, at least 1.
    pub n_ranks: usize,
    /// Threads of each rank's pool, at least 1; with all ranks together 1,024 at most.
    pub threads_per_rank: usize,
    /// How long a rank waits in a collective for the others before it gives up. Where one works alone for
    /// longer, let all meet in a [`Communicator::barrier`] with a deadline of its own after it.
    pub deadline: Duration,
}

impl Default for ThreadRanks {
    /// One rank with all cores, and 10 minutes.
    fn default() -> Self {
        Self::of(1)
    }
}

impl ThreadRanks {
    /// Ranks that share the machine's cores: each has as many threads as leave no core with two, and one
    /// where there are more ranks than cores.
    pub fn of(n_ranks: usize) -> Self {
        let n_cores = thread::available_parallelism().map_or(1, usize::from);
        let threads_per_rank = (n_cores / n_ranks.max(1)).max(1);
        Self { n_ranks, threads_per_rank, deadline: Duration::from_secs(600) }
    }

    /// Runs `body` once on each rank, all at the same time, and returns their results by rank when the last
    /// has come to its end. A single rank gets a [`SingleRank`], several are a [`ThreadGroup`].
    ///
    /// A body runs in a thread of its rank's own pool of `threads_per_rank` threads, so that data-parallel
    /// loops in it stay on them. Threads that a body starts itself are outside the pool: loops in them are
    /// on the process's own pool. Let only the body and such threads call collectives, not a task of the
    /// pool: tasks that wait for other ranks can keep all of the pool's threads from the task that those
    /// wait for, until the deadline.
    ///
    /// # Errors
    /// [`RankError::Rank`] when a rank failed or panicked: the one that did so first, as the others end with
    /// errors because of it. A rank that returns early, while others want to meet it, has its result lost
    /// and the error of one of those in its place. Other [`RankError`]s when there are no ranks or threads,
    /// or too many of them.
    pub fn run<R: Send>(
        &self,
        body: impl Fn(Box<dyn Communicator>) -> Result<R, BoxError> + Sync,
    ) -> Result<Vec<R>, RankError> {
        self.run_in(|rank| thread::Builder::new().name(format!("kiln-rank-{rank}")), body)
    }

    /// A pool of as many threads as all ranks have together, for what one rank does while the others wait.
    ///
    /// # Errors
    /// When there are no ranks or threads, or too many of them, or the system has no more.
    pub fn machine_pool(&self) -> Result<ThreadPool, RankError> {
        let n_threads = self.n_threads()?;
        let named = ThreadPoolBuilder::new().thread_name(|thread| format!("kiln-machine-{thread}"));
        named.num_threads(n_threads).stack_size(STACK_BYTES).build().map_err(RankError::Pool)
    }

    /// The threads of all ranks together.
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

    /// Runs `body` on each rank, in threads of these builders.
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

/// What all ranks run.
struct Run<B> {
    threads_per_rank: usize,
    body: B,
    watch: Arc<Watch>,
}

impl<R: Send, B: Fn(Box<dyn Communicator>) -> Result<R, BoxError> + Sync> Run<B> {
    /// Runs the body in a pool of its own, whose threads have ended when this returns.
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

    /// Runs the body, and tells the others of its end before this thread does anything else.
    fn body(&self, rank: usize, comm: Box<dyn Communicator>) -> Result<R, Failure> {
        // What a body shares with other ranks may be broken after a panic: all of them end.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // The error's text is made here because it is the user's code that makes it.
            (self.body)(comm).map_err(|error| (chain(error.as_ref()), error))
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

/// What is known of the ranks of a run. Its lock is never held together with the world's.
struct Watch {
    n_ranks: usize,
    /// Where the ranks meet, if there are several.
    world: Option<Arc<World>>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// Ranks that failed, in that order.
    failed: Vec<usize>,
    /// Panics of jobs that a rank had left to its pool, where they are why it failed.
    strays: BTreeMap<usize, String>,
}

impl Watch {
    /// With a communicator for each rank.
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

    /// The rank's body has ended.
    fn ended(&self, rank: usize, ending: Ending) {
        if !matches!(ending, Ending::Returned) {
            self.notes().failed.push(rank);
        }
        if let Some(world) = &self.world {
            world.end_body(rank, ending);
        }
    }

    /// The rank has no thread for its body.
    fn lost(&self, rank: usize, failure: Failure) -> Failure {
        self.ended(rank, Ending::Failed(chain(&failure)));
        failure
    }

    /// A job has panicked that the rank had left to its pool.
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

    /// All results, or the failure that is the reason for the others.
    fn verdict<R>(&self, outcomes: Vec<Result<R, Failure>>) -> Result<Vec<R>, RankError> {
        let (mut results, mut failures) = (Vec::with_capacity(outcomes.len()), BTreeMap::new());
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(result) => results.push(result),
                Err(failure) => drop(failures.insert(rank, failure)),
            }
        }
        // The culprit may have no error of its own: it returned early, or is not the only one in the wrong.
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

/// What a panic said.
fn message(payload: Box<dyn Any + Send>) -> String {
    let message = if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    };
    // The payload is the user's: a panic while it is dropped would keep the others from hearing of this one.
    std::mem::forget(payload);
    message
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    /// The system refuses a thread with more stack than there are addresses.
    #[test]
    fn a_thread_that_cannot_be_started_leaves_nobody_waiting() {
        let never = Duration::from_secs(1_000_000);
        let ranks = ThreadRanks { n_ranks: 4, threads_per_rank: 1, deadline: never };
        let builder =
            |rank| thread::Builder::new().stack_size(if rank == 2 { usize::MAX / 4 } else { 1 << 16 });
        let outcome = ranks.run_in(builder, |mut comm| Ok(comm.barrier(never)?));
        let error = outcome.unwrap_err();
        assert!(matches!(error, RankError::Rank { rank: 2, n_ranks: 4, failure: Failure::Spawn(_) }));
        let expected = "rank 2: its thread could not be started: ask for fewer threads";
        assert_eq!((error.to_string().as_str(), error.source().is_some()), (expected, true));
    }
}

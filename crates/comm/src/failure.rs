use std::error::Error as StdError;
use std::{fmt, io};

use rayon::ThreadPoolBuildError;

use crate::{EXIT_FAILED, EXIT_RETRY, JobError, TransientError};

/// Whatever a rank's body ends with.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a run of ranks has no results.
#[derive(Debug)]
#[non_exhaustive]
pub enum RankError {
    /// The processes could not be joined.
    Join(JobError),
    /// No ranks were asked for.
    NoRanks,
    /// No threads were asked for.
    NoThreads,
    /// More threads than anybody means.
    TooManyThreads {
        /// Ranks asked for.
        n_ranks: usize,
        /// Threads of each.
        threads_per_rank: usize,
        /// The most that is taken, of all ranks together.
        max: usize,
    },
    /// The threads of a pool that belongs to no rank could not be started.
    Pool(ThreadPoolBuildError),
    /// A rank did not end well: of several the first, whose end is the reason for that of the others.
    Rank {
        /// The rank.
        rank: usize,
        /// Of how many.
        n_ranks: usize,
        /// What became of it.
        failure: Failure,
    },
}

/// What became of a rank that gave no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Its body returned this.
    Failed(BoxError),
    /// Its body panicked, or a job that it had left to its pool.
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// Its thread could not be started.
    Spawn(io::Error),
    /// The threads of its pool could not be started.
    Pool(ThreadPoolBuildError),
}

impl RankError {
    /// The status that a process should exit with for this error: [`EXIT_RETRY`] where another attempt may succeed,
    /// otherwise [`EXIT_FAILED`].
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Join(error) => error.status(),
            _ if TransientError::is_cause_of(self) => EXIT_RETRY,
            _ => EXIT_FAILED,
        }
    }

    /// The rank that did not end well, if it is about one.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::Rank { rank, .. } => Some(*rank),
            _ => None,
        }
    }
}

impl fmt::Display for RankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(error) => write!(f, "{error}"),
            Self::NoRanks => f.write_str("no ranks: ask for 1 at least"),
            Self::NoThreads => f.write_str("no threads for a rank: ask for 1 at least"),
            Self::TooManyThreads { n_ranks, threads_per_rank, max } => write!(
                f,
                "{n_ranks} ranks of {threads_per_rank} threads are more than {max} threads: \
                 ask for fewer, as many as there are cores are best"
            ),
            Self::Pool(_) => f.write_str("the threads for work of all ranks could not be started"),
            Self::Rank { n_ranks: 1, failure, .. } => write!(f, "{failure}"),
            Self::Rank { rank, failure, .. } => write!(f, "rank {rank}: {failure}"),
        }
    }
}

/// Every text stands once in the chain of sources: a rank's error is told with the rank's name.
impl StdError for RankError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Join(error) => error.source(),
            Self::Pool(source) => Some(source),
            Self::Rank { failure, .. } => failure.source(),
            _ => None,
        }
    }
}

impl From<JobError> for RankError {
    fn from(error: JobError) -> Self {
        Self::Join(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "{error}"),
            Self::Panicked { message } => write!(f, "panicked: {message}"),
            Self::Spawn(_) => f.write_str("its thread could not be started: ask for fewer threads"),
            Self::Pool(_) => f.write_str("the threads of its pool could not be started: ask for fewer"),
        }
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            Self::Panicked { .. } => None,
            Self::Spawn(source) => Some(source),
            Self::Pool(source) => Some(source),
        }
    }
}

/// An error and its sources, in a line.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |&error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

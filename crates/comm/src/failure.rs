use std::error::Error as StdError;
use std::{fmt, io};

use rayon::ThreadPoolBuildError;

use crate::JobError;

/// The error type of a rank's body.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// An error of starting or running the ranks.
#[derive(Debug)]
#[non_exhaustive]
pub enum RankError {
    /// This process could not join the others.
    Join(JobError),
    /// The number of ranks is 0.
    NoRanks,
    /// The number of threads per rank is 0.
    NoThreads,
    /// The total number of threads exceeds the limit.
    TooManyThreads {
        /// The number of ranks.
        n_ranks: usize,
        /// The number of threads of each rank.
        threads_per_rank: usize,
        /// The maximum number of threads of all ranks together.
        max: usize,
    },
    /// The threads of the machine's pool could not be started.
    Pool(ThreadPoolBuildError),
    /// A rank failed. If several failed, this is the one that caused the others to end.
    Rank {
        /// The rank.
        rank: usize,
        /// The number of ranks.
        n_ranks: usize,
        /// The failure of the rank.
        failure: Failure,
    },
}

/// The reason why a rank has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The body returned this error.
    Failed(BoxError),
    /// The body, or a job that the body had spawned in its pool, panicked.
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// The rank's thread could not be started.
    Spawn(io::Error),
    /// The threads of the rank's pool could not be started.
    Pool(ThreadPoolBuildError),
}

impl RankError {
    /// Returns the failed rank, or `None` if the error does not concern a single rank.
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
            Self::NoRanks => f.write_str("0 ranks requested: expected at least 1"),
            Self::NoThreads => f.write_str("0 threads per rank requested: expected at least 1"),
            Self::TooManyThreads { n_ranks, threads_per_rank, max } => write!(
                f,
                "{n_ranks} ranks with {threads_per_rank} threads each exceed the limit of {max} threads: \
                 use fewer, ideally one per core"
            ),
            Self::Pool(_) => f.write_str("failed to start the threads of the machine's pool"),
            Self::Rank { n_ranks: 1, failure, .. } => write!(f, "{failure}"),
            Self::Rank { rank, failure, .. } => write!(f, "rank {rank}: {failure}"),
        }
    }
}

/// The `Display` text already contains the first error, so `source` skips it and each text occurs once in the chain.
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
            Self::Spawn(_) => f.write_str("failed to start the thread of the rank: use fewer threads"),
            Self::Pool(_) => f.write_str("failed to start the threads of the rank's pool: use fewer threads"),
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

/// Formats an error and its sources in one line, separated by colons. A source whose text is already in the line is left
/// out, because some messages contain that of their source.
///
/// ```
/// use kiln_comm::{JobError, error_text};
/// let source = std::io::Error::other("the port is in use");
/// let error = JobError::Listen { address: "node1:29400".into(), source };
/// let text = error_text(&error);
/// assert!(text.starts_with("rank 0 cannot listen at node1:29400") && text.ends_with(": the port is in use"));
/// ```
pub fn error_text(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for source in std::iter::successors(error.source(), |&source| source.source()) {
        let of_source = source.to_string();
        if !text.contains(&of_source) {
            text += ": ";
            text += &of_source;
        }
    }
    if std::iter::successors(Some(error), |&error| error.source()).any(is_without_files) {
        text += ": raise the limit of open files, for example by `ulimit -n 4096`";
    }
    text
}

/// Returns true for the errors of a process, or of a system, that has as many open files as it may have.
fn is_without_files(error: &(dyn StdError + 'static)) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    cfg!(unix) && matches!(code, Some(ENFILE | EMFILE))
}

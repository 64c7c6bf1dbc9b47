use std::io;
use std::path::PathBuf;

use kiln_store::paths::io_reason;
use kiln_usage::UsageError;

/// An error of a sweep as a whole. A run that fails is no error: the sweep goes on with the others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file of the sweep is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The folder has another sweep.
    #[error(
        "{file} lacks runs of {folder}: {differences}; restore the earlier values ({addable} may be added), or pass \
         another folder with --out"
    )]
    OtherSweep {
        /// The folder.
        folder: PathBuf,
        /// The file of the sweep.
        file: String,
        /// The earlier values that are missing.
        differences: String,
        /// What may be added to the sweep.
        addable: &'static str,
    },
    /// The folder has other files.
    #[error("{folder} is not empty and has no sweep: pass a new folder with --out")]
    NotEmpty {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process runs the sweep.
    #[error("{folder} is in use by another sweep: wait for it, stop it, or pass another folder with --out")]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The record of the runs is damaged.
    #[error("{path}: {reason}: restore the file, or pass a new folder with --out")]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// The error of its reader.
        reason: String,
    },
    /// A run needs more memory than the limit.
    #[error(
        "--memory-per-run {run_bytes} is above the limit of {total_bytes} bytes for all runs: raise --memory"
    )]
    RunAboveLimit {
        /// The memory of a run in bytes.
        run_bytes: u64,
        /// The limit in bytes.
        total_bytes: u64,
    },
    /// The system does not report the memory of a process.
    #[error(
        "--memory needs --memory-per-run on this system, which does not report the memory of a process: add it"
    )]
    NoMeasure,
    /// The system does not report the available memory.
    #[error(
        "--memory-per-run needs a limit on this system, which does not report the available memory: add --memory"
    )]
    NoLimit,
    /// A file or a folder could not be read or written.
    #[error("{path}: {}", io_reason(path, source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The page could not be written.
    #[error(transparent)]
    Page(#[from] kiln_train::Error),
    /// The Parquet file could not be written.
    #[cfg(feature = "tables")]
    #[error(transparent)]
    Rows(#[from] kiln_tables::Error),
}

impl Error {
    /// Returns true if the command line or the file of the sweep is the cause.
    ///
    /// ```
    /// let error = kiln_sweep::Error::InUse { folder: "runs/sweep".into() };
    /// assert!(!error.is_usage());
    /// ```
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Plan(_)
                | Self::OtherSweep { .. }
                | Self::NotEmpty { .. }
                | Self::RunAboveLimit { .. }
                | Self::NoMeasure
                | Self::NoLimit
        )
    }
}

/// Returns an error of a file or folder.
pub(crate) fn io_error(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
    let path = path.into();
    |source| Error::Io { path, source }
}

/// The file of a sweep is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The file cannot be read, or is no table of flags.
    #[error(transparent)]
    File(#[from] UsageError),
    /// The file has no settings to vary.
    #[error(
        "{file} has no table `sweep` with lists of values: add one, such as `[sweep]` with `lr = [0.01, 0.003]`"
    )]
    NothingVaries {
        /// The file.
        file: String,
    },
    /// An entry with values of a setting is invalid.
    #[error("{file}: `{key}` {reason}")]
    BadChoice {
        /// The file.
        file: String,
        /// The key of the entry, such as `sweep.lr`.
        key: String,
        /// The reason, with the expected value.
        reason: String,
    },
    /// The table of the random search is invalid.
    #[error("{file}: `random`: {reason}")]
    BadRandom {
        /// The file.
        file: String,
        /// The reason, with the expected value.
        reason: String,
    },
    /// A sweep does not support a flag.
    #[error("{file}: --{flag} is not supported in a sweep: {reason}; remove it")]
    Unsupported {
        /// The file.
        file: String,
        /// The flag.
        flag: String,
        /// The reason.
        reason: &'static str,
    },
    /// There are too many runs.
    #[error(
        "{file} has {n_runs} runs, expected at most {max}: use a random search, a table `random` with `trials`"
    )]
    TooManyRuns {
        /// The file.
        file: String,
        /// The number of runs.
        n_runs: usize,
        /// The limit.
        max: usize,
    },
    /// A command line of the sweep is invalid.
    #[error("{file}: {runs}: {reason}")]
    BadRun {
        /// The file.
        file: String,
        /// The runs: the settings that the sweep varies, with their values.
        runs: String,
        /// The error of the command line.
        reason: String,
    },
}

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use kiln_store::paths::io_reason;

use crate::run::contract::DETERMINISM_CONTRACT;

/// An error in a run: its folder, its checkpoints and its other files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The data could not be hashed, so checkpoints could not state to which data they belong.
    #[error("the data could not be hashed: {source}")]
    DataHash {
        /// The error of the data.
        source: Arc<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The checkpoint belongs to a run with other settings or data.
    #[error(
        "the checkpoint belongs to another run: {name} was {then} and is {now} now; restore the earlier value, or start a new run"
    )]
    OtherRun {
        /// The name of the first value that differs: a setting, the hash of the data, or the names of classes, feature columns or
        /// edge types.
        name: String,
        /// The value in the earlier part of the run.
        then: String,
        /// The value in this run.
        now: String,
    },
    /// The checkpoint belongs to a run of an earlier version of the program `kiln`, which recorded flags instead of settings.
    #[error(
        "the checkpoint belongs to a run of an earlier version of `{program}`, which identified runs by their flags: finish \
         the run with the version that began it, or start a new run"
    )]
    RunOfEarlierVersion {
        /// The program, such as `kiln train`.
        program: String,
    },
    /// The checkpoint has another version of the determinism contract, [`DETERMINISM_CONTRACT`].
    #[error(
        "{path}: the checkpoint has version {version} of the determinism contract, this program has version {DETERMINISM_CONTRACT} and computes other results: resume the run with {program}, or start a new run"
    )]
    OtherContract {
        /// The path of the checkpoint.
        path: PathBuf,
        /// The version of the contract that the checkpoint has.
        version: u32,
        /// The name and version of the program that wrote the checkpoint.
        program: String,
    },
    /// A file of a run folder is damaged, was changed, or has an unknown format version.
    #[error("{path}: {reason}")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The reason why the file was rejected, with the expected and the found value if there are any.
        reason: String,
    },
    /// The folder contains no checkpoint to resume from.
    #[error(
        "{path} {}: pass the folder of a run{suggestion}, or start a new run",
        if path.exists() { "has no checkpoint to resume from" } else { "does not exist" }
    )]
    NoCheckpoint {
        /// The folder.
        path: PathBuf,
        /// The runs in the folder or beside it, for the message; empty if there are none.
        suggestion: String,
    },
    /// A folder is not that of a run.
    #[error("{path} is no run: pass the folder of a run that has written a checkpoint{suggestion}")]
    NoRun {
        /// The folder.
        path: PathBuf,
        /// The runs in the folder or beside it, for the message; empty if there are none.
        suggestion: String,
    },
    /// Another run holds the lock of the run folder.
    #[error("{path} is in use by another run: wait for that run, stop it, or pass another folder")]
    RunFolderInUse {
        /// The folder.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{path}: {}", io_reason(path, source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The folder for a new run is not empty.
    #[error("{path} is not empty: pass a new folder, so that no earlier result is overwritten")]
    RunFolderNotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The weights could not be serialized, or do not fit the model.
    #[error("the weights could not be saved or loaded: {reason}")]
    Weights {
        /// A description of the tensor that does not fit, or the error of the file format.
        reason: String,
    },
    /// The trainer and the run are at different epochs or steps.
    #[error(
        "the trainer is in epoch {got}, the run in epoch {expected} (from 0), expected the same epoch and step: pass the trainer that the run was started with"
    )]
    OtherTrainer {
        /// The number of epochs that the run has recorded.
        expected: usize,
        /// The number of epochs that the trainer has trained.
        got: usize,
    },
    /// The run has not recorded an epoch yet.
    #[error("no epoch was recorded, so there is no best model")]
    NoEpoch,
    /// The learning curves could not be drawn.
    #[error("the learning curves could not be drawn: {reason}")]
    Drawing {
        /// The drawing library's error.
        reason: String,
    },
}

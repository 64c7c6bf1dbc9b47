use std::path::PathBuf;

/// What can go wrong while training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loader ended with an error.
    #[error(transparent)]
    Loader(#[from] kiln_loader::Error),
    /// The loss is no longer a number: the model is lost.
    #[error(
        "the loss of {pass} step {step} is {loss}: lower the learning rate, or read all features once in search of values that are not finite (programs that have the flag --verify do so with it)"
    )]
    LossNotFinite {
        /// Training or evaluation.
        pass: &'static str,
        /// The step within the pass.
        step: usize,
        /// The sum of the step's losses.
        loss: f64,
    },
    /// Gradients could not be averaged over the ranks.
    #[error("gradients of step {step} were not averaged: {source}")]
    Sync {
        /// The step within the epoch.
        step: usize,
        /// What the communicator said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A number that no training run can use.
    #[error("{what} is {got}, expected {expected}")]
    BadSetting {
        /// Which setting.
        what: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        got: f64,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The run folder holds something already.
    #[error("{path} is not empty: name a new folder, so that no earlier result is overwritten")]
    RunFolderNotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// Weights could not be written or do not fit the model.
    #[error("the weights do not fit: {reason}")]
    Weights {
        /// What does not fit.
        reason: String,
    },
    /// There is nothing to train on or to judge a model by.
    #[error("the {split} split has no items: give it some, so that models can be compared")]
    EmptySplit {
        /// Which split.
        split: &'static str,
    },
    /// A run ended before its first evaluated epoch.
    #[error("no epoch was recorded, so there is no best model")]
    NoEpoch,
    /// A drawing failed.
    #[error("the learning curves could not be drawn: {reason}")]
    Drawing {
        /// What the drawing library said.
        reason: String,
    },
}

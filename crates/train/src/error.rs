mod exact_error;
mod input_error;
mod metric_error;
mod run_error;
mod trainer_error;

use std::time::Duration;

use crate::metric::selection_error::SelectionError;
use crate::saved::error::{InitialWeightsError, ModelError, ModelFileError};
use crate::step::embedding::embedding_error::EmbeddingError;
use crate::step::task::custom_loss_error::CustomLossError;

pub use self::exact_error::ExactError;
pub use self::input_error::InputError;
pub use self::metric_error::MetricError;
pub use self::run_error::RunError;
pub use self::trainer_error::TrainerError;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The errors of training, evaluation and runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loader failed.
    #[error(transparent)]
    Loader(#[from] kiln_loader::Error),
    /// The trainer cannot train the model on these batches, or must stop.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// Communication failed: another rank failed, was lost, or called a different collective.
    #[error(transparent)]
    Ranks(#[from] kiln_comm::Error),
    /// The folder of the run, or a file in it, cannot be used, or belongs to another run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The data does not fit the model or the task.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A file of the run could not be written, and the last complete checkpoint is older than an hour.
    #[error(
        "no checkpoint could be written for {} minutes: {last}; fix the cause (free disk space, raise a quota or limit, check the file system), then resume the run", age.as_secs() / 60
    )]
    CheckpointOverdue {
        /// The age of the last complete checkpoint, or the time since the run started or resumed.
        age: Duration,
        /// The last failure.
        last: Box<Error>,
    },
    /// The model could not be initialized.
    #[error(transparent)]
    Model(#[from] kiln_nn::Error),
    /// A saved model could not be opened, or a request does not fit it.
    #[error(transparent)]
    Saved(#[from] ModelError),
    /// The requested number of epochs is smaller than the number that the run has completed.
    #[error(
        "the number of epochs is {n_epochs}, expected at least {n_done}: the run has completed that many"
    )]
    TooFewEpochs {
        /// The requested number of epochs.
        n_epochs: usize,
        /// The number of epochs that the run has completed.
        n_done: usize,
    },
    /// The sampler failed.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// Feature rows or labels could not be read.
    #[error(transparent)]
    Feature(#[from] kiln_feature::Error),
    /// A file could not be mapped, or was changed while it was mapped.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
    /// Exact evaluation, embeddings or their width were requested of a model that returns no
    /// [`BlockModel::layer_size`](kiln_nn::BlockModel::layer_size).
    #[error(
        "the model returns no sizes of its layers, which exact evaluation and embeddings need: evaluate with sampled \
         neighbours, or, if its forward pass just runs the layers in order, implement BlockModel::layer_size"
    )]
    NotLayerWise,
    /// A metric is unknown, or does not fit the data.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// Exact evaluation is not possible.
    #[error(transparent)]
    Exact(#[from] ExactError),
}

impl From<EmbeddingError> for Error {
    fn from(error: EmbeddingError) -> Self {
        Self::Trainer(error.into())
    }
}

impl From<kiln_kernels::DeviceError> for Error {
    fn from(error: kiln_kernels::DeviceError) -> Self {
        Self::Trainer(error.into())
    }
}

impl From<InitialWeightsError> for Error {
    fn from(error: InitialWeightsError) -> Self {
        Self::Saved(error.into())
    }
}

impl From<CustomLossError> for Error {
    fn from(error: CustomLossError) -> Self {
        Self::Input(error.into())
    }
}

impl From<SelectionError> for Error {
    fn from(error: SelectionError) -> Self {
        Self::Metric(error.into())
    }
}

impl Error {
    /// Returns true if the error is one of the command line or the call: a folder that is no run, has no checkpoint, or is not
    /// empty, or a model whose files cannot be read.
    ///
    /// ```
    /// let error = kiln_train::RunRecord::read("no/such/run").unwrap_err();
    /// assert!(error.is_usage());
    /// ```
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Saved(ModelError::File(ModelFileError::Unreadable { .. }))
                | Self::Run(
                    RunError::NoCheckpoint { .. }
                        | RunError::NoRun { .. }
                        | RunError::RunFolderNotEmpty { .. }
                )
        )
    }
}

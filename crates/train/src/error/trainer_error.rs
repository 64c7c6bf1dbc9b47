use crate::step::embedding::embedding_error::EmbeddingError;

/// An error in the use of a trainer, or in its steps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The loss of a step is infinite or NaN.
    #[error(
        "the loss of {pass} step {step} is {loss}: lower the learning rate, or check all features for values that are not finite (`kiln data verify`)"
    )]
    LossNotFinite {
        /// The phase, `training` or `evaluation`.
        pass: &'static str,
        /// The step within the epoch or the evaluation, from 0.
        step: usize,
        /// The sum of the step's losses.
        loss: f64,
    },
    /// The loss of the first step of a run, which no update of the weights precedes, is infinite or NaN.
    #[error(
        "the loss of the first training step is {loss}, before any update of the weights: check all features for values that are not finite (`kiln data verify`), and scale features or targets that are very large"
    )]
    FirstLossNotFinite {
        /// The sum of the step's losses.
        loss: f64,
    },
    /// The ranks have different parameters after the same steps.
    #[error(
        "rank {rank} and rank 0 have different parameters after epoch {epoch}: a step must depend only on the batch and its key"
    )]
    RanksDiffer {
        /// The lowest rank whose parameters differ from rank 0's.
        rank: usize,
        /// The epoch, from 1.
        epoch: usize,
    },
    /// Rows or gradients do not fit an embedding.
    #[error(transparent)]
    Embedding(#[from] EmbeddingError),
    /// A setting is outside of its range.
    #[error("{what} is {got}, expected {expected}")]
    BadSetting {
        /// The name of the setting.
        what: &'static str,
        /// A description of the valid values.
        expected: &'static str,
        /// The value of the setting.
        got: f64,
    },
    /// The model is on another device than the trainer, or does not track gradients.
    #[error(
        "the model has parameters on {got}, expected all of them on {expected} with autodiff: initialize it on the device that `init` receives"
    )]
    ModelDevice {
        /// The trainer's device.
        expected: String,
        /// The device of the last parameter that is on another device than the trainer.
        got: String,
    },
    /// In this epoch, counted from 0, the model draws from Burn's generator, which threads share, but not in the one before.
    #[error(
        "the model draws random numbers from Burn's generator since epoch {}, which ranks in threads share, so that the run cannot be repeated: let the model draw in every step, or start each rank as a process", .0 + 1
    )]
    SharedGenerator(usize),
    /// A trainer was started by a task of rayon on a thread that waits within the forward pass of another trainer.
    #[error(
        "a trainer began within the forward pass of another one, because both are tasks of one pool of rayon: start trainers on threads or ranks of their own (kiln::launch)"
    )]
    NestedTrainers,
    /// A batch is on another device than the trainer.
    #[error("a batch is on {got}, expected {expected}: make its loader with `TaskTrainer::loader`")]
    OtherDevice {
        /// The trainer's device.
        expected: String,
        /// The batch's device.
        got: String,
    },
    /// The loader's items have another seed than the trainer, or belong to another rank.
    #[error("the loader's items belong to {got}, expected {expected}: make them with `TaskTrainer::items`")]
    OtherLoader {
        /// The trainer's seed or share.
        expected: String,
        /// The loader's seed or share.
        got: String,
    },
    /// The schedule of the learning rate depends on the number of steps of an epoch, which is not known.
    #[error(
        "the schedule of the learning rate needs the number of steps of an epoch: train with `TaskTrainer::epoch` or `fit`, or set it with `TaskTrainer::with_epoch_steps`"
    )]
    UnknownEpochSteps,
    /// An operation on a device failed.
    #[error(transparent)]
    Device(#[from] kiln_kernels::DeviceError),
    /// NCCL is required, but cannot be used.
    #[error("NCCL cannot sum the gradients: {reason}; fix the cause, or select the engine `auto`")]
    NoNccl {
        /// The reason why NCCL cannot be used.
        reason: String,
    },
}

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kiln_feature::TargetKind;
use kiln_graph::NodeId;

use crate::metric::selection_error::SelectionError;
use crate::run::contract::DETERMINISM_CONTRACT;
use crate::saved::error::ModelError;
use crate::step::embedding::embedding_error::EmbeddingError;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The errors of training, evaluation and runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The loader failed.
    #[error(transparent)]
    Loader(#[from] kiln_loader::Error),
    /// The loss of a step is infinite or NaN.
    #[error(
        "the loss of {pass} step {step} is {loss}: lower the learning rate, or check all features for values that are not finite (some programs have the flag --verify for this)"
    )]
    LossNotFinite {
        /// The phase, `training` or `evaluation`.
        pass: &'static str,
        /// The step within the epoch or the evaluation, from 0.
        step: usize,
        /// The sum of the step's losses.
        loss: f64,
    },
    /// Communication failed: another rank failed, was lost, or called a different collective.
    #[error(transparent)]
    Ranks(#[from] kiln_comm::Error),
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
    /// The data could not be hashed, so checkpoints could not state to which data they belong.
    #[error("the data could not be hashed: {source}")]
    DataHash {
        /// The error of the data.
        source: Arc<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The ranks were started with different data.
    #[error(
        "rank {rank} has other data than rank {first}: the {what} is {got} instead of {expected}: give all ranks the same data (copies of the same version of all files, or one shared folder)"
    )]
    DataDiffers {
        /// The hash that was compared.
        what: &'static str,
        /// The rank with the expected hash.
        first: usize,
        /// The lowest rank whose hash differs.
        rank: usize,
        /// The hash of rank `first`.
        expected: String,
        /// The hash of `rank`.
        got: String,
    },
    /// The checkpoint belongs to a run with other settings or data.
    #[error(
        "the checkpoint belongs to another run: {name} was {then} and is {now} now; restore the earlier value, or start a new run"
    )]
    OtherRun {
        /// The name of the first value that differs: a setting, or the hash of the data.
        name: String,
        /// The value of the setting, or the hash, in the checkpoint.
        then: String,
        /// The value of the setting, or the hash, in this run.
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
    /// A file of a run folder is damaged, was changed, or has an unknown format version.
    #[error("{path}: {reason}")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The reason why the file was rejected, with the expected and the found value if there are any.
        reason: String,
    },
    /// The folder contains no checkpoint to resume from.
    #[error("{path} has no checkpoint to resume from: pass the folder of a run, or start a new run")]
    NoCheckpoint {
        /// The folder.
        path: PathBuf,
    },
    /// Another run holds the lock of the run folder.
    #[error("{path} is in use by another run: wait for that run, stop it, or pass another folder")]
    RunFolderInUse {
        /// The folder.
        path: PathBuf,
    },
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
    /// A file could not be read or written.
    #[error("{path}: {source}")]
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
    /// The model could not be initialized.
    #[error(transparent)]
    Model(#[from] kiln_nn::Error),
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
    /// A saved model could not be opened, or a request does not fit it.
    #[error(transparent)]
    Saved(#[from] ModelError),
    /// The weights could not be serialized, or do not fit the model.
    #[error("the weights could not be saved or loaded: {reason}")]
    Weights {
        /// A description of the tensor that does not fit, or the error of the file format.
        reason: String,
    },
    /// A split has no items.
    #[error("the {split} split has no items, expected at least 1: check the dataset's split")]
    EmptySplit {
        /// The name of the split: `training`, `validation` or `test`.
        split: &'static str,
    },
    /// The training split has fewer items than one step takes, and incomplete steps are dropped.
    #[error(
        "a step takes {per_step} training items, but the split has {n_items}: lower the batch size, or keep the short last step"
    )]
    NoStep {
        /// The number of training items of all ranks.
        n_items: usize,
        /// The number of items that all ranks together take in a step.
        per_step: usize,
    },
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
    /// The schedule of the learning rate depends on the number of steps of an epoch, which is not known.
    #[error(
        "the schedule of the learning rate needs the number of steps of an epoch: train with `TaskTrainer::epoch` or `fit`, or set it with `TaskTrainer::with_epoch_steps`"
    )]
    UnknownEpochSteps,
    /// The run has not recorded an epoch yet.
    #[error("no epoch was recorded, so there is no best model")]
    NoEpoch,
    /// The sampler failed.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// Feature rows or labels could not be read.
    #[error(transparent)]
    Feature(#[from] kiln_feature::Error),
    /// A file could not be mapped, or was changed while it was mapped.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
    /// An operation on a device failed.
    #[error(transparent)]
    Device(#[from] kiln_kernels::DeviceError),
    /// NCCL is required, but cannot be used.
    #[error("NCCL cannot sum the gradients: {reason}; fix the cause, or select the engine `auto`")]
    NoNccl {
        /// The reason why NCCL cannot be used.
        reason: String,
    },
    /// The graph has no nodes.
    #[error("the graph has no nodes, expected at least 1")]
    NoNodes,
    /// A layer's input width differs from the width of the rows that it receives.
    #[error(
        "layer {layer} takes rows of {expected} values, but receives rows of {got}: build the model for these features"
    )]
    LayerWidth {
        /// The layer, from 0, input layer first.
        layer: usize,
        /// The layer's input width.
        expected: usize,
        /// The width of the features, or of the previous layer's outputs.
        got: usize,
    },
    /// There are fewer feature rows than nodes.
    #[error("the features have {n_rows} rows, expected {n_nodes}, one for every node of the graph")]
    TooFewRows {
        /// The number of feature rows.
        n_rows: usize,
        /// The number of nodes of the graph.
        n_nodes: usize,
    },
    /// There is not one row of features per edge.
    #[error(
        "the edge features have {n_rows} rows, expected one for each of the {n_edges} edges of the graph"
    )]
    EdgeFeatureRows {
        /// The number of feature rows.
        n_rows: u64,
        /// The number of edges of the graph.
        n_edges: u64,
    },
    /// A label is not below the number of the model's outputs.
    #[error(
        "node {} has class {label}, but the model has {n_outputs} outputs: build the model with one output per class",
        node.0
    )]
    ClassOutOfRange {
        /// The node with the label.
        node: NodeId,
        /// The class that the label names.
        label: i32,
        /// The number of the model's outputs.
        n_outputs: usize,
    },
    /// The data's targets are of another kind than those that the task learns.
    #[error(
        "the task learns {expected}, but the data has {got}: set the objective that suits the data (--loss)"
    )]
    OtherTargets {
        /// The kind of targets of the task.
        expected: TargetKind,
        /// The kind of targets of the data.
        got: TargetKind,
    },
    /// The loss of a regression is the binary cross entropy.
    #[error(
        "the binary cross entropy is a loss of labels: use the squared, absolute or Huber loss for regression"
    )]
    BinaryLoss,
    /// Exact evaluation, embeddings or their width were requested of a model that returns no
    /// [`BlockModel::layer_size`](kiln_nn::BlockModel::layer_size).
    #[error(
        "the model returns no sizes of its layers, which exact evaluation and embeddings need: evaluate with sampled \
         neighbours, or, if its forward pass just runs the layers in order, implement BlockModel::layer_size"
    )]
    NotLayerWise,
    /// The model's number of outputs differs from the number of target columns.
    #[error("the model has {n_outputs} outputs, expected {n_columns}, one for each target column")]
    OutputCount {
        /// The number of the model's outputs.
        n_outputs: usize,
        /// The number of columns of the targets.
        n_columns: usize,
    },
    /// The metric is not defined for the data's targets.
    #[error("the metric {metric} is not defined for {kind}: use one of {expected}")]
    OtherMetric {
        /// The name of the metric.
        metric: String,
        /// The kind of targets.
        kind: TargetKind,
        /// The names of the metrics that are defined.
        expected: String,
    },
    /// The best epoch cannot be selected by the metric.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// No metric has this name.
    #[error("unknown metric '{name}': expected one of {expected}")]
    UnknownMetric {
        /// The name.
        name: String,
        /// The names of all metrics.
        expected: String,
    },
    /// The memory limit is below the memory of the sampler, which cannot be moved to a file.
    #[error(
        "the memory limit is {memory_bytes} bytes, expected at least {needed_bytes} for the sampler alone: raise the limit"
    )]
    MemoryTooSmall {
        /// The limit, in bytes.
        memory_bytes: u64,
        /// The smallest possible limit, in bytes.
        needed_bytes: u64,
    },
    /// The activations of a layer do not fit in memory.
    #[error("{n_rows} rows of {dim} activations do not fit in memory: set a memory limit to spill to files")]
    TooLarge {
        /// The number of nodes of the graph.
        n_rows: usize,
        /// The width of the layer's outputs.
        dim: usize,
    },
    /// A node has more in-edges than a block can hold.
    #[error(
        "node {node} has {n_edges} edges, but a block holds at most {max}: evaluate with sampled neighbours"
    )]
    TooManyEdges {
        /// The node with too many in-edges.
        node: u32,
        /// The number of in-edges of the node.
        n_edges: u64,
        /// The maximum number of edges in a block.
        max: u64,
    },
    /// The learning curves could not be drawn.
    #[error("the learning curves could not be drawn: {reason}")]
    Drawing {
        /// The drawing library's error.
        reason: String,
    },
}

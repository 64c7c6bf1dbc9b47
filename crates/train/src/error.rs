use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kiln_graph::NodeId;

use crate::run::contract::DETERMINISM_CONTRACT;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

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
    /// Ranks did not meet: what another rank met with, or that it did not come.
    #[error(transparent)]
    Ranks(#[from] kiln_comm::Error),
    /// Ranks have different parameters after the same steps.
    #[error(
        "rank {rank} has other parameters than rank 0 after epoch {epoch}: what a step does must depend on nothing but the batch and its key"
    )]
    RanksDiffer {
        /// The first rank that differs.
        rank: usize,
        /// The epoch, from 1.
        epoch: usize,
    },
    /// A checkpoint of another run.
    #[error(
        "the checkpoint is of another run: {name} was {then} and is {now} now; set it as it was, or start a new run"
    )]
    OtherRun {
        /// What differs.
        name: String,
        /// What it was.
        then: String,
        /// What it is.
        now: String,
    },
    /// A checkpoint of another version of the determinism contract, [`DETERMINISM_CONTRACT`].
    #[error(
        "{path}: the checkpoint is of version {version} of the determinism contract, and this program of version \
         {DETERMINISM_CONTRACT}, which gives other results: resume the run with {program}, or start a new run"
    )]
    OtherContract {
        /// The checkpoint.
        path: PathBuf,
        /// Its version of the contract.
        version: u32,
        /// The program that wrote it.
        program: String,
    },
    /// No checkpoint could be written for so long that too much training would be lost.
    #[error(
        "no checkpoint could be written for {} minutes: {last}; mend that (free space, raise the limit, check the file \
         system), then resume the run", age.as_secs() / 60
    )]
    CheckpointOverdue {
        /// The age of the last complete checkpoint, or the time since the run started or resumed.
        age: Duration,
        /// The last failure.
        last: Box<Error>,
    },
    /// A file of a run folder is not what was written.
    #[error("{path}: {reason}")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is nothing to go on from.
    #[error("{path} has no checkpoint to go on from: name the folder of a run, or start a new one")]
    NoCheckpoint {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes to the run folder.
    #[error("{path} is in use by another run: wait for it, stop it, or name another folder")]
    RunFolderInUse {
        /// The folder.
        path: PathBuf,
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
        source: io::Error,
    },
    /// The run folder holds something already.
    #[error("{path} is not empty: name a new folder, so that no earlier result is overwritten")]
    RunFolderNotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The model could not be made.
    #[error(transparent)]
    Model(#[from] kiln_nn::Error),
    /// The model is not on the trainer's device, or does not track gradients there.
    #[error(
        "the model has parameters on {got}, expected all of them on {expected} with autodiff: make it on the device that \
         `init` is given"
    )]
    ModelDevice {
        /// The trainer's device.
        expected: String,
        /// The device of the last parameter that is elsewhere.
        got: String,
    },
    /// A batch is on another device than the trainer.
    #[error("a batch is on {got}, expected {expected}: make its loader by `TaskTrainer::loader`")]
    OtherDevice {
        /// The trainer's device.
        expected: String,
        /// The batch's device.
        got: String,
    },
    /// A loader has other items than the trainer's seed and rank give.
    #[error("the loader's items are of {got}, expected {expected}: make them by `TaskTrainer::items`")]
    OtherLoader {
        /// The seed or the share that is the trainer's.
        expected: String,
        /// That of the loader.
        got: String,
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
    /// There are fewer items to train on than a step takes, and short steps are left out.
    #[error(
        "{n_items} items to train on give no step of {per_step}: lower the batch size, or keep the short last step"
    )]
    NoStep {
        /// The number of items of all ranks.
        n_items: usize,
        /// The number of items that a step of all ranks takes.
        per_step: usize,
    },
    /// A run is to end before the epoch that it has reached.
    #[error("the number of epochs is {n_epochs}, but the run has done {n_done}: give at least as many")]
    TooFewEpochs {
        /// The number that was asked for.
        n_epochs: usize,
        /// The epochs that the run has done.
        n_done: usize,
    },
    /// A trainer is not where the run is.
    #[error(
        "the trainer is in epoch {got}, the run in epoch {expected} (from 0), or in another step of it: give the trainer that \
         the run was started with"
    )]
    OtherTrainer {
        /// The epochs that the run has recorded.
        expected: usize,
        /// The epochs that the trainer has trained.
        got: usize,
    },
    /// A run ended before its first evaluated epoch.
    #[error("no epoch was recorded, so there is no best model")]
    NoEpoch,
    /// Blocks could not be made.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// Rows or labels could not be read.
    #[error(transparent)]
    Feature(#[from] kiln_feature::Error),
    /// A file could not be mapped, or was changed while it was.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
    /// A device failed at what only devices do.
    #[error(transparent)]
    Device(#[from] kiln_kernels::DeviceError),
    /// NCCL was asked for, and does not work.
    #[error("NCCL cannot sum the gradients: {reason}; mend that, or let the engine be chosen")]
    NoNccl {
        /// What is missing.
        reason: String,
    },
    /// A graph without nodes has no outputs.
    #[error("the graph has no nodes, expected at least 1")]
    NoNodes,
    /// A layer and the rows that it would get have different widths.
    #[error(
        "layer {layer} takes rows of {expected} values, but gets rows of {got}: make the model for these features"
    )]
    LayerWidth {
        /// The layer, counted from the input.
        layer: usize,
        /// The width that it takes.
        expected: usize,
        /// The width of the features, or of the outputs of the layer before it.
        got: usize,
    },
    /// Nodes of the graph have no features.
    #[error("the features have {n_rows} rows for {n_nodes} nodes: give every node of the graph a row")]
    TooFewRows {
        /// Rows of the features.
        n_rows: usize,
        /// Nodes of the graph.
        n_nodes: usize,
    },
    /// A label for which the model has no output.
    #[error(
        "node {} is of class {label}, but the model has {n_outputs} outputs: give it one for each class",
        node.0
    )]
    ClassOutOfRange {
        /// The node.
        node: NodeId,
        /// Its class.
        label: i32,
        /// Outputs of the model.
        n_outputs: usize,
    },
    /// A memory limit below what cannot be written to a file.
    #[error(
        "the memory limit is {memory_bytes} bytes, expected at least {needed_bytes} for the sampler alone: raise it"
    )]
    MemoryTooSmall {
        /// The limit.
        memory_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
    /// The activations of a layer fit no memory.
    #[error("{n_rows} rows of {dim} activations do not fit into memory: set a memory limit and a folder")]
    TooLarge {
        /// Nodes of the graph.
        n_rows: usize,
        /// Width of the layer.
        dim: usize,
    },
    /// A node with more neighbours than a block holds.
    #[error("node {node} has {n_edges} edges, at most {max} fit a block: evaluate by sampled neighbours")]
    TooManyEdges {
        /// The node.
        node: u32,
        /// Its edges.
        n_edges: u64,
        /// The largest number taken.
        max: u64,
    },
    /// A drawing failed.
    #[error("the learning curves could not be drawn: {reason}")]
    Drawing {
        /// What the drawing library said.
        reason: String,
    },
}

impl Error {
    /// Whether another attempt at the same may succeed without a change to the program, its settings or its data: a file
    /// could not be read or written because a disk or a quota is full, files or memory have run out, or a device or a
    /// network file system has failed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Io { source, .. } | Self::Graph(kiln_graph::Error::Io { source, .. }) => {
                is_transient(source)
            }
            Self::CheckpointOverdue { last, .. } => last.is_transient(),
            _ => false,
        }
    }
}

/// Unix numbers of errors that have no kind: EIO, ENFILE and EMFILE.
const TRANSIENT_CODES: [i32; 3] = [5, 23, 24];

fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::StorageFull
        | Kind::QuotaExceeded
        | Kind::OutOfMemory
        | Kind::ReadOnlyFilesystem
        | Kind::ResourceBusy
        | Kind::Interrupted
        | Kind::WouldBlock
        | Kind::TimedOut
        | Kind::StaleNetworkFileHandle
        | Kind::NetworkDown
        | Kind::NetworkUnreachable
        | Kind::HostUnreachable => true,
        _ => cfg!(unix) && error.raw_os_error().is_some_and(|code| TRANSIENT_CODES.contains(&code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of Linux.
    #[cfg(target_os = "linux")]
    #[test]
    fn tells_transient_errors_of_the_system_from_lasting_ones() {
        let is_transient = |code| {
            let source = io::Error::from_raw_os_error(code);
            Error::Io { path: PathBuf::new(), source }.is_transient()
        };
        let (transient, lasting) =
            ([5, 12, 16, 23, 24, 28, 30, 110, 116, 122], [1, 2, 13, 17, 20, 21, 22, 27, 36]);
        assert_eq!(transient.map(is_transient), [true; 10]);
        assert_eq!(lasting.map(is_transient), [false; 9]);
        assert!(!Error::NoEpoch.is_transient());
    }
}

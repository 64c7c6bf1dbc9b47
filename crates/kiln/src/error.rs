use std::error::Error as _;
use std::fmt;
use std::path::PathBuf;

use kiln_comm::{EXIT_FAILED, EXIT_RETRY, RankError};

/// Why a dataset did not become a trained model: settings that do not fit each other, and the errors of kiln's crates.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The numbers of fanouts and layers differ.
    #[error(
        "the loader has {n_fanouts} fanouts, but the model has {n_layers} layers: pass one fanout per layer, or call \
         .layers({n_fanouts}) on the model's config"
    )]
    FanoutsMismatch {
        /// The fanouts of the loader.
        n_fanouts: usize,
        /// The layers of the model.
        n_layers: usize,
    },
    /// The model reads edge weights that the loader's blocks do not have.
    #[error(
        "the model reads edge weights, but the loader has none: call .gcn_norm()? or .edge_weights() on it"
    )]
    NoEdgeWeights,
    /// A device cannot run the program's own sampling rule.
    #[error("the program's own sampling rule runs on the host only: use GraphMode::Host")]
    RuleNeedsHost,
    /// A partitioned graph lacks what only a whole one has.
    #[error("{what} needs the whole graph: open the dataset instead of its parts, or leave it out")]
    NeedsWholeGraph {
        /// What needs it.
        what: &'static str,
    },
    /// Features would be cached on a device that gathers none.
    #[error("a feature cache needs a device that samples: use GraphMode::Device or GraphMode::ZeroCopy")]
    CacheNeedsDevice,
    /// Ranks train with different settings.
    #[error(
        "rank {rank} trains with other settings than rank 0: start all ranks alike; rank 0 has {expected}, rank {rank} has {got}"
    )]
    SettingsDiffer {
        /// The first rank that differs.
        rank: usize,
        /// The settings of rank 0.
        expected: String,
        /// Those of that rank.
        got: String,
    },
    /// A rank is used after its ranks have ended.
    #[error("the ranks have ended: use them, and the models that they trained, within the body of `launch`")]
    RanksEnded,
    /// The run was stopped, and has written a checkpoint.
    #[error(
        "the run was stopped after {n_epochs} epochs and {n_steps} steps: continue it with .resume({folder:?})"
    )]
    Interrupted {
        /// The complete epochs.
        n_epochs: usize,
        /// The steps of the next one.
        n_steps: usize,
        /// The run's folder, on rank 0.
        folder: PathBuf,
    },
    /// A dataset could not be opened or built.
    #[error(transparent)]
    Data(#[from] kiln_data::Error),
    /// A graph is not valid.
    #[error(transparent)]
    Graph(#[from] kiln_graph::Error),
    /// The sampler's settings do not fit the graph.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// There is no such device.
    #[error(transparent)]
    Device(#[from] kiln_kernels::DeviceError),
    /// The graph or the features do not fit the device.
    #[error(transparent)]
    Upload(#[from] kiln_kernels::UploadError),
    /// Training or evaluation failed, or its settings are out of range.
    #[error(transparent)]
    Train(#[from] kiln_train::Error),
    /// A partitioned graph could not be used.
    #[cfg(feature = "grpc")]
    #[error(transparent)]
    Remote(#[from] kiln_remote::Error),
    /// A part of a graph could not be used.
    #[error(transparent)]
    Partition(#[from] kiln_partition::Error),
    /// A collective failed.
    #[error(transparent)]
    Comm(#[from] kiln_comm::Error),
    /// A rank failed, or the ranks could not be joined.
    #[error(transparent)]
    Rank(#[from] kiln_comm::RankError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An error of the program's own.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Whether another attempt may succeed without a change to the program, its settings or its data.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Interrupted { .. }) || matches!(self, Self::Train(error) if error.is_transient())
    }
}

impl Error {
    /// The status that a process should exit with: [`EXIT_RETRY`] where another attempt may succeed, and otherwise
    /// [`EXIT_FAILED`] for an error of ranks and 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Rank(error) => match error.exit_status() {
                // Ranks that are threads fail as one process does.
                EXIT_FAILED if !matches!(error, RankError::Join(_)) => 1,
                status => status,
            },
            _ if self.is_transient() => EXIT_RETRY,
            _ => 1,
        }
    }
}

/// The error and its causes as text, because a `main` that returns an error prints it by `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.to_string();
        for cause in std::iter::successors(self.source(), |&cause| cause.source()).map(ToString::to_string) {
            // Some messages have that of their cause in them.
            if !text.contains(&cause) {
                text += ": ";
                text += &cause;
            }
        }
        f.write_str(&text)
    }
}

/// What can be wrong with a loader's settings, and how an epoch can end early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Batches without seeds.
    #[error("the batch size is 0, expected at least 1")]
    ZeroBatchSize,
    /// A rank that does not exist.
    #[error("rank {rank} of {world_size} ranks does not exist (ranks are 0 to world_size - 1)")]
    BadShard {
        /// The rank asked for.
        rank: usize,
        /// How many ranks there are.
        world_size: usize,
    },
    /// More worker threads than any machine has a use for.
    #[error("{workers} workers are too many, expected at most {max}")]
    TooManyWorkers {
        /// The number asked for.
        workers: usize,
        /// The largest number taken.
        max: usize,
    },
    /// The system refused to start a worker thread.
    #[error("worker thread {worker} could not be started: {source}")]
    Spawn {
        /// The worker, from 0.
        worker: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// Making a batch panicked. The epoch ends here.
    #[error("the batch of step {step} panicked: {message}")]
    WorkerPanicked {
        /// The step whose batch was being made.
        step: usize,
        /// What the panic said.
        message: String,
    },
    /// Making a batch failed. The epoch ends here.
    #[error("the batch of step {step} failed: {source}")]
    Fetch {
        /// The step whose batch was being made.
        step: usize,
        /// Why it failed.
        source: FetchError,
    },
}

/// Why one batch could not be made: what [`Fetch::fetch`](crate::Fetch::fetch) returns. The loader adds
/// the step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The sampler failed.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// Features or labels could not be gathered.
    #[error(transparent)]
    Feature(#[from] kiln_feature::Error),
    /// Something that only this kind of batch knows.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl FetchError {
    /// An error of a kind of batch that is not made from sampled nodes.
    pub fn other(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(source.into())
    }
}

use std::path::PathBuf;

use kiln_graph::{GraphId, NodeId, file_prefix};

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
    /// Items that belong to ranks are neither dropped nor repeated.
    #[error("ranks that take their own items cannot drop or pad them: leave the uneven last step joined")]
    OwnersNeedJoin,
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
    Batch {
        /// The step whose batch was being made.
        step: usize,
        /// Why it failed.
        source: BatchError,
    },
}

/// The reason why one batch could not be made, which [`Batcher::batch`](crate::Batcher::batch) returns. The loader adds
/// the step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The sampler failed.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// Features or labels could not be gathered.
    #[error(transparent)]
    Feature(#[from] kiln_feature::Error),
    /// An item is no graph of the set.
    #[error("item {} at position {position} is no graph: there are {n_graphs} (ids 0 to n_graphs - 1)", graph.0)]
    GraphOutOfRange {
        /// The id that is too large.
        graph: GraphId,
        /// Its position in the batch.
        position: usize,
        /// How many graphs there are.
        n_graphs: usize,
    },
    /// The node offsets of a set of graphs are damaged.
    #[error("{}the nodes of graph {} would be {start} to {end} of {n_nodes}: the set is damaged, make it again", file_prefix(file.as_deref()), graph.0)]
    BadNodeRange {
        /// The graph.
        graph: GraphId,
        /// Where its nodes would start.
        start: u32,
        /// Where they would end.
        end: u32,
        /// How many nodes all graphs have.
        n_nodes: usize,
        /// The file that the offsets are mapped from, where they are.
        file: Option<PathBuf>,
    },
    /// An edge of a set of graphs comes from another graph than its own.
    #[error("{}edge {edge} comes from node {}, but ends in graph {}, whose nodes are {start} to {end} - 1: the set is damaged, make it again", file_prefix(file.as_deref()), node.0, graph.0)]
    EdgeLeavesGraph {
        /// The edge's position in the `indices` of all graphs.
        edge: u64,
        /// Its source.
        node: NodeId,
        /// The graph of its destination.
        graph: GraphId,
        /// The graph's first node.
        start: u32,
        /// One past the graph's last node.
        end: u32,
        /// The file that the edges are mapped from, where they are.
        file: Option<PathBuf>,
    },
    /// The graphs of a batch have more nodes or edges than 32 bits count.
    #[error("the graphs of the batch have {n} {what}, at most {} fit a block: use smaller batches", u32::MAX)]
    BatchTooLarge {
        /// What there are too many of.
        what: &'static str,
        /// How many there are.
        n: u64,
    },
    /// Something that only this kind of batch knows.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl BatchError {
    /// An error of a kind of batch that is not made from sampled nodes.
    pub fn other(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(source.into())
    }
}

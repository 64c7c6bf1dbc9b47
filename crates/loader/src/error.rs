use std::ops::Range;
use std::path::PathBuf;

use kiln_graph::{GraphId, LinkId, NodeId, file_prefix};

/// An error in a loader's settings, or an error that ends an epoch early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The batch size is 0.
    #[error("the batch size is 0, expected at least 1")]
    ZeroBatchSize,
    /// A training step has no batches.
    #[error("the number of batches to accumulate in a step is 0, expected at least 1")]
    ZeroAccumulate,
    /// The rank is not below the world size.
    #[error("rank {rank} of {world_size} ranks is out of range: expected a rank below the number of ranks")]
    BadShard {
        /// The given rank.
        rank: usize,
        /// The number of ranks.
        world_size: usize,
    },
    /// Items are sharded by owner, but the policy for uneven shards drops or pads.
    #[error(
        "items that are sharded by owner cannot be dropped or padded: remove --uneven, or use --uneven join"
    )]
    OwnersNeedJoin,
    /// The number of worker threads is too large.
    #[error("the number of workers is {workers}, expected at most {max}")]
    TooManyWorkers {
        /// The given number of workers.
        workers: usize,
        /// The largest supported number of workers.
        max: usize,
    },
    /// A worker thread could not be started.
    #[error("failed to start worker thread {worker}: {source}")]
    Spawn {
        /// The index of the worker, from 0.
        worker: usize,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A panic occurred while a batch was made. The epoch ends here.
    #[error("loading the batch of step {step} panicked: {message}")]
    WorkerPanicked {
        /// The step of the batch.
        step: usize,
        /// The message of the panic.
        message: String,
    },
    /// An error occurred while a batch was made. The epoch ends here.
    #[error("loading the batch of step {step} failed: {source}")]
    Batch {
        /// The step of the batch.
        step: usize,
        /// The batcher's error.
        source: BatchError,
    },
}

/// An error of [`Batcher::batch`](crate::Batcher::batch) for one batch. The loader adds the step
/// ([`Error::Batch`]).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The sampler failed.
    #[error(transparent)]
    Sample(#[from] kiln_sample::Error),
    /// Features or labels could not be gathered.
    #[error(transparent)]
    Feature(#[from] kiln_feature::Error),
    /// A node of a heterogeneous graph does not exist.
    #[error("node {} does not exist: expected an id below {n_nodes}", node.0)]
    NoSuchNode {
        /// The id that is out of range.
        node: NodeId,
        /// The number of nodes of all types.
        n_nodes: usize,
    },
    /// The ages of nodes or edges are asked for, and the seeds have no times.
    #[error("the seeds have no times, at which ages are computed: give the batcher or its seeds times")]
    NoItemTimes,
    /// A seed is not of the type of nodes that has targets.
    #[error("node {} has no target: expected a node of the type with targets ({}..{})", node.0, nodes.start, nodes.end)]
    NoTarget {
        /// The seed.
        node: NodeId,
        /// The ids of the nodes of the type.
        nodes: Range<u32>,
    },
    /// A seed is not a row of a task table.
    #[error("row {row} does not exist: expected a row of the task table below {n_rows}")]
    NoSuchRow {
        /// The position of the row.
        row: u32,
        /// The number of rows.
        n_rows: usize,
    },
    /// A negative of a link of a relation has a node of another type than the relation's.
    #[error(
        "the {side} of a negative is node {}, expected a node of the relation's {side} type ({}..{}): the negative sampler \
         must return ids of this range, as UniformNegatives of this range does",
        node.0, nodes.start, nodes.end
    )]
    NegativeOfOtherType {
        /// The node of the negative.
        node: NodeId,
        /// The side of the link: `source` or `destination`.
        side: &'static str,
        /// The ids of the nodes of the type.
        nodes: Range<u32>,
    },
    /// An item is not a graph of the dataset.
    #[error("item {} at position {position} is not a graph: expected an id below {n_graphs}", graph.0)]
    GraphOutOfRange {
        /// The id that is out of range.
        graph: GraphId,
        /// The position of the id in the batch.
        position: usize,
        /// The number of graphs.
        n_graphs: usize,
    },
    /// An item is not a link of the list.
    #[error("item {} at position {position} is not a link: expected an id below {n_links}", link.0)]
    LinkOutOfRange {
        /// The id that is out of range.
        link: LinkId,
        /// The position of the id in the batch, or in the step.
        position: usize,
        /// The number of links.
        n_links: usize,
    },
    /// The node offsets of a set of graphs are invalid.
    #[error("{}the nodes of graph {} are {start}..{end}, expected a range within 0..{n_nodes}: the data set is damaged: restore or regenerate it", file_prefix(file.as_deref()), graph.0)]
    BadNodeRange {
        /// The graph whose node range is invalid.
        graph: GraphId,
        /// The start of the graph's nodes.
        start: u32,
        /// The end of the graph's nodes.
        end: u32,
        /// The number of nodes of all graphs.
        n_nodes: usize,
        /// The file from which the offsets are mapped; `None` if they are in memory.
        file: Option<PathBuf>,
    },
    /// An edge of a set of graphs connects two graphs.
    #[error("{}edge {edge} comes from node {}, expected a node of graph {} ({start}..{end}): the data set is damaged: restore or regenerate it", file_prefix(file.as_deref()), node.0, graph.0)]
    EdgeLeavesGraph {
        /// The edge's position in the `indices` of all graphs.
        edge: u64,
        /// The source of the edge.
        node: NodeId,
        /// The graph that contains the edge's destination.
        graph: GraphId,
        /// The graph's first node.
        start: u32,
        /// One past the graph's last node.
        end: u32,
        /// The file from which the edges are mapped; `None` if they are in memory.
        file: Option<PathBuf>,
    },
    /// The graphs of a batch have more nodes or edges than 32-bit offsets can address.
    #[error(
        "the graphs of the batch have {n} {what}, expected at most {}: use a smaller batch size",
        u32::MAX
    )]
    BatchTooLarge {
        /// The counted elements: `nodes` or `edges`.
        what: &'static str,
        /// The number of nodes or edges.
        n: u64,
    },
    /// An error of a user-defined [`Batcher`](crate::Batcher).
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl BatchError {
    /// Wraps an error of a user-defined [`Batcher`](crate::Batcher).
    pub fn other(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(source.into())
    }
}

//! Training steps: batches on a device, tasks, the trainer, gradient averaging and the optimizer.

pub(crate) mod adam;
pub(crate) mod any_batcher;
pub(crate) mod batch;
pub(crate) mod classification;
pub(crate) mod clip;
pub(crate) mod device_all_reduce;
pub(crate) mod device_node_batcher;
pub(crate) mod files;
pub(crate) mod graph;
pub(crate) mod host_node_batcher;
pub(crate) mod learn;
pub(crate) mod loaders;
pub(crate) mod memory;
pub(crate) mod metric_sums;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;
pub(crate) mod node;
pub(crate) mod optimizer;
pub(crate) mod reports;
pub(crate) mod schedule;
pub(crate) mod sgd;
pub(crate) mod steps;
pub(crate) mod sync;
pub(crate) mod task;
pub(crate) mod trainer;
pub(crate) mod weights;

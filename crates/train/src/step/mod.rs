//! Training steps: batches on a device, tasks, the trainer, gradient averaging and the optimizer.

pub(crate) mod batch;
pub(crate) mod embedding;
pub(crate) mod generator;
pub(crate) mod memory;
pub(crate) mod optimizer;
pub(crate) mod reports;
pub(crate) mod sync;
pub(crate) mod task;
pub(crate) mod trainer;
pub(crate) mod weights;

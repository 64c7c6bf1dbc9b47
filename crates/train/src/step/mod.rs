//! Training steps: batches on a device, tasks, the trainer, gradient averaging and the optimizer.
//!
//! The trainer knows neither the dataset nor the kind of task, nor where a batch was prepared. It takes batches on its
//! device: the loader's workers prepare them on the host and copy them (`DeviceBatcher`), gather their features for it
//! (`HostNodeBatcher`), or prepare them on the device (`DeviceNodeBatcher`). The weights are bit-identical. A model or a
//! batch on another device, and a loader of another seed or another rank's share, are typed errors.
//!
//! A step copies nothing from the device to the host but losses and, for a task with embeddings, the gradients of the
//! batch's rows. Losses are read for ten steps at a time, or in each step on the CPU and with several ranks, which exchange
//! them.
//!
//! After each step, all ranks have bit-identical models: initial parameters are those of rank 0, gradients are averaged
//! over all items of the step (`sync`, the only place where they are combined), and floats without gradients, such as
//! running statistics, are replaced by those of rank 0. Hashes of the models are compared at the end of each epoch.
//! Collective methods return the same on all ranks, and so do decisions that are based on them.

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

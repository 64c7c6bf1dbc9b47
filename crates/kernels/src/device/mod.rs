//! Devices by name, and data on a device: blocks, batched graphs, segments, row indices and features. Independent of
//! ops.

pub(crate) mod block;
pub(crate) mod block_size;
pub(crate) mod by_source;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod devices;
pub(crate) mod error;
pub(crate) mod features;
pub(crate) mod graphs;
#[cfg(feature = "kernel-cache")]
mod kernel_cache;
pub(crate) mod list;
pub(crate) mod read;
pub(crate) mod relation_groups;
pub(crate) mod row_source;
pub(crate) mod rows;

//! What lies on a device: devices by name, blocks, graphs in a batch, segments, rows and features. No op is known here.

pub(crate) mod block;
pub(crate) mod by_source;
pub(crate) mod devices;
pub(crate) mod error;
pub(crate) mod features;
pub(crate) mod graphs;
pub(crate) mod read;

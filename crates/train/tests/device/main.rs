//! Training on any device: that of the environment variable `KILN_DEVICE`.

#[path = "../common/mod.rs"]
mod common;
mod device_nodes;

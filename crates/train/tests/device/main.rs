//! Training on the device of the environment variable `KILN_DEVICE`.

#[path = "../common/mod.rs"]
mod common;
mod device_nodes;
mod item_times;

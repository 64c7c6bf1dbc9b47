//! Partitioned graphs that other processes hold: blocks and rows are bit-identical to those of the whole graph despite
//! faults, and errors are clear.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[cfg(feature = "tls")]
mod certificates;
mod cluster;
mod edge_features;
mod edge_types;
mod excluded;
mod faults;
mod heterogeneous;
mod heterogeneous_errors;
mod item_times;
mod limits;
mod local_samplers;
mod node_keys;
mod preparation;
mod progress;
mod same;
mod strangers;
mod targets;
mod times;
mod workers;

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
mod limits;
mod preparation;
mod progress;
mod same;
mod strangers;
mod typed;
mod typed_errors;
mod typed_keys;
mod typed_local;
mod workers;

//! Graphs in parts that other processes hold: the same blocks and rows as of the whole graph, whatever is lost on the
//! way, and clear errors for what cannot be.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[cfg(feature = "tls")]
mod certificates;
mod cluster;
mod faults;
mod limits;
mod progress;
mod same;
mod strangers;
mod workers;

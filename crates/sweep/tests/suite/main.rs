//! Tests of sweeps with commands that train nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[cfg(unix)]
mod execution;
mod folder;
mod plan;
mod table;

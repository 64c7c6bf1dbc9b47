//! Tests of connections that do not authenticate: their number, their lifetime, and the lack of file descriptors.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod few_files;
mod listener;

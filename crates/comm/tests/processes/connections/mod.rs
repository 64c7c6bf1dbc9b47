//! Connections of strangers: how many there are at once, how long they last, and what is left when files run out.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod few_files;
mod listener;

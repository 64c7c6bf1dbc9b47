//! Tests of the loader: order and content of batches, sharding among ranks, resume, and faults.

mod accumulate;
mod faults;
mod graph;
mod link;
mod link_leak;
mod node;
mod order;
mod ranks;
mod real_data;
mod resume;
mod typed;
mod typed_link;

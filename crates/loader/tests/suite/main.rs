//! Tests of the loader: order and content of batches, sharding among ranks, resume, and faults.

mod accumulate;
mod digests;
mod faults;
mod graph;
mod heterogeneous;
mod heterogeneous_links;
mod link;
mod link_leak;
mod node;
mod order;
mod ranks;
mod real_data;
mod resume;

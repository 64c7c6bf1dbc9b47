//! Loaders: the order of seeds and batches, what is in them, ranks, going on, and faults.

mod faults;
mod graph;
mod node;
mod order;
mod ranks;
mod real_data;
mod resume;

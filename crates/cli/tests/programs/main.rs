//! The program `kiln` as its users run it, in processes of its own.

mod cora;
mod data;
mod distributed_sage;
mod full_disk;
mod graph_classification;
mod lost_files;
mod node_classification;
#[path = "../parted/mod.rs"]
mod parted;
mod resume;
mod sampling;
mod weights;

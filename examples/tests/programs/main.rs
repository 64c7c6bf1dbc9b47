//! The example programs as their users run them, each of them in processes of its own.

mod cora;
mod custom_sampler;
mod distributed_sage;
mod front_door;
mod full_disk;
mod graph_classification;
mod lost_files;
mod node_classification;
#[path = "../parted/mod.rs"]
mod parted;
mod resume;

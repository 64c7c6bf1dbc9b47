//! What the example binaries share: their flags, what trains on nodes, sets of graphs, showing progress.

pub mod args;
pub mod flags;
pub mod graphs;
pub mod keep;
mod launch;
mod mean;
mod nodes;
mod parts;
mod placement;
mod program;
mod progress;
pub mod run;

pub use launch::{Crew, Ending, LaunchArgs, TlsArgs, launch, secret, stop_flag};
pub use mean::{Mean, best_epoch};
pub use nodes::NodeProgram;
pub use parts::{Parts, PartsArgs, graph_token};
pub use placement::{OnDevice, Placement, PlacementArgs};
pub use program::Program;
pub use progress::{Progress, say};

/// Of every program here: activations, gradients and batches are taken and freed in each step.
#[global_allocator]
static ALLOCATOR: kiln_mem::HugePageAllocator = kiln_mem::HugePageAllocator::new();

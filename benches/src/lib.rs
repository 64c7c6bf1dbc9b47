//! What the benches share: the data that they run on, what an iteration moves, and criterion's settings.
//!
//! A bench is called `stage/variant/size`, the size being a data set's name. Everything is drawn from fixed keys,
//! so that two runs of a commit measure the same work. `cargo xtask bench` runs them, compares their times with
//! the machine's own [`ceilings`], and prints the rates.

pub mod ceilings;
mod endless;
mod input;
mod stage;
pub mod train;
mod work;

pub use endless::Endless;
pub use input::{BATCH_SIZE, GraphInput, Input, fake, graph_inputs, inputs, wants_fake};
pub use stage::{Stage, n_threads};
pub use work::{Access, Work};

/// The allocator of the example programs, so that benches measure what they do.
#[global_allocator]
static ALLOCATOR: kiln_mem::HugePageAllocator = kiln_mem::HugePageAllocator::new();

/// What a bench's main gives back.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

//! The shared code of the benches: their data, the work of an iteration, and criterion's settings.
//!
//! A bench is called `stage/variant/size`, where the size is a data set's name. All random numbers come from fixed
//! keys, so two runs of a commit measure the same work. `cargo xtask bench` runs the benches, compares their times with
//! the machine's [`ceilings`], and prints the rates.

pub mod ceilings;
mod endless;
mod input;
mod replay;
mod stage;
pub mod train;
mod work;

pub use endless::Endless;
pub use input::{BATCH_SIZE, GraphInput, Input, fake, graph_inputs, inputs, wants_fake};
pub use replay::seconds_to_read_rows;
pub use stage::{Stage, n_threads};
pub use work::{Access, Work};

/// The allocator, which is that of kiln's programs, so that the benches measure the same code.
#[global_allocator]
static ALLOCATOR: kiln_mem::HugePageAllocator = kiln_mem::HugePageAllocator::new();

/// The result of a bench's `main`.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

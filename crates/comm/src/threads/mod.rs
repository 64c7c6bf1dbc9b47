//! Ranks that are threads of one process: collectives over shared memory.

mod group;
mod ranks;
mod state;
mod thread_group;
mod world;

pub use ranks::ThreadRanks;
pub use thread_group::ThreadGroup;

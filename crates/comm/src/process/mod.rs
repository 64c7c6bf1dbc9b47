//! Ranks that are processes: how a launcher started them, how they meet, watch over each other and end together.

#[cfg(feature = "grpc")]
mod carrier;
#[cfg(feature = "grpc")]
mod communicator;
#[cfg(feature = "grpc")]
mod engine;
mod error;
#[cfg(feature = "grpc")]
mod job;
mod launch;
#[cfg(feature = "grpc")]
mod machine;
mod master;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
#[cfg(feature = "grpc")]
mod proto;
#[cfg(feature = "grpc")]
mod rendezvous;
#[cfg(feature = "grpc")]
mod store;
#[cfg(feature = "grpc")]
mod watchdog;

pub use error::JobError;
#[cfg(feature = "grpc")]
pub use job::Job;
pub use launch::{Launch, LaunchError, LaunchFlags, MAX_WORLD_SIZE, Source};
pub use master::Master;

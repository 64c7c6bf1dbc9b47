//! Ranks that are processes: launch environment, rendezvous, collectives, watchdog and exit.

#[cfg(feature = "grpc")]
mod carrier;
#[cfg(feature = "grpc")]
mod communicator;
#[cfg(feature = "grpc")]
mod engine;
mod error;
mod launch;
mod launch_error;
mod launcher;
#[cfg(feature = "grpc")]
mod machine;
mod master_address;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
#[cfg(feature = "grpc")]
mod process_group;
#[cfg(feature = "grpc")]
mod proto;
#[cfg(feature = "grpc")]
mod rendezvous;
#[cfg(feature = "grpc")]
mod store;
#[cfg(feature = "grpc")]
mod watchdog;

pub use error::{EngineError, JobError};
pub use launch::{LaunchEnv, LaunchFlags};
pub use launch_error::{LaunchError, MAX_WORLD_SIZE};
pub use launcher::Launcher;
pub use master_address::MasterAddress;
#[cfg(feature = "grpc")]
pub use process_group::ProcessGroup;

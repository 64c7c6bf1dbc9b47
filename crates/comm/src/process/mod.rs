//! Ranks that are processes: launch environment, rendezvous, collectives, watchdog and exit.
//!
//! ```text
//! Communicator                the trait that the trainer uses
//!   ProcessCommunicator       numbers collectives, records where this rank waits, compares the ranks' calls
//!     Engine                  transfers bytes: MPI, NCCL, or rank 0 (`store`)
//! watchdog/                   a thread: sends heartbeats, receives the end of the job, checks deadlines
//!   rendezvous/ (rank 0)      joining, heartbeats, values, shutdown; who has joined, and who is refused
//! ```
//!
//! There is no launcher here, and no network collective of kiln's own. Engines move bytes and add nothing;
//! `ProcessCommunicator` contains everything that ranks must agree on. Launchers and the failure behaviour:
//! `docs/clusters.md`.

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

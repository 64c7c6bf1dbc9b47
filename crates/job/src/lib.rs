//! Ranks that are processes, on one machine or several: how a launcher started them ([`Launch`]), how they meet
//! and watch over each other ([`Job`]), and how they end together. What carries bytes between them is an existing
//! engine (MPI, with the feature `mpi`); what they see of it is the `Communicator` of `kiln-dist`.
//!
//! This crate knows no tensor and no model. It starts no process: that is for `mpirun`, `srun`, `torchrun` and their
//! like. It reads no environment variable by itself.
//!
//! ```
//! use kiln_job::{Launch, LaunchFlags};
//! // As torchrun sets them.
//! let vars = [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "n1"), ("MASTER_PORT", "29500")];
//! let var = |name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| value.to_string());
//! let launch = Launch::detect(&LaunchFlags::default(), var)?.expect("there are several processes");
//! assert_eq!((launch.rank, launch.world_size, launch.master.unwrap().port), (1, 4, 29500));
//! # Ok::<(), kiln_job::LaunchError>(())
//! ```

mod alarm;
mod carrier;
mod channel;
mod control;
mod engine;
mod error;
mod exit;
mod group;
mod job;
mod joining;
mod launch;
mod machine;
mod master;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "nccl")]
mod nccl;
mod place;
mod proto;
mod seats;
mod server;
mod store;
mod timing;

pub use error::{JobError, TransientError};
pub use exit::{EXIT_FAILED, EXIT_RETRY};
pub use job::{EngineKind, Job, JobConfig};
pub use kiln_rpc::Tls;
pub use launch::{Launch, LaunchError, LaunchFlags, MAX_WORLD_SIZE, Source};
pub use master::Master;

use server::Server;

/// A process as messages name it.
fn name(rank: usize, member: &proto::Member) -> String {
    format!("rank {rank} ({}, pid {})", member.host, member.pid)
}

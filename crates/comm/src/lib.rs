//! Communication between the ranks of a training program. [`launch`] runs a closure on each rank. Ranks are threads of
//! one process or, with the feature `grpc`, processes started by `srun`, `mpirun` or `torchrun`. They exchange data
//! through the collectives of a [`Communicator`], which every rank must call in the same order. If a rank fails, all
//! ranks end.
//!
//! The crate transfers numbers and bytes; it does not depend on tensors, graphs or models. It starts the threads of
//! ranks, but no processes. It reads the clock for time limits only, and environment variables only in
//! [`RankConfig::from_env_or_threads`]. The data-parallel loops of a rank stay on its own threads. No rank hangs: a wait
//! ends with the collective, the group or the deadline, and the error names the rank, the collective and the step.
//!
//! ```
//! use kiln_comm::{Error, RankConfig, Reduce, launch};
//! let sums = launch(RankConfig::from_env_or_threads(3), |mut rank| {
//!     let mut buf = [1.5, rank.info.rank as f32];
//!     rank.comm.all_reduce_sum(Reduce::F32(&mut buf))?;
//!     Ok::<_, Error>(buf)
//! })?;
//! assert_eq!(sums, [[4.5, 3.0]; 3]);
//! # Ok::<(), kiln_comm::RankError>(())
//! ```
//!
//! Features, all off by default: `grpc` adds ranks that are processes, and the module `rpc`; `tls` adds certificates on
//! their connections; `mpi` and `nccl` add collectives through these libraries.

mod call;
mod cause;
mod communicator;
mod config;
mod error;
mod exit;
mod failure;
mod group;
mod process;
#[cfg(feature = "grpc")]
pub mod rpc;
mod single;
mod sums;
mod terminal;
mod threads;
mod when;

pub use communicator::{Communicator, GroupWatch, RankInfo, Reduce};
pub use config::{CommBackend, RankConfig};
pub use error::Error;
pub use exit::{EXIT_FAILED, EXIT_RETRY, TransientError, clean_up_at_end};
pub use failure::{BoxError, Failure, RankError, error_text};
pub use group::{Rank, RankGroup, launch};
#[cfg(feature = "grpc")]
pub use process::ProcessGroup;
pub use process::{
    EngineError, JobError, LaunchEnv, LaunchError, LaunchFlags, Launcher, MAX_WORLD_SIZE, MasterAddress,
};
pub use single::SingleRank;
pub use terminal::{printable, printable_json};
pub use threads::{ThreadGroup, ThreadRanks};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The code of this crate's README, compiled as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;

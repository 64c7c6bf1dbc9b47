//! Ranks that train together. A [`Communicator`] is one rank's way to all others: the ranks of a program meet in
//! collectives and nowhere else, each rank calling the same ones in the same order. [`launch`] runs a closure on each rank:
//! the ranks are threads of one process or, with the feature `grpc`, processes that `srun`, `mpirun` or `torchrun` started.
//! They end together, whichever of them fails.
//!
//! This crate knows no tensor, no graph and no model: numbers and bytes travel. It starts the threads of ranks, and reads
//! the clock for deadlines only. It starts no process. It reads environment variables in
//! [`RankConfig::from_env_or_threads`] only.
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
//! Features, none of them default: `grpc`, ranks that are processes, and the module `rpc`; `tls`, certificates between
//! them; `mpi` and `nccl`, collectives by those libraries.

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
mod threads;

pub use communicator::{Communicator, RankInfo, Reduce};
pub use config::{CommBackend, RankConfig};
pub use error::Error;
pub use exit::{EXIT_FAILED, EXIT_RETRY, TransientError};
pub use failure::{BoxError, Failure, RankError};
pub use group::{Rank, RankGroup, launch};
#[cfg(feature = "grpc")]
pub use process::ProcessGroup;
pub use process::{JobError, LaunchEnv, LaunchError, LaunchFlags, Launcher, MAX_WORLD_SIZE, MasterAddress};
pub use single::SingleRank;
pub use threads::{ThreadGroup, ThreadRanks};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The snippet of this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;

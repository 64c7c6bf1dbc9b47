//! Ranks that train together. A [`Communicator`] is one rank's way to all others: the ranks of a program meet in
//! collectives and nowhere else, each rank calling the same ones in the same order. The ranks are threads of one process
//! ([`Ranks`]) or, with the feature `grpc`, processes that `srun`, `mpirun` or `torchrun` started (`Job`); they end
//! together, whichever of them fails.
//!
//! This crate knows no tensor, no graph and no model: numbers and bytes travel. It starts the threads of ranks, and reads
//! the clock for deadlines only. It starts no process, and reads no environment variable by itself: [`Launch::detect`] is
//! given a function that does.
//!
//! ```
//! use kiln_comm::{Ranks, Reduce};
//! let sums = Ranks::of(3).run(|mut comm| {
//!     let mut buf = [1.5, comm.topology().rank as f32];
//!     comm.all_reduce_sum(Reduce::F32(&mut buf))?;
//!     Ok(buf)
//! })?;
//! assert_eq!(sums, [[4.5, 3.0]; 3]);
//! # Ok::<(), kiln_comm::RankError>(())
//! ```
//!
//! Features, none of them default: `grpc`, ranks that are processes, and `rpc`; `tls`, certificates between them; `mpi`
//! and `nccl`, collectives by those libraries.

mod call;
mod cause;
mod communicator;
mod error;
mod exit;
mod failure;
mod process;
#[cfg(feature = "grpc")]
pub mod rpc;
mod single;
mod sums;
mod threads;


pub use communicator::{Communicator, Reduce, Topology};
pub use error::Error;
pub use exit::{EXIT_FAILED, EXIT_RETRY, TransientError};
pub use failure::{BoxError, Failure, RankError};
#[cfg(feature = "grpc")]
pub use process::{EngineKind, Job, JobConfig, JobError};
pub use process::{Launch, LaunchError, LaunchFlags, MAX_WORLD_SIZE, Master, Source};
pub use single::Solo;
pub use threads::{Ranks, ThreadGroup};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

//! Ranks that train together: a [`Communicator`] is one rank's way to all others. The ranks of a program
//! meet in collectives and nowhere else, each rank calling the same ones in the same order. [`Ranks`] runs
//! them, each in threads of its own; they come to their end together, whichever of them fails.
//!
//! This crate knows no tensor, no graph and no model: what travels is numbers and bytes. It starts the
//! threads of ranks, and reads the clock for nothing but deadlines.
//!
//! ```
//! use kiln_dist::{Ranks, Reduce};
//! let sums = Ranks::of(3).run(|mut comm| {
//!     let mut buf = [1.5, comm.topology().rank as f32];
//!     comm.all_reduce_sum(Reduce::F32(&mut buf))?;
//!     Ok(buf)
//! })?;
//! assert_eq!(sums, [[4.5, 3.0]; 3]);
//! # Ok::<(), kiln_dist::RankError>(())
//! ```

mod call;
mod communicator;
mod error;
mod failure;
mod group;
mod ranks;
mod solo;
mod state;
mod sums;
mod thread_group;
mod world;

pub use call::Call;
pub use communicator::{Communicator, Reduce, Topology};
pub use error::{Cause, Error, Meeting, Whereabouts};
pub use failure::{BoxError, Failure, RankError, chain};
pub use group::group_name;
pub use ranks::Ranks;
pub use solo::Solo;
pub use sums::{Number, share};
pub use thread_group::ThreadGroup;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

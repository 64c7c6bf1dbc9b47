//! Ranks that train together: a [`Communicator`] is one rank's way to all others. The ranks of a program
//! meet in collectives and nowhere else, each rank calling the same ones in the same order.
//!
//! This crate knows no tensor, no graph and no model: what travels is numbers and bytes.
//!
//! ```
//! use kiln_dist::{Communicator, Reduce, Solo};
//! let mut comm = Solo::new();
//! let mut sums = [1.5, 2.0];
//! comm.all_reduce_sum(Reduce::F32(&mut sums))?;
//! assert_eq!((comm.topology().world_size, sums), (1, [1.5, 2.0]));
//! # Ok::<(), kiln_dist::Error>(())
//! ```

mod communicator;
mod error;
mod solo;

pub use communicator::{Communicator, Reduce, Topology};
pub use error::Error;
pub use solo::Solo;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

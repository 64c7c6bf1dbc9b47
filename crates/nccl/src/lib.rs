//! NCCL communicators: sums and exchanges between GPUs, for ranks that are processes or threads of one process.
//!
//! The library is loaded at run time (`libnccl.so.2`, then `libnccl.so`): nothing is linked, and a machine without it gets
//! [`Error::NotFound`]. Every [`Comm`] belongs to one rank, one GPU and one stream; its calls wait for the stream, so that
//! results may be read when they return. A wait ends when another rank of the process fails: the communicator is then
//! aborted, because NCCL itself would wait forever.
//!
//! This crate knows neither tensors nor a launcher: it takes addresses of device memory, and the bytes of a [`UniqueId`]
//! that the caller sends to the other ranks. It has not run on hardware yet: its tests run on a stub library.
//!
//! ```
//! let id = kiln_nccl::UniqueId::from_bytes(&[7; kiln_nccl::ID_BYTES])?;
//! assert_eq!(id.bytes(), [7; 128]);
//! # Ok::<(), kiln_nccl::Error>(())
//! ```
//!
//! A rank for each GPU of this process:
//!
//! ```no_run
//! use std::time::Duration;
//! let comms = kiln_nccl::Comm::for_devices(&[0, 1], Duration::from_secs(600))?;
//! assert_eq!(comms[1].rank(), 1);
//! # Ok::<(), kiln_nccl::Error>(())
//! ```

mod comm;
mod error;
mod library;

pub use comm::{Buffer, Comm, ID_BYTES, UniqueId, device_uuid};
pub use cudarc::driver::{CudaContext, CudaStream};
pub use error::Error;
pub use library::check;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

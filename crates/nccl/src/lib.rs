//! NCCL communicators for ranks that are processes or threads of one process: all-reduce and exchange between GPUs.
//!
//! The library is loaded at run time (`libnccl.so.2`, then `libnccl.so`) and never linked; a machine without it gets
//! [`Error::NotFound`]. Every [`Comm`] belongs to one rank, one GPU and one stream. Its calls wait for the stream, so
//! the results are ready when they return. If another rank does not call before the deadline, or a rank of the same
//! [`Comm::for_devices`] call fails, the communicator is aborted and the call returns [`Error::Aborted`]; NCCL itself
//! would wait forever.
//!
//! This crate is independent of tensor libraries and launchers. It takes addresses of device memory, and the bytes of a
//! [`UniqueId`] that the caller sends to the other ranks. It has been tested with a stub library only, not yet on
//! hardware.
//!
//! ```
//! let id = kiln_nccl::UniqueId::from_bytes(&[7; kiln_nccl::ID_BYTES])?;
//! assert_eq!(id.bytes(), [7; 128]);
//! # Ok::<(), kiln_nccl::Error>(())
//! ```
//!
//! One rank for each GPU of this process:
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

pub use comm::{Buffer, Comm, UniqueId, device_uuid};
pub use cudarc::driver::{CudaContext, CudaStream};
pub use error::Error;
pub use library::ID_BYTES;
pub use library::check;

/// The example of the README, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! The rendezvous of a job: rank 0 serves at one port, and all processes join there.

pub(crate) mod channel;
pub(crate) mod joining;
mod seats;
mod server;

//! How the processes of a job find each other: rank 0 serves at one port, all others join there.

pub(crate) mod channel;
pub(crate) mod joining;
mod seats;
mod server;

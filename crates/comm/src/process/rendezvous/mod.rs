//! The rendezvous of a job: rank 0 serves at one port, and all processes join there.
//!
//! Every message to rank 0 carries the job's token. The token alone has no effect on the job: calls count only on
//! connections over which a rank has joined.

pub(crate) mod channel;
pub(crate) mod joining;
mod seats;
mod server;

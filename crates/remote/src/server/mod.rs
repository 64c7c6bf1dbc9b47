//! The server of a partition: leases of its clients, checked requests, and threads that compute the responses within a
//! limit of memory.

pub(crate) mod leases;
pub(crate) mod ranges;
pub(crate) mod respond;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod slots;

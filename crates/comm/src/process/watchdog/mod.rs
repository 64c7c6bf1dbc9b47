//! How a process notices that its job is over, and ends with it.

pub(crate) mod alarm;
pub(crate) mod control;
pub(crate) mod exit;
pub(crate) mod place;
pub(crate) mod timing;

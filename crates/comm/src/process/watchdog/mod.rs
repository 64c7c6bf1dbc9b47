//! The watchdog: detects that the job has ended, and ends this process. It runs no destructors, because threads that wait
//! in MPI cannot be woken.

pub(crate) mod activity;
pub(crate) mod alarm;
pub(crate) mod control;
pub(crate) mod exit;
pub(crate) mod timing;

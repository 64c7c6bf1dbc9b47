//! The watchdog: detects that the job has ended, and ends this process.

pub(crate) mod activity;
pub(crate) mod alarm;
pub(crate) mod control;
pub(crate) mod exit;
pub(crate) mod timing;

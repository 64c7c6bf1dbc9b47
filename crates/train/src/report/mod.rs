//! The report of a run: one HTML page and the learning curves.

mod classes;
pub(crate) mod curves;
mod file;
mod html;
pub(crate) mod links;
pub(crate) mod page;
mod recorded;
mod runs_page;
mod stages;
pub(crate) mod targets;

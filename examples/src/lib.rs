//! What the example binaries share: their flags and showing progress.

pub mod args;
pub mod flags;
mod progress;

pub use progress::{Progress, say};

//! What the example binaries share: reading their flags and showing progress.

pub mod flags;
mod progress;

pub use progress::{Progress, say};

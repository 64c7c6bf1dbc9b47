//! What the example binaries share: their flags, judging node classifiers, showing progress.

pub mod args;
pub mod flags;
mod judge;
mod progress;

pub use judge::Judge;
pub use progress::{Progress, say};

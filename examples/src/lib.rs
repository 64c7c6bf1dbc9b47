//! What the example binaries share: their flags, training on nodes, judging node classifiers, showing progress.

pub mod args;
pub mod flags;
mod judge;
mod nodes;
mod progress;
pub mod run;

pub use judge::Judge;
pub use nodes::NodeProgram;
pub use progress::{Progress, say};

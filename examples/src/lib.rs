//! What the example binaries share: reading their flags and showing progress.

mod flags;
mod progress;

pub use flags::{DataName, at_least_one, dataset, device, fanouts, non_negative, parse, positive, rate};
pub use progress::Progress;

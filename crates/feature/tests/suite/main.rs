//! Features and labels by node: identical rows in memory and in mapped files, and errors for invalid data.

mod edges;
mod labels;
mod sparse;
mod stores;
mod target_scaler;
mod targets;

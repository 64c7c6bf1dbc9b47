//! Features and labels by node: the same rows wherever they are kept, and clear errors.

mod labels;
mod sparse;
mod stores;

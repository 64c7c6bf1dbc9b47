//! Sampling where the graph is.

pub(crate) mod graph;
pub(crate) mod graph_mode;
pub(crate) mod sampler;
#[cfg(feature = "cube")]
pub(crate) mod staged;

//! Neighbour sampling on the device that holds the graph, or on the host.

pub(crate) mod edge_features;
pub(crate) mod graph;
pub(crate) mod graph_mode;
pub(crate) mod rule;
pub(crate) mod sample;
pub(crate) mod sampler;
#[cfg(feature = "cube")]
pub(crate) mod staged;

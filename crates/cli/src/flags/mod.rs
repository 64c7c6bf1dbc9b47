//! The groups of flags that commands have in common or that one command has, with the values that they set.

pub(crate) mod device;
pub(crate) mod fit;
pub(crate) mod link_split;
pub(crate) mod links;
pub(crate) mod loss;
pub(crate) mod model;
pub(crate) mod node_model;
pub(crate) mod optimizer;
pub(crate) mod parse;
pub(crate) mod partitions;
pub(crate) mod ranks;
pub(crate) mod sampling;
pub(crate) mod source;

pub(crate) use kiln_usage::{GivenFlags, list_names, read_given};

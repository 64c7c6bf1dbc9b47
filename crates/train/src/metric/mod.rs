//! Metrics: what each is computed from, how ranks combine it, and which values are better.

pub(crate) mod confusion;
pub(crate) mod kind;
pub(crate) mod link_ranks;
pub(crate) mod multi_label;
pub(crate) mod ranking;
pub(crate) mod regression;
pub(crate) mod selection_error;
pub(crate) mod split_targets;
pub(crate) mod stats;

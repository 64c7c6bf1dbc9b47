//! Saved models: the description and the weights in a run folder, opened for predictions.

pub(crate) mod batches;
pub(crate) mod error;
pub(crate) mod info;
pub(crate) mod link_scorer;
pub(crate) mod links;
pub(crate) mod mode;
pub(crate) mod model;
pub(crate) mod outputs;
pub(crate) mod predictor;
pub(crate) mod preparation;
pub(crate) mod registry;
pub(crate) mod top_k;
pub(crate) mod typed_info;
pub(crate) mod typed_links;
pub(crate) mod typed_network;
pub(crate) mod typed_predictor;

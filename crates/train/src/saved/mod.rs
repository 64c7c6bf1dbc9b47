//! Saved models: the description and the weights in a run folder, opened for predictions.

pub(crate) mod batches;
pub(crate) mod config_fields;
pub(crate) mod error;
pub(crate) mod graph_access;
pub(crate) mod info;
pub(crate) mod link_predictor;
pub(crate) mod link_scorer;
pub(crate) mod mode;
pub(crate) mod model;
pub(crate) mod model_file;
pub(crate) mod models;
pub(crate) mod named_model;
pub(crate) mod network;
pub(crate) mod outputs;
pub(crate) mod prediction_data;
pub(crate) mod predictor;
pub(crate) mod preparation;
pub(crate) mod registry;
pub(crate) mod schema_info;
pub(crate) mod stored_fanout;
pub(crate) mod top_k;
pub(crate) mod trained_rows;

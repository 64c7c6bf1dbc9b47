//! Saved models: the description and the weights in a run folder, opened for predictions.
//!
//! `model.json` and `best.safetensors` contain everything that predictions need. A description with a missing, unknown or
//! impossible value, a newer format, weights of other shapes or with another hash is a typed error; nothing is guessed. A
//! config is compared with the size of the weights before memory is allocated for the model. `model.json` has no hash while
//! a run trains, because two files cannot be replaced at once.
//!
//! An item has one prediction: it depends on the weights, the data and the seed, and not on the rest of the request, its
//! order, the size of batches, ranks or partitions, nor on whether the run evaluates the item or `kiln predict` answers for
//! it. This holds bit for bit on the same kind of CPU, and up to rounding on other devices. So a server may join requests
//! to batches. For this, the neighbours in evaluations are drawn by node alone (`docs/rng.md`), a row of a product does not
//! depend on the number of rows (`kiln-kernels`, `cpu/dense.rs`), and layers choose the order of their products by a nominal
//! size of blocks (`BlockSize::SAMPLED`). Models of a user's own with matrix products of Burn, whose rows depend on the
//! number of rows, and the best destinations of links, whose scores come from one product, agree up to rounding.
//!
//! Ranks take the batches of a request in turns, and rank 0 receives the rows in the order of the request, so files are
//! byte-identical for any number of ranks and partitions. Only the names of items differ: partitions do not have them.

pub(crate) mod batches;
pub(crate) mod config_fields;
mod contradiction;
pub(crate) mod error;
pub(crate) mod feature_columns;
pub(crate) mod graph_access;
pub(crate) mod info;
pub(crate) mod initial_weights;
pub(crate) mod link_predictor;
pub(crate) mod link_scorer;
pub(crate) mod mode;
pub(crate) mod model;
pub(crate) mod model_file;
pub(crate) mod models;
pub(crate) mod named_model;
pub(crate) mod named_targets;
pub(crate) mod network;
pub(crate) mod outputs;
pub(crate) mod prediction_ages;
pub(crate) mod prediction_data;
pub(crate) mod predictor;
pub(crate) mod preparation;
pub(crate) mod registry;
pub(crate) mod schema_info;
pub(crate) mod stored_fanout;
pub(crate) mod timed_links;
pub(crate) mod timed_nodes;
pub(crate) mod top_k;
pub(crate) mod trained_rows;
pub(crate) mod unread;

//! Evaluation: a classifier's outputs, and exact layer-wise inference.

pub(crate) mod cross_validation;
pub(crate) mod evaluated_task;
pub(crate) mod evaluation;
pub(crate) mod evaluator;
pub(crate) mod inference_graph;
pub(crate) mod layer_range;
pub(crate) mod layer_wise;
pub(crate) mod links;
pub(crate) mod pair_scores;
pub(crate) mod progress;
pub(crate) mod spill;
pub(crate) mod target_values;
pub(crate) mod trainer;
pub(crate) mod validation;

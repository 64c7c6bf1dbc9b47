//! Evaluation: a classifier's outputs and their metrics, and exact inference layer by layer.

pub(crate) mod cross_validation;
pub(crate) mod evaluation;
pub(crate) mod evaluator;
pub(crate) mod layer_range;
pub(crate) mod layer_wise;
pub(crate) mod metrics;
pub(crate) mod spill;
pub(crate) mod trainer;

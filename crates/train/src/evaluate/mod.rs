//! Evaluation: a classifier's outputs, and exact layer-wise inference.
//!
//! Exact inference holds the activations of two layers and one range of nodes. With a memory limit, the output of a layer
//! that exceeds it is written to an unnamed temporary file and read back as mapped rows. For a heterogeneous graph, the rows
//! of the input encoder are computed once for each node, like one more layer, and then each layer on blocks of all
//! relations, with the groups that the model reads.

pub(crate) mod cross_validation;
pub(crate) mod evaluated_task;
pub(crate) mod evaluation;
pub(crate) mod evaluator;
pub(crate) mod inference_graph;
pub(crate) mod layer_range;
pub(crate) mod layer_wise;
pub(crate) mod links;
pub(crate) mod pair_scores;
pub(crate) mod popularity;
pub(crate) mod spill;
pub(crate) mod target_values;
pub(crate) mod trainer;
pub(crate) mod validation;

//! The steps of a model's preparation that data still needs.

use kiln_feature::{Preparation, PreparationStep};

use crate::error::Result;
use crate::saved::error::ModelError;

/// Returns the steps of `wanted` that are left after those in `done`. The graph's step and the steps of features are
/// independent of each other.
pub(crate) fn left_steps(wanted: &Preparation, done: &Preparation) -> Result<Preparation> {
    let split = |preparation: &Preparation| -> (Vec<PreparationStep>, Vec<PreparationStep>) {
        preparation.steps.iter().cloned().partition(|step| *step == PreparationStep::Symmetrize)
    };
    let ((of_graph, of_features), (graph_done, features_done)) = (split(wanted), split(done));
    if of_graph.is_empty() && !graph_done.is_empty() {
        return Err(ModelError::OtherPreparation { step: "symmetrized" }.into());
    }
    let Some(left) = of_features.strip_prefix(&features_done[..]) else {
        let differs = |(i, step): &(usize, &PreparationStep)| of_features.get(*i) != Some(*step);
        let step = match features_done.iter().enumerate().find(differs) {
            Some((_, PreparationStep::Scale(_))) => "scaled by other means and deviations",
            _ => "divided by the sums of its rows",
        };
        return Err(ModelError::OtherPreparation { step }.into());
    };
    let of_graph = if graph_done.is_empty() { of_graph } else { Vec::new() };
    Ok(Preparation { steps: [of_graph, left.to_vec()].concat() })
}

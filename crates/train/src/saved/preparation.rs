//! The steps of a model's preparation that data still needs, and a graph with these steps.

use std::sync::Arc;

use kiln_feature::{Preparation, PreparationStep};
use kiln_graph::{
    Csc, EdgeColumns, add_self_loops, add_self_loops_of_type, features_with_self_loops, gcn_norm, symmetrize,
};

use crate::error::Result;
use crate::saved::error::{ModelError, PredictModeError, PreparationError};
use crate::saved::info::ModelInfo;

/// Returns the steps of the model's preparation that are left after those in `done`; none if it is unknown.
pub(crate) fn left_steps_of(info: &ModelInfo, done: &Preparation) -> Result<Preparation> {
    match &info.inputs.preparation {
        Some(wanted) => left_steps(wanted, done),
        None => Ok(Preparation::default()),
    }
}

/// Returns the graph with the steps in `left`, normalised if the model needs it.
/// `n_edge_types` is the number of edge types of the data, of which the graph may lack some.
pub(crate) fn prepared_graph(
    info: &ModelInfo,
    left: &Preparation,
    mut graph: Arc<Csc>,
    n_edge_types: Option<usize>,
) -> Result<Arc<Csc>> {
    if left.symmetrizes() {
        graph = Arc::new(symmetrize(&graph)?);
    }
    if left.adds_self_loops() {
        graph = Arc::new(with_self_loops(info, &graph, n_edge_types)?);
    }
    Ok(if is_normalized(info) { Arc::new(gcn_norm(&graph)?) } else { graph })
}

/// Adds self loops, and the features of edges with those of the loops if the model reads them.
fn with_self_loops(info: &ModelInfo, graph: &Csc, n_edge_types: Option<usize>) -> Result<Csc> {
    let looped = match n_edge_types {
        Some(n_edge_types) => add_self_loops_of_type(graph, n_edge_types)?,
        None => add_self_loops(graph)?,
    };
    let reads_features =
        info.inputs.sampling.as_ref().is_some_and(|sampling| sampling.edge_features.is_some());
    match features_with_self_loops(graph, &looped).filter(|_| reads_features) {
        Some(features) => Ok(looped.with_column(EdgeColumns::FEATURES, features)?),
        None => Ok(looped),
    }
}

/// Checks that a graph which is only sampled needs no step that changes it.
pub(crate) fn check_sampled_graph(info: &ModelInfo, left: &Preparation) -> Result<()> {
    let steps = [
        (left.symmetrizes(), "adding the reverse of each edge"),
        (left.adds_self_loops(), "adding self loops"),
        (is_normalized(info), "the normalisation of a GCN"),
    ];
    match steps.into_iter().find(|(is_needed, _)| *is_needed) {
        Some((_, what)) => Err(ModelError::Mode(PredictModeError::NeedsWholeGraph { what }).into()),
        None => Ok(()),
    }
}

fn is_normalized(info: &ModelInfo) -> bool {
    info.inputs.sampling.as_ref().is_some_and(|sampling| sampling.gcn_norm)
}

/// Returns the steps of `wanted` that are left after those in `done`. The steps of the graph do not depend on their order,
/// nor on those of features.
fn left_steps(wanted: &Preparation, done: &Preparation) -> Result<Preparation> {
    let split = |preparation: &Preparation| -> (Vec<PreparationStep>, Vec<PreparationStep>) {
        preparation.steps.iter().cloned().partition(PreparationStep::is_of_graph)
    };
    let (of_graph, of_features) = split(wanted);
    let (graph_done, features_done) = split(done);
    if let Some(step) = graph_done.iter().find(|step| !of_graph.contains(step)) {
        let is_symmetrized = *step == PreparationStep::Symmetrize;
        let step = if is_symmetrized { "symmetrized" } else { "given self loops" };
        return Err(ModelError::Preparation(PreparationError::OtherPreparation { step }).into());
    }
    let Some(left) = of_features.strip_prefix(&features_done[..]) else {
        let step = match features_done
            .iter()
            .enumerate()
            .find(|(i, step): &(usize, &PreparationStep)| of_features.get(*i) != Some(*step))
        {
            Some((_, PreparationStep::Scale(_))) => "scaled by other means and deviations",
            _ => "divided by the sums of its rows",
        };
        return Err(ModelError::Preparation(PreparationError::OtherPreparation { step }).into());
    };
    let of_graph = of_graph.into_iter().filter(|step| !graph_done.contains(step));
    Ok(Preparation { steps: of_graph.chain(left.iter().cloned()).collect() })
}

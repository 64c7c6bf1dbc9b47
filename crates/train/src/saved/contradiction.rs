//! Compares the description of a model with the model itself.

use kiln_nn::EdgeDims;

use crate::saved::info::ModelInfo;
use crate::saved::model_file::ModelTask;
use crate::saved::network::Network;

/// Returns the first difference between the description and the model that was created from its config.
pub(super) fn contradiction(info: &ModelInfo, network: &Network) -> Option<String> {
    let inputs = &info.inputs;
    let task = match network {
        Network::Nodes { decoder: None, .. } => ModelTask::Nodes,
        Network::Nodes { decoder: Some(decoder), .. } => match decoder.edge_dims() {
            None => ModelTask::Links,
            Some(_) => ModelTask::Edges,
        },
        Network::Graphs(_) => ModelTask::Graphs,
    };
    if task != inputs.task {
        return Some(format!("the task is {}, but a {} is a model of {task}", inputs.task, info.kind));
    }
    if task == ModelTask::Links && inputs.n_outputs != 1 {
        return Some(format!("`n_outputs` is {}, but a link has one score", inputs.n_outputs));
    }
    if let Network::Nodes { decoder: Some(decoder), .. } = network
        && let Some(EdgeDims { n_outputs, .. }) = decoder.edge_dims()
        && n_outputs != inputs.n_outputs
    {
        let got = inputs.n_outputs;
        return Some(format!("`n_outputs` is {got}, but the decoder of the config has {n_outputs} outputs"));
    }
    let has_ages = inputs.sampling.as_ref().is_some_and(|sampling| sampling.ages.is_some());
    let encoder = match network {
        // The first layer of a model of a heterogeneous graph, or of ages, reads the rows of an input encoder.
        Network::Nodes { encoder, .. } if inputs.graph.is_none() && !has_ages => encoder,
        Network::Nodes { .. } | Network::Graphs(_) => return None,
    };
    let [d_in, d_out] = encoder.network.outer_widths()?;
    let n_features = inputs.n_features;
    let n_outputs = if task == ModelTask::Edges { 1 } else { inputs.n_outputs };
    (d_in != n_features || d_out < n_outputs).then(|| {
        format!("the config is for {d_in} features and {d_out} outputs, but the inputs have {n_features} and {n_outputs}")
    })
}

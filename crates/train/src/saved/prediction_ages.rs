//! The ages of nodes and edges that a saved model reads.

use kiln_graph::{Csc, EdgeColumns, EdgeTimes, Relations, SharedArray};
use kiln_loader::Ages;

use crate::error::Result;
use crate::saved::error::{ModelError, PredictModeError};
use crate::saved::graph_access::GraphAccess;
use crate::saved::info::AgeInfo;

/// Returns the ages of a graph that a model reads, from its nodes' times of each type, which may be missing. `prepared` is the
/// graph with the preparation of the model, whose edges are sampled. `reads_edges` is false for a model that reads the ages of
/// nodes only.
pub(crate) fn ages_of(
    info: &AgeInfo,
    reads_edges: bool,
    graph: &GraphAccess,
    prepared: &GraphAccess,
    node_times: &[Option<SharedArray<i64>>],
) -> Result<Ages> {
    let [graph, prepared] = [whole(graph)?, whole(prepared)?];
    let mut nodes = Vec::new();
    for (node_type, reads) in info.node_types.iter().enumerate() {
        let times = node_times.get(node_type).cloned().flatten();
        if *reads && times.is_none() {
            let name = graph.types().names()[node_type].clone();
            return Err(no_times(format!("the nodes of the type `{name}`")));
        }
        nodes.push(times.filter(|_| *reads));
    }
    let mut edges = Vec::new();
    for ((relation, of_prepared), reads) in graph.iter().zip(prepared.iter()).zip(&info.relations) {
        let reads = *reads && reads_edges;
        let times = own_times(&relation.graph).and_then(|_| of_prepared.graph.edge_times().cloned());
        if reads && times.is_none() {
            return Err(no_times(format!("the edges of the relation `{}`", relation.name)));
        }
        edges.push(times.filter(|_| reads));
    }
    Ok(Ages::new(prepared.schema().clone(), nodes, edges, info.unit))
}

/// Returns the times of edges that have times of their own, besides those of their sources.
fn own_times(graph: &Csc) -> Option<&EdgeTimes> {
    graph.edge_times().filter(|_| graph.columns().get(EdgeColumns::TIMES).is_some())
}

fn whole(graph: &GraphAccess) -> Result<Relations> {
    match graph {
        GraphAccess::Plain(graph) => Ok(Relations::of_graph(graph.clone())),
        GraphAccess::Heterogeneous(graph) => Ok(Relations::clone(graph)),
        GraphAccess::SampledPlain { .. } | GraphAccess::SampledHeterogeneous { .. } => {
            let what = "the age of nodes and edges, which the model reads,";
            Err(ModelError::Mode(PredictModeError::NeedsWholeGraph { what }).into())
        }
    }
}

fn no_times(what: String) -> crate::Error {
    ModelError::Mode(PredictModeError::NoAges { what }).into()
}

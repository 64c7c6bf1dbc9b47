//! The graphs that `kiln predict` opens: whole or partitioned, with one type of nodes or several.

use kiln::data::Dataset;
use kiln::graph::GraphSchema;
use kiln::predictions::PredictedData;
use kiln::{GraphSource, JoinedGraph, PartitionedGraph, RankHandle};

/// The graph of the flags, before the ranks start.
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum OpenedGraph {
    Whole(PredictedGraph),
    /// With the schema, and the time before which edges pass messages.
    Partitioned(PartitionedGraph, GraphSchema, Option<String>),
}

/// A graph with what predictions need of its data: a dataset, or a partitioned graph that a rank has joined.
#[derive(Clone)]
pub(super) struct PredictedGraph {
    pub(super) source: GraphSource,
    pub(super) data: PredictedData,
}

impl OpenedGraph {
    pub(super) fn schema(&self) -> &GraphSchema {
        match self {
            Self::Whole(graph) => graph.source.schema(),
            Self::Partitioned(_, schema, _) => schema,
        }
    }

    /// Returns the graph if it is whole; a partitioned graph is known when a rank has joined it.
    pub(super) fn whole(&self) -> Option<&PredictedGraph> {
        match self {
            Self::Whole(graph) => Some(graph),
            Self::Partitioned(..) => None,
        }
    }

    /// Joins a rank to a partitioned graph; a whole graph is returned as it is. Collective: every rank must call it.
    pub(super) fn join(&self, rank: &RankHandle) -> kiln::Result<PredictedGraph> {
        match self {
            Self::Whole(graph) => Ok(graph.clone()),
            Self::Partitioned(graph, _, time) => {
                let graph = PredictedGraph::from(graph.join(rank)?);
                let source = time.as_ref().map_or(Ok(graph.source.clone()), |time| graph.source.at(time))?;
                Ok(PredictedGraph { source, ..graph })
            }
        }
    }

    /// Returns the identity of a request, which must be the same for all processes, as partitions must be.
    pub(super) fn identity(&self, request: String) -> String {
        match self {
            Self::Whole(_) => request,
            Self::Partitioned(graph, ..) => format!("{request} of {}", graph.info().hash),
        }
    }
}

impl From<Dataset> for PredictedGraph {
    fn from(data: Dataset) -> Self {
        Self { source: GraphSource::from(&data), data: PredictedData::from(&data) }
    }
}

impl From<JoinedGraph> for PredictedGraph {
    fn from(joined: JoinedGraph) -> Self {
        let targets = joined.targets().cloned();
        let source = GraphSource::from(joined);
        Self { data: PredictedData::from_partitions(source.schema().clone(), targets), source }
    }
}

//! The graphs that `kiln predict` opens: whole or partitioned, with one type of nodes or several.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Context;
use kiln::data::{Dataset, DatasetLinks, DatasetTargets, NodeNames, Split};
use kiln::feature::Labels;
use kiln::graph::{GraphSchema, NodeId, Relations};
use kiln::prelude::SavedModel;
use kiln::train::NamedTargets;
use kiln::{GraphSource, JoinedGraph, PartitionedGraph, PredictedEdges, RankHandle};

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
    /// `None` for data without targets.
    targets: Option<DatasetTargets>,
    /// `None` for data without links, and for partitions.
    pub(super) links: Option<DatasetLinks>,
    /// `None` for partitions.
    graph: Option<Arc<Relations>>,
    /// The names of the nodes of each type, `[n_types]`; empty for nodes without names, and no entries for partitions.
    names: Vec<Arc<NodeNames>>,
    /// The first new row of each node type; `None` for data without appended rows, and for partitions.
    first_new: Option<Vec<u32>>,
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

impl PredictedGraph {
    /// Returns the edges of a relation, with their targets if the data has some.
    pub(super) fn edges(&self, relation: usize) -> anyhow::Result<PredictedEdges> {
        let graph = self.graph.as_ref().context("partitions have no list of edges: use --data")?;
        Ok(PredictedEdges::new(graph, self.links.as_ref(), relation)?)
    }

    /// Returns the names of the nodes of a type; `None` for nodes without names, and for partitions.
    pub(super) fn names(&self, node_type: usize) -> Option<Arc<NodeNames>> {
        self.names.get(node_type).filter(|names| !names.is_empty()).cloned()
    }

    /// Returns the rows of a type that were appended to the data; `None` for data without appended rows, and for partitions.
    pub(super) fn new_rows(&self, node_type: usize) -> Option<Range<u32>> {
        let first = *self.first_new.as_ref()?.get(node_type)?;
        Some(first..self.source.schema().types().range(node_type).len() as u32)
    }

    /// Returns the targets of the data if they are those of a type.
    pub(super) fn targets_of(&self, node_type: usize) -> Option<&DatasetTargets> {
        self.targets.as_ref().filter(|targets| targets.node_type == node_type)
    }

    /// Returns the targets of the nodes of a type, in the numbering of the classes or columns of a model, and their split, numbered
    /// within the type; none if the targets of the data are those of another type.
    pub(super) fn targets(
        &self,
        model: &SavedModel,
        node_type: usize,
    ) -> kiln::train::Result<(NamedTargets<NodeId>, Split)> {
        let Some(targets) = self.targets_of(node_type) else {
            let targets = Labels::new(Vec::<i32>::new(), 0).into();
            return Ok((NamedTargets { targets, notes: Vec::new() }, Split::default()));
        };
        let first = self.source.schema().types().range(node_type).start;
        // Predictions reject a node of another type, which damaged partitions may have.
        let [train, val, test] = targets
            .split
            .parts()
            .map(|(_, nodes)| nodes.iter().map(|node| NodeId(node.0.wrapping_sub(first))).collect());
        let named = model.targets_by_name(&targets.values, &targets.class_names)?;
        Ok((named, Split { train, val, test }))
    }
}

impl From<Dataset> for PredictedGraph {
    fn from(data: Dataset) -> Self {
        let source = GraphSource::from(&data);
        Self {
            source,
            graph: Some(data.graph),
            targets: data.targets,
            links: data.links,
            names: data.names,
            first_new: data.first_new,
        }
    }
}

impl From<JoinedGraph> for PredictedGraph {
    fn from(joined: JoinedGraph) -> Self {
        let targets = joined.targets().cloned();
        Self { targets, source: joined.into(), links: None, graph: None, names: Vec::new(), first_new: None }
    }
}

//! The graphs that `kiln predict` opens: whole or partitioned, with one type of nodes or several.

use std::sync::Arc;

use anyhow::{Context, bail};
use kiln::data::{Dataset, NodeNames, Split, TypedLinks, TypedTargets};
use kiln::feature::{Labels, Targets};
use kiln::graph::{GraphSchema, NodeId};
use kiln::prelude::TypedDataset;
use kiln::train::{ModelError, ModelInputs, ModelTask};
use kiln::{GraphSource, JoinedGraph, PartitionedGraph, RankHandle};

use super::Job;
use crate::output::print_rank_zero;

/// The graph of the flags, before the ranks start.
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub(super) enum OpenedGraph {
    Whole(PredictedGraph),
    Partitioned(PartitionedGraph, GraphSchema),
}

/// A graph with what predictions need of its data: a dataset, or a partitioned graph that a rank has joined.
#[derive(Clone)]
pub(super) struct PredictedGraph {
    pub(super) source: GraphSource,
    /// `None` for data without targets.
    targets: Option<TypedTargets>,
    /// `None` for data without links, and for partitions.
    pub(super) links: Option<TypedLinks>,
    /// The names of the nodes of each type, `[n_types]`; empty for nodes without names, and no entries for partitions.
    names: Vec<Arc<NodeNames>>,
}

impl Job<'_> {
    /// Opens the graph of the flags and prints a summary.
    pub(super) fn open(&self) -> anyhow::Result<OpenedGraph> {
        let args = self.args;
        let inputs = &self.model.info().inputs;
        if args.parts.is_given() {
            return self.open_partitions(inputs);
        }
        if inputs.graph.is_some() {
            let (data, id) = args.data.load_typed()?;
            let data = if args.in_memory { data.in_memory() } else { data };
            print_rank_zero(&data);
            let mut graph = PredictedGraph::from(data);
            if let Some(hash) = id.hash.known() {
                graph.source = graph.source.with_hash(hash);
            }
            return Ok(OpenedGraph::Whole(graph));
        }
        // For links, loading reports heterogeneous data.
        if inputs.task == ModelTask::Nodes && args.data.is_typed()? {
            return Err(kiln::train::Error::from(ModelError::NotHeterogeneous).into());
        }
        let data = args.data.load(self.model.info().evaluation.seed)?;
        let data = if args.in_memory { data.in_memory() } else { data };
        print_rank_zero(&data);
        Ok(OpenedGraph::Whole(data.into()))
    }

    /// Opens the partitions of the flags, and checks that they suit the model and the ranks.
    fn open_partitions(&self, inputs: &ModelInputs) -> anyhow::Result<OpenedGraph> {
        let job = &self.args.job;
        let graph = self.args.parts.open(job.tls())?;
        let info = graph.info();
        let schema = match (&info.heterogeneous, &inputs.graph) {
            (Some(info), Some(_)) => info.schema.clone(),
            (None, Some(_)) => bail!(
                "the partitions are of a graph with one type of nodes, and the model is of a heterogeneous graph: use partitions of its \
                 training data"
            ),
            // For links, the ranks report it.
            (Some(_), None) if inputs.task == ModelTask::Nodes => bail!(
                "the partitions are of a heterogeneous graph, and the model is not: use partitions of its training data"
            ),
            (_, None) => GraphSchema::homogeneous(info.n_nodes, info.n_edges)?,
        };
        job.share_partitions(&graph, self.launch.as_ref())?;
        Ok(OpenedGraph::Partitioned(graph, schema))
    }

    /// Returns the position of the type of nodes that the model predicts.
    pub(super) fn node_type(&self, schema: &GraphSchema) -> anyhow::Result<usize> {
        let Some(info) = &self.model.info().inputs.graph else { return Ok(0) };
        let position = schema.types().position(&info.target_type);
        position.context("the data lacks the type of nodes that the model predicts")
    }

    /// Returns the position of the relation whose links the model predicts.
    pub(super) fn relation(&self, schema: &GraphSchema) -> anyhow::Result<usize> {
        let Some(info) = &self.model.info().inputs.graph else { return Ok(0) };
        let name = info.relation.as_deref().context("the model names no relation")?;
        schema.require(name).context("the partitions are of other data than the model's")
    }
}

impl OpenedGraph {
    pub(super) fn schema(&self) -> &GraphSchema {
        match self {
            Self::Whole(graph) => graph.source.schema(),
            Self::Partitioned(_, schema) => schema,
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
            Self::Partitioned(graph, _) => Ok(graph.join(rank)?.into()),
        }
    }

    /// Returns the identity of a request, which must be the same for all processes, as partitions must be.
    pub(super) fn identity(&self, request: String) -> String {
        match self {
            Self::Whole(_) => request,
            Self::Partitioned(graph, _) => format!("{request} of {}", graph.info().hash),
        }
    }
}

impl PredictedGraph {
    /// Returns the names of the nodes of a type; `None` for nodes without names, and for partitions.
    pub(super) fn names(&self, node_type: usize) -> Option<Arc<NodeNames>> {
        self.names.get(node_type).filter(|names| !names.is_empty()).cloned()
    }

    /// Returns the targets of the nodes of a type and their split, numbered within the type; none if the targets of the data are
    /// those of another type.
    pub(super) fn targets(&self, node_type: usize) -> (Targets<NodeId>, Split) {
        let Some(targets) = self.targets.clone().filter(|targets| targets.node_type == node_type) else {
            return (Labels::new(Vec::<i32>::new(), 0).into(), Split::default());
        };
        let first = self.source.schema().types().range(node_type).start;
        // Predictions reject a node of another type, which damaged partitions may have.
        let [train, val, test] = targets
            .split
            .parts()
            .map(|(_, nodes)| nodes.iter().map(|node| NodeId(node.0.wrapping_sub(first))).collect());
        (targets.values, Split { train, val, test })
    }
}

impl From<Dataset> for PredictedGraph {
    fn from(data: Dataset) -> Self {
        let targets = TypedTargets {
            node_type: 0,
            values: data.targets(),
            split: data.split.clone(),
            class_names: data.class_names.clone(),
        };
        let links = data.links.as_ref().map(|links| TypedLinks {
            relation: 0,
            reverse: None,
            targets: links.clone(),
        });
        Self { source: (&data).into(), targets: Some(targets), links, names: vec![data.names] }
    }
}

impl From<TypedDataset> for PredictedGraph {
    fn from(data: TypedDataset) -> Self {
        let source = GraphSource::from(&data);
        Self { source, targets: data.targets, links: data.links, names: data.names }
    }
}

impl From<JoinedGraph> for PredictedGraph {
    fn from(joined: JoinedGraph) -> Self {
        Self { targets: joined.targets(), source: joined.into(), links: None, names: Vec::new() }
    }
}

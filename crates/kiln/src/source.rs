//! The graphs that loaders read: datasets in this process, and partitioned graphs.

mod dataset;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use burn::tensor::Device;
use kiln_data::{
    Dataset, DatasetTargets, DatasetTimes, LinkTargets, NodeNames, Note, TaskTable, TimeError, TimeKind,
    TimeSplit,
};
use kiln_feature::{EdgeFeatureStore, FeatureColumn, FeatureStore, Preparation, RelationRows};
use kiln_graph::{
    Csc, EdgeColumns, GraphSchema, NodeId, Relations, SharedArray, add_self_loops_of_type, gcn_norm,
};
use kiln_kernels::GraphMode;
use kiln_loader::FeatureStores;
use kiln_nn::TimedParts;
use kiln_sample::{Fanout, FrontierSampler, HeteroNeighborSampler, SamplerConfig, TimeLimits};
use kiln_train::{DataHash, ModelTask, NodeKeys, PredictionData, SavedModel, SchemaInfo, SeedTimes};

use crate::device_copy::GraphCopies;
use crate::links::MessageGraph;
use crate::{Error, Result};

use dataset::PreparedDataset;

/// A graph with features and targets that a loader reads: a dataset in this process, with one type of nodes or several, or
/// a partitioned graph that this rank has joined ([`PartitionedGraph::join`](crate::PartitionedGraph::join)). Clones share
/// the arrays. It is a value and not a trait, because a loader replaces the source by another one when it adds self loops or
/// takes the message graph of a split.
///
/// ```
/// use kiln::prelude::*;
/// use kiln::GraphSource;
/// let data = kiln::data::synthetic::ring(100)?;
/// let source = GraphSource::from(&data);
/// let loader = NeighborLoader::new(&source, [10, 10]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct GraphSource {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) known_hash: Option<String>,
}

impl GraphSource {
    pub(crate) fn new(source: impl Source + 'static) -> Self {
        Self { source: Arc::new(source), known_hash: None }
    }

    /// Sets the hash of a dataset, if it is known: the hash of a folder in the kiln format (`kiln_data::format::hash`), which
    /// `kiln train` and partitions record, or that of a dataset ([`Dataset::hash`](kiln_data::Dataset::hash)). Training records it
    /// instead of reading all values, followed by the hash of links if it is on links, and predictions recognise the data of the
    /// training by it. A partitioned graph keeps the hash of its manifest.
    #[must_use]
    pub fn with_hash(self, hash: impl Into<String>) -> Self {
        Self { known_hash: Some(hash.into()), ..self }
    }

    /// Returns the graph as it was known at a time: without the edges that are not before it, and those from nodes that are not
    /// ([`Dataset::graph_before`](kiln_data::Dataset::graph_before)). Predictions on it read nothing later. `time` is an integer, or
    /// a date such as `2026-06-01` in data whose times are dates.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// use kiln::GraphSource;
    /// # fn example(model: SavedModel, data: Dataset) -> Result<()> {
    /// let known = GraphSource::from(&data).at("2026-06-01")?;
    /// let scores = model.on_nodes(&known)?.predict(&[NodeId(7)], &PredictMode::default())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`TimeError::NoTime`](kiln_data::TimeError::NoTime) for another text, and
    /// [`TimeError::NoTimes`](kiln_data::TimeError::NoTimes) for data without times.
    pub fn at(&self, time: &str) -> Result<Self> {
        let source =
            self.source.before(self.source.time_kind().parse(time).map_err(kiln_data::Error::from)?)?;
        Ok(Self { source, known_hash: self.known_hash.clone() })
    }

    /// Returns the types of nodes and the relations with times of their own, whose ages a model may read.
    pub fn timed_parts(&self) -> TimedParts {
        self.source.timed_parts()
    }

    /// Returns the meaning of the times of the data.
    pub fn time_kind(&self) -> TimeKind {
        self.source.time_kind()
    }

    /// Returns the name of the data.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// Returns the node types and relations. A graph of one type has one of each, named `node` and `edge`.
    pub fn schema(&self) -> &GraphSchema {
        self.source.schema()
    }

    /// Returns true if the graph has several types of nodes or relations with names. A model reads such a graph through a
    /// [`HeteroModel`](kiln_nn::HeteroModel).
    pub fn is_heterogeneous(&self) -> bool {
        self.source.is_heterogeneous()
    }
}

impl From<&Self> for GraphSource {
    fn from(source: &Self) -> Self {
        source.clone()
    }
}

impl From<&Arc<Dataset>> for GraphSource {
    fn from(data: &Arc<Dataset>) -> Self {
        (&**data).into()
    }
}

impl From<&Dataset> for GraphSource {
    fn from(data: &Dataset) -> Self {
        Self::new(PreparedDataset::new(data.clone()))
    }
}

impl fmt::Debug for GraphSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphSource").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// The step by which a loader prepares the graph for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GraphStep {
    /// The graph is that of the dataset.
    None,
    /// [`gcn_norm`].
    GcnNorm,
    /// [`add_self_loops`].
    SelfLoops,
}

impl GraphStep {
    /// Returns the graph with this step. Added self loops have the type after the `n_edge_types` of the data, of which the graph may
    /// lack some.
    pub(crate) fn apply(self, graph: &Arc<Csc>, n_edge_types: Option<usize>) -> Result<Arc<Csc>> {
        Ok(match self {
            Self::None => Arc::clone(graph),
            Self::GcnNorm => Arc::new(gcn_norm(graph)?),
            Self::SelfLoops => Arc::new(add_self_loops_of_type(graph, n_edge_types.unwrap_or(0))?),
        })
    }
}

/// A graph that is in this process as a whole.
pub(crate) enum WholeGraph<'a> {
    /// The graph of one type of nodes, after the loader's [`GraphStep`].
    One(&'a Arc<Csc>),
    /// The relations of a heterogeneous graph.
    Relations(&'a Arc<Relations>),
}

/// What a sampler picks.
#[derive(Clone)]
pub(crate) struct Sampling {
    /// The fanout of each relation in each layer, `[n_layers][n_relations]`, input layer first.
    pub(crate) fanouts: Vec<Vec<Fanout>>,
    /// The rule, the edge weights and types, and the fanout of the first relation in each layer.
    pub(crate) config: SamplerConfig,
    /// The relations from which a batch's excluded edges are left out; `None` for all.
    pub(crate) excluded_from: Option<Vec<usize>>,
}

impl Sampling {
    /// Returns a sampler that leaves out the excluded edges of a batch from the relations of this sampling only.
    pub(crate) fn excluding(&self, sampler: HeteroNeighborSampler) -> HeteroNeighborSampler {
        match &self.excluded_from {
            Some(relations) => sampler.excluding_from(relations),
            None => sampler,
        }
    }
}

/// The function from a node to the rank that trains on it.
pub(crate) type Owner = dyn Fn(NodeId) -> usize + Send + Sync;

/// The access of a loader to a graph, with one implementation for each kind of source. Loaders ask whether the graph is
/// heterogeneous, and whether it is in this process as a whole, and never which source it is.
pub(crate) trait Source: Send + Sync {
    fn name(&self) -> &str;

    fn schema(&self) -> &GraphSchema;

    fn is_heterogeneous(&self) -> bool;

    /// Returns the targets of the nodes of one type, and their split.
    ///
    /// # Errors
    /// Returns an error that says what to do if the data has none.
    fn targets(&self) -> Result<DatasetTargets>;

    /// Returns the task table of a name.
    ///
    /// # Errors
    /// Returns [`Error::NeedsWholeGraph`] for a partitioned graph, and
    /// [`TaskTableError::NoSuchTable`](kiln_data::TaskTableError::NoSuchTable) if there is none.
    fn task_table(&self, _name: &str) -> Result<TaskTable> {
        Err(Error::NeedsWholeGraph { what: "a task table" })
    }

    /// Returns the notes that the reader of the data made.
    fn notes(&self) -> &[Note] {
        &[]
    }

    /// Returns the features of each node type, `[n_types]`; `None` for a type without features.
    fn features(&self) -> Vec<Option<Arc<dyn FeatureStore>>>;

    /// Returns what the feature columns of each node type mean, `[n_types]`; empty for a type whose columns have no names.
    fn feature_columns(&self) -> Vec<Vec<FeatureColumn>>;

    /// Returns the names of the columns of the edges of each relation of the data, among them weights and types.
    fn edge_columns(&self) -> Vec<Vec<String>>;

    /// Returns the names of the edge types of a graph of one type of nodes; empty if they have no names.
    fn edge_type_names(&self) -> Vec<String>;

    /// Returns which relations have weights.
    fn weighted_relations(&self) -> Vec<bool> {
        let mut are_weighted = Vec::new();
        for columns in self.edge_columns() {
            are_weighted.push(columns.iter().any(|name| name == EdgeColumns::WEIGHTS));
        }
        are_weighted
    }

    /// Returns the rows of the edges in a column, in the order of their ids, in this form.
    ///
    /// # Errors
    /// Returns an error that says what to do if the edges do not have the column.
    fn edge_column(&self, name: &str, rows: RelationRows) -> Result<Arc<dyn EdgeFeatureStore>>;

    /// Returns one more than the largest edge type, or `None` if edges have no types.
    ///
    /// # Errors
    /// Returns [`PartitionsError::UnrecordedEdgeTypes`](crate::PartitionsError::UnrecordedEdgeTypes) if it is unknown.
    fn n_edge_types(&self) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Returns the names of the nodes of each type, `[n_types]`; none for a partitioned graph.
    fn names_of_nodes(&self) -> &[Arc<NodeNames>] {
        &[]
    }

    /// Returns the keys of the nodes of each type without features, `[n_types]`; `None` for a type with features, or whose
    /// nodes have no names.
    fn node_keys(&self) -> Arc<[Option<NodeKeys>]> {
        vec![None; self.schema().types().n_types()].into()
    }

    /// Returns the steps by which the graph and the features were prepared; `None` if they are unknown.
    fn preparation(&self) -> Option<Preparation>;

    /// Returns the step by which the loader prepares the graph.
    fn graph_step(&self) -> GraphStep {
        GraphStep::None
    }

    /// Returns the hash of all data, together with that of links if there are any.
    fn data_hash(&self, links: Option<LinkTargets>) -> DataHash;

    /// Returns a hash of the sizes and of a sample of the values, or the hash of all values if that is known.
    ///
    /// # Errors
    /// Returns an error if the data cannot be read.
    fn data_sample(&self) -> Result<String>;

    /// Returns the data for predictions of a model. `known_hash` is the hash of the data, if the program knows it.
    ///
    /// # Errors
    /// Returns an error if the model's trained rows or its preparation cannot be found for this data.
    fn prediction_data(&self, model: &SavedModel, known_hash: Option<&str>) -> Result<PredictionData>;

    /// Checks, for a model whose predictor was created, what only this kind of source knows.
    ///
    /// # Errors
    /// Returns an error that says what the data lacks.
    fn check_predicted(&self, _model: &SavedModel) -> Result<()> {
        Ok(())
    }

    /// Returns the graph if it is in this process as a whole.
    fn whole(&self) -> Option<WholeGraph<'_>>;

    /// Returns the graph with the step of a model.
    ///
    /// # Errors
    /// Returns an error that says why the graph has no such step, and the errors of the step.
    fn with_step(&self, step: GraphStep) -> Result<Arc<dyn Source>>;

    /// Returns the source with the graph that passes the messages of links, and the same step.
    ///
    /// # Errors
    /// Returns an error if the graph does not belong to this source.
    fn with_messages(&self, messages: &MessageGraph) -> Result<Arc<dyn Source>>;

    /// Returns the split by time of the nodes or links, which limits the messages of each phase; `None` for another split.
    fn time_split(&self) -> Option<TimeSplit>;

    /// Returns the source with the edges that were known before a time, and the same step.
    ///
    /// # Errors
    /// Returns [`TimeError::NoTimes`] for data without times, and the errors of
    /// [`Dataset::graph_before`](kiln_data::Dataset::graph_before) and of the step.
    fn before(&self, time: i64) -> Result<Arc<dyn Source>>;

    /// Returns the source with all edges, ordered by time, for items that are sampled at their own times, and the same step.
    ///
    /// # Errors
    /// Returns an error if the edges are damaged, or were cut at a time.
    fn order_by_time(&self) -> Result<Arc<dyn Source>>;

    /// Returns the source with the edges that items of one time know, and the same step. `windows` are those of the relations that
    /// have their own.
    ///
    /// # Errors
    /// Returns the errors of [`Source::order_by_time`].
    fn known_at(
        &self,
        _limits: TimeLimits,
        _windows: &BTreeMap<String, Option<u64>>,
        _time: i64,
    ) -> Result<Arc<dyn Source>> {
        Err(Error::NeedsWholeGraph { what: "exact evaluation at the times of items" })
    }

    /// Returns the times of the nodes of a type; `None` if they have none.
    fn node_times(&self, node_type: usize) -> Option<SharedArray<i64>>;

    /// Returns the types of nodes and the relations with times of their own.
    fn timed_parts(&self) -> TimedParts {
        let n_types = self.schema().types().n_types();
        let mut relations = Vec::new();
        for columns in self.edge_columns() {
            relations.push(columns.iter().any(|name| name == EdgeColumns::TIMES));
        }
        let node_types = (0..n_types).map(|node_type| self.node_times(node_type).is_some()).collect();
        TimedParts { node_types, relations }
    }

    /// Returns the length of time between the first and the last time of the nodes and edges; `None` if there are none, or if the
    /// graph is partitioned.
    fn time_span(&self) -> Option<u64> {
        None
    }

    /// Returns whether each node was known before a time, by node; `None` if no node has a time.
    fn nodes_before(&self, time: i64) -> Option<Arc<[bool]>>;

    /// Returns the meaning of the times of the data.
    fn time_kind(&self) -> TimeKind;

    /// Returns a sampler on the host.
    ///
    /// # Errors
    /// Returns an error if the graph lacks what the sampling needs.
    fn sampler(&self, sampling: &Sampling) -> Result<Arc<dyn FrontierSampler>>;

    /// Returns a sampler whose relations are sampled on a device, and whose blocks are on the host. `None` for a graph of one type
    /// in this process, whose blocks and features stay on the device.
    ///
    /// # Errors
    /// Returns [`PartitionsError::NotLocal`](crate::PartitionsError::NotLocal) for a graph that servers hold, and the errors of the copies to the device.
    fn device_sampler(
        &self,
        _sampling: &Sampling,
        _copies: &GraphCopies,
        _mode: GraphMode,
        _device: &Device,
    ) -> Result<Option<Arc<dyn FrontierSampler>>> {
        Ok(None)
    }

    /// Returns the owners of the nodes, whose ranks train on them; `None` if the ranks have equal shares.
    fn owner(&self) -> Option<Arc<Owner>> {
        None
    }
}

/// Returns the number of feature columns of each node type; `None` for a type without features.
pub(crate) fn dims(source: &dyn Source) -> Vec<Option<usize>> {
    source.features().iter().map(|store| store.as_ref().map(|store| store.dim())).collect()
}

/// Returns the features of all types, which batches gather.
pub(crate) fn feature_stores(source: &dyn Source) -> FeatureStores {
    let mut stores = source.features();
    match (source.is_heterogeneous(), stores.pop()) {
        (false, Some(Some(only))) if stores.is_empty() => only.into(),
        (_, last) => {
            stores.extend(last);
            FeatureStores::new(source.schema().types().clone(), stores)
        }
    }
}

/// Returns true if a step added a self loop to each node that had none.
pub(crate) fn has_self_loops(source: &dyn Source) -> bool {
    let is_prepared = source.preparation().is_some_and(|preparation| preparation.adds_self_loops());
    source.graph_step() != GraphStep::None || is_prepared
}

/// Returns the times of the items of a model whose items are sampled at their own times: that at which the graph was cut, or
/// those of the nodes of the type that had targets; `None` if these have none.
pub(crate) fn seed_times(
    times: &DatasetTimes,
    schema: &GraphSchema,
    cut: Option<i64>,
    model: &SavedModel,
) -> Option<SeedTimes> {
    if let Some(time) = cut {
        return Some(SeedTimes::At(time));
    }
    // Those of links and edges are given with a request, and the times of nodes are not those of the rows of a task table.
    if model.info().inputs.task != ModelTask::Nodes || model.info().inputs.task_table().is_some() {
        return None;
    }
    let of_model = model.info().inputs.graph.as_ref();
    let node_type = of_model.and_then(SchemaInfo::target_position).unwrap_or(0);
    let times = times.node_times(node_type)?.clone();
    let first = NodeId(schema.types().range(node_type).start);
    Some(SeedTimes::OfNodes { first, times })
}

/// Returns the error of data without times.
pub(crate) fn no_times(name: &str) -> Error {
    let items = format!("the edges and the nodes of `{name}`");
    kiln_data::Error::from(TimeError::NoTimes { items }).into()
}

/// Returns the error of a step that a heterogeneous graph does not have.
pub(crate) fn no_step(step: GraphStep) -> Error {
    let (what, reason) = match step {
        GraphStep::GcnNorm => ("gcn_norm", "a heterogeneous graph has no degree over all relations"),
        GraphStep::None | GraphStep::SelfLoops => {
            ("add_self_loops", "a loop is an edge of no relation between two types")
        }
    };
    Error::NeedsOneType { what, reason }
}

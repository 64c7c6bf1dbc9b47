//! The graph and the features of predictions, and the checks that they suit a model.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_feature::{
    EdgeColumnStores, EdgeFeatureStore, EdgeFeatures, FeatureColumn, FeatureStore, Preparation, RelationRows,
};
use kiln_graph::{Csc, EdgeColumns, EdgeTimes, GraphSchema, NodeId, Relations, SharedArray};
use kiln_loader::{Ages, FeatureStores};
use kiln_sample::{Fanout, FrontierSampler, SamplerConfig};

use crate::error::{Error, InputError, Result};
use crate::saved::error::{ModelEdgesError, ModelError, ModelNodesError, PredictModeError, PreparationError};
use crate::saved::graph_access::GraphAccess;
use crate::saved::info::StoredEdgeWeights;
use crate::saved::model::SavedModel;
use crate::saved::model_file::ModelTask;
use crate::saved::prediction_ages::ages_of;
use crate::saved::preparation::{check_sampled_graph, left_steps_of, prepared_graph};
use crate::saved::schema_info::SchemaInfo;
use crate::saved::trained_rows::TrainedRowIds;
use crate::step::embedding::node_keys::NodeKeys;

/// The first format of `model.json` that states which relations had weights.
const FORMAT_WITH_WEIGHTS: u64 = 5;

/// The name of the only type of nodes of a graph that is not heterogeneous.
const ONLY_TYPE: &str = "node";

/// The graph on which a saved model predicts, with its features: of one type of nodes or heterogeneous, in this process as a
/// whole or only sampled. [`NodePredictor::new`](crate::NodePredictor::new) and
/// [`LinkPredictor::new`](crate::LinkPredictor::new) take it, and check that it suits the model.
///
/// A graph of one type and its features are as they were loaded: the steps of the model's [`Preparation`] are applied to them,
/// except those that [`PredictionData::prepared`] names. Heterogeneous data has no such steps.
///
/// ```
/// use std::sync::Arc;
/// use kiln_feature::DenseFeatures;
/// use kiln_graph::{CscBuilder, NodeTypes, RelationEdges, Relations};
/// use kiln_train::{NodeKeys, PredictionData};
/// // Two papers, of which the first cites the second.
/// let graph = Arc::new(CscBuilder::new(2).build(&[0], &[1])?);
/// let features = Arc::new(DenseFeatures::from_f32(vec![0.5, 1.5], 1)?);
/// let papers = PredictionData::new(graph, features.clone());
/// // A user who buys an item; items have features, and a user is found by its name.
/// let buys =
///     RelationEdges::new("buys", "user", "item", &[0], &[1]);
/// let shop = Relations::from_edges(NodeTypes::new([("user", 1), ("item", 2)])?, &[buys])?;
/// let shop = PredictionData::heterogeneous(Arc::new(shop), vec![None, Some(features)])
///     .keys(vec![Some(NodeKeys::of_names(1, |_| "ann")), None]);
/// # let _ = (papers, shop);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PredictionData {
    graph: GraphAccess,
    /// The features of each type of nodes; `None` for a type without features.
    features: Vec<Option<Arc<dyn FeatureStore>>>,
    /// The columns of the edges, by name.
    edge_columns: EdgeColumnStores,
    /// The keys of the names of the nodes of each type.
    keys: Vec<Option<NodeKeys>>,
    /// What the feature columns of each type mean; empty for a type whose columns have no names.
    feature_columns: Vec<Vec<FeatureColumn>>,
    /// Which relations of a graph that is only sampled have weights; empty if it is unknown.
    weighted: Vec<bool>,
    /// The names of the edge types of a graph of one type of nodes; empty if they have no names.
    edge_type_names: Vec<String>,
    /// The number of edge types of the data, if the graph may lack some.
    n_edge_types: Option<usize>,
    /// Whether each node is known; `None` if all are.
    known_nodes: Option<Arc<[bool]>>,
    /// The times of the items, for a model that was trained with times; `None` if they have none.
    seed_times: Option<SeedTimes>,
    /// The times of the nodes of each type, `[n_types]`; empty if none has times.
    node_times: Vec<Option<SharedArray<i64>>>,
    /// The steps of the preparation that the data went through; `None` for data as it was loaded.
    done: Option<Preparation>,
}

/// The times at which the items of predictions are sampled, by a model that was trained with times.
#[derive(Debug, Clone)]
pub enum SeedTimes {
    /// One time for all items.
    At(i64),
    /// The time of each node of a type, `[n_nodes_of_type]`, whose first node has the id `first` in the graph.
    OfNodes {
        /// The first node.
        first: NodeId,
        /// The times.
        times: SharedArray<i64>,
    },
    /// The time of each item of a request, in the order of the request ([`NodePredictor::with_item_times`](crate::NodePredictor::with_item_times)).
    OfItems(Arc<[i64]>),
}

impl SeedTimes {
    /// Returns the time of each of some nodes, which have ids of the graph and these positions in the request.
    ///
    /// # Errors
    /// Returns [`PredictModeError::NoItemTimes`] if a node has none.
    pub(crate) fn of(&self, nodes: &[NodeId], positions: Range<usize>) -> Result<Vec<i64>> {
        let (first, times) = match self {
            Self::At(time) => return Ok(vec![*time; nodes.len()]),
            Self::OfNodes { first, times } => (first, times),
            Self::OfItems(times) => {
                let of_items = times.get(positions).map(<[i64]>::to_vec);
                let of_items = of_items.filter(|times| !times.contains(&EdgeTimes::NEVER));
                return Ok(of_items.ok_or(ModelError::Mode(PredictModeError::NoItemTimes))?);
            }
        };
        let mut of_nodes = Vec::with_capacity(nodes.len());
        for node in nodes {
            let time = times.get(node.0.wrapping_sub(first.0) as usize);
            let time = time.filter(|time| **time != EdgeTimes::NEVER);
            of_nodes.push(*time.ok_or(ModelError::Mode(PredictModeError::NoItemTimes))?);
        }
        Ok(of_nodes)
    }
}

/// Data that suits a model, with the model's preparation.
#[derive(Clone)]
pub(crate) struct PreparedData {
    /// The graph, normalised if the model needs it.
    pub(crate) graph: GraphAccess,
    pub(crate) features: FeatureStores,
    /// The columns of the edges that the model reads, without those that are missing.
    pub(crate) edge_columns: EdgeColumnStores,
    /// Whether each node is known; `None` if all are.
    pub(crate) known_nodes: Option<Arc<[bool]>>,
    /// The times of the items; `None` for a model without times, and before a request for links gives them.
    pub(crate) seed_times: Option<SeedTimes>,
    /// The ages that the model reads; `None` if it reads none.
    pub(crate) ages: Option<Ages>,
    /// The trained row of each node, for each type without features.
    pub(crate) rows: Arc<[TrainedRowIds]>,
}

impl PredictionData {
    /// Wraps a graph of one type of nodes. `features` has at least one row per node.
    pub fn new(graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> Self {
        Self::on(GraphAccess::Plain(graph), vec![Some(features)])
    }

    /// Wraps a heterogeneous graph. The features of type `t`, `features[t]`, have at least one row per node of the type; `None`
    /// for a type without features, whose nodes have the trained rows of the model.
    pub fn heterogeneous(graph: Arc<Relations>, features: Vec<Option<Arc<dyn FeatureStore>>>) -> Self {
        Self::on(GraphAccess::Heterogeneous(graph), features)
    }

    /// Wraps a graph of one type of nodes that is only sampled, such as a partitioned graph. `sampler` creates its samplers,
    /// from the fanouts of each relation in each layer, `[n_layers][1]`, because there is one relation, and a configuration
    /// without fanouts.
    ///
    /// [`PredictMode::Exact`](crate::PredictMode::Exact) is not possible, and the edge types are not compared with the model's
    /// relations: [`SavedModel::check_edge_types`] does.
    pub fn sampled(
        n_nodes: usize,
        features: Arc<dyn FeatureStore>,
        sampler: impl Fn(Vec<Vec<Fanout>>, SamplerConfig) -> Result<Arc<dyn FrontierSampler>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let graph = GraphAccess::SampledPlain { n_nodes, sampler: Arc::new(sampler) };
        Self::on(graph, vec![Some(features)])
    }

    /// Wraps a heterogeneous graph that is only sampled, as [`PredictionData::heterogeneous`] does. `schema` are its types and
    /// relations. `sampler` creates its samplers, from the fanouts of each relation in each layer, `[n_layers][n_relations]`,
    /// and a configuration without fanouts.
    pub fn sampled_heterogeneous(
        schema: GraphSchema,
        features: Vec<Option<Arc<dyn FeatureStore>>>,
        sampler: impl Fn(Vec<Vec<Fanout>>, SamplerConfig) -> Result<Arc<dyn FrontierSampler>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self::on(GraphAccess::SampledHeterogeneous { schema, sampler: Arc::new(sampler) }, features)
    }

    fn on(graph: GraphAccess, features: Vec<Option<Arc<dyn FeatureStore>>>) -> Self {
        let n_types = features.len();
        Self {
            graph,
            features,
            edge_columns: EdgeColumnStores::default(),
            keys: vec![None; n_types],
            feature_columns: vec![Vec::new(); n_types],
            weighted: Vec::new(),
            edge_type_names: Vec::new(),
            n_edge_types: None,
            known_nodes: None,
            seed_times: None,
            node_times: Vec::new(),
            done: None,
        }
    }

    /// Sets what the feature columns of each type mean, `[n_types]`; empty for a type whose columns have no names, which are
    /// compared by their number only. Columns in another order than those of the training data are reordered.
    #[must_use]
    pub fn feature_columns(self, feature_columns: Vec<Vec<FeatureColumn>>) -> Self {
        Self { feature_columns, ..self }
    }

    /// Sets which relations of a graph that is only sampled have weights, by their positions.
    #[must_use]
    pub fn weighted_relations(self, weighted: Vec<bool>) -> Self {
        Self { weighted, ..self }
    }

    /// Sets the steps of the preparation that the data went through already, such as those of the training data. Only the other
    /// steps of the model's preparation are applied. If the model's preparation is unknown, no step is applied; without this
    /// call, it is then an error.
    #[must_use]
    pub fn prepared(self, done: Preparation) -> Self {
        Self { done: Some(done), ..self }
    }

    /// Sets the keys of the names of the nodes of each type, `[n_types]`, which are read only for types without features. `None`
    /// for a type whose nodes have no names, or if the graph is that of the training data, of which the model has no names: row
    /// `v` is then that of node `v`. The default is `None` for all types.
    #[must_use]
    pub fn keys(self, keys: Vec<Option<NodeKeys>>) -> Self {
        Self { keys, ..self }
    }

    /// Adds a column of the edges of the graph, such as their features, in the order of their ids, for a model that reads it.
    /// Other models ignore it.
    ///
    /// The number of edges of a graph that is only sampled is unknown; an edge without a row is then an error of the batch that
    /// samples it.
    #[must_use]
    pub fn edge_column(
        mut self,
        name: impl Into<Arc<str>>,
        rows: impl Into<Arc<dyn EdgeFeatureStore>>,
    ) -> Self {
        self.edge_columns.set(name, rows);
        self
    }

    /// Sets the names of the edge types of a graph of one type of nodes, which are compared with those of the training data.
    #[must_use]
    pub fn edge_type_names(self, edge_type_names: Vec<String>) -> Self {
        Self { edge_type_names, ..self }
    }

    /// Sets the number of edge types of the data of a graph of one type of nodes, if the graph lacks some of its edges and so may lack
    /// types: self loops that are added for the model have the next type. By default, the number is that of the graph.
    #[must_use]
    pub fn n_edge_types(self, n_edge_types: Option<usize>) -> Self {
        Self { n_edge_types, ..self }
    }

    /// Sets which nodes are known, by their ids in the graph, such as those that existed at a time: others are no destinations of
    /// [`LinkPredictor::top_k`](crate::LinkPredictor::top_k). `None` is all nodes, the default.
    #[must_use]
    pub fn known_nodes(self, are_known: Option<Arc<[bool]>>) -> Self {
        Self { known_nodes: are_known, ..self }
    }

    /// Sets the times of the items, for a model that was trained with times. The edges of the graph are then ordered by time
    /// ([`Csc::with_edge_times`]). A model without times does not read them.
    #[must_use]
    pub fn seed_times(self, seed_times: Option<SeedTimes>) -> Self {
        Self { seed_times, ..self }
    }

    /// Sets the times of the nodes of each type, `[n_types]`, for a model that reads the ages of nodes; `None` for a type without
    /// times. Other models do not read them.
    #[must_use]
    pub fn node_times(self, node_times: Vec<Option<SharedArray<i64>>>) -> Self {
        Self { node_times, ..self }
    }

    /// Returns true for a heterogeneous graph.
    pub(crate) fn is_heterogeneous(&self) -> bool {
        self.graph.schema().is_some()
    }

    /// Checks that the preparation of the model is known, and that it is for a graph of this kind.
    pub(crate) fn check_model(&self, model: &SavedModel) -> Result<()> {
        let inputs = &model.info().inputs;
        if !self.is_heterogeneous() && self.done.is_none() && inputs.preparation.is_none() {
            return Err(ModelError::Preparation(PreparationError::UnknownPreparation).into());
        }
        match (inputs.graph.is_some(), self.is_heterogeneous()) {
            (true, false) => Err(ModelError::Heterogeneous.into()),
            (false, true) => Err(ModelError::NotHeterogeneous.into()),
            _ => Ok(()),
        }
    }

    /// Checks that the data suits a model of a graph of its kind, and applies the steps of the model's preparation that are left.
    pub(crate) fn prepare(self, model: &SavedModel) -> Result<PreparedData> {
        let n_types = self.graph.schema().map_or(1, |schema| schema.types().n_types());
        for (what, got) in [
            ("feature stores", self.features.len()),
            ("lists of keys", self.keys.len()),
            ("lists of feature columns", self.feature_columns.len()),
        ] {
            if got != n_types {
                return Err(ModelError::Nodes(ModelNodesError::NumberOfTypes {
                    what,
                    got,
                    expected: n_types,
                })
                .into());
            }
        }
        let mut data = self.with_columns_of(model)?;
        let has_item_times = model.info().inputs.has_item_times();
        data.seed_times = data.seed_times.filter(|_| has_item_times);
        // Those of links are given with a request.
        let is_of_nodes = model.info().inputs.task == ModelTask::Nodes;
        if has_item_times && is_of_nodes && data.seed_times.is_none() {
            let error = match model.info().inputs.task_table() {
                Some(table) => PredictModeError::NoTimeOfRows { table: table.to_owned() },
                None => PredictModeError::NoItemTimes,
            };
            return Err(ModelError::Mode(error).into());
        }
        match data.graph.schema().cloned() {
            None => data.prepare_plain(model),
            Some(schema) => data.prepare_heterogeneous(model, &schema),
        }
    }

    /// Returns the data with its feature columns in the order of the training data, after a check that they mean the same.
    fn with_columns_of(mut self, model: &SavedModel) -> Result<Self> {
        let schema = self.graph.schema().cloned();
        for (position, features) in self.features.iter_mut().enumerate() {
            let name = schema.as_ref().map_or(ONLY_TYPE, |schema| &schema.types().names()[position]);
            let of_data = &self.feature_columns[position];
            if let Some(store) = features {
                *store = model.reorder_columns(name, store, of_data)?;
            }
        }
        Ok(self)
    }

    fn prepare_plain(self, model: &SavedModel) -> Result<PreparedData> {
        let features = self.features[0].clone().expect("a graph of one type of nodes should have features");
        model.check_features(&*features, self.graph.n_nodes())?;
        self.check_edges(model)?;
        let left = left_steps_of(model.info(), self.done.as_ref().unwrap_or(&Preparation::default()))?;
        let graph = match &self.graph {
            GraphAccess::Plain(graph) => {
                let has_times = model.info().inputs.has_item_times();
                if left.symmetrizes() && has_times {
                    return Err(ModelError::Mode(PredictModeError::LosesTimes).into());
                }
                let reads_features = model.sampling().edge_features.is_some();
                if left.adds_self_loops() && reads_features && has_times {
                    return Err(ModelError::Mode(PredictModeError::LoopsOfLaterEdges).into());
                }
                let graph = prepared_graph(model.info(), &left, graph.clone(), self.n_edge_types)?;
                model.check_edge_types(|| graph.n_edge_types())?;
                GraphAccess::Plain(graph)
            }
            graph => {
                check_sampled_graph(model.info(), &left)?;
                graph.clone()
            }
        };
        let features = left.features(features)?.into();
        let edge_columns = self.edge_columns_of(model, &graph)?;
        let ages = self.ages_of(model, &graph)?;
        let known_nodes = self.known_nodes;
        let seed_times = self.seed_times;
        let rows = Arc::default();
        Ok(PreparedData { graph, features, edge_columns, known_nodes, seed_times, ages, rows })
    }

    fn prepare_heterogeneous(self, model: &SavedModel, schema: &GraphSchema) -> Result<PreparedData> {
        self.check_schema(model, schema)?;
        let types = schema.types();
        for (node_type, features) in self.features.iter().enumerate() {
            let n_nodes = types.range(node_type).len();
            if let Some(n_rows) = features.as_ref().map(|store| store.n_rows()).filter(|rows| *rows < n_nodes)
            {
                return Err(ModelError::Nodes(ModelNodesError::TooFewRows { n_rows, n_nodes }).into());
            }
        }
        let without_features = (0..types.n_types()).filter(|&node_type| self.features[node_type].is_none());
        let mut rows = Vec::new();
        for (node_type, table) in without_features.zip(&model.encoder()?.tables) {
            let keys = self.keys[node_type].as_ref();
            let n_nodes = types.range(node_type).len();
            rows.push(TrainedRowIds::find(table, keys, n_nodes, &types.names()[node_type])?);
        }
        if let Some(done) = &self.done {
            left_steps_of(model.info(), done)?;
        }
        let edge_columns = self.edge_columns_of(model, &self.graph)?;
        let ages = self.ages_of(model, &self.graph)?;
        let features = FeatureStores::new(Arc::clone(types), self.features);
        let known_nodes = self.known_nodes;
        let seed_times = self.seed_times;
        let rows = rows.into();
        let graph = self.graph;
        Ok(PreparedData { graph, features, edge_columns, known_nodes, seed_times, ages, rows })
    }

    /// Returns the ages that a model reads, of a graph with its preparation; `None` if it reads none.
    fn ages_of(&self, model: &SavedModel, prepared: &GraphAccess) -> Result<Option<Ages>> {
        let Some(info) = &model.sampling().ages else { return Ok(None) };
        let reads_edges = model.encoder()?.network.input_format().edge_ages;
        ages_of(info, reads_edges, &self.graph, prepared, &self.node_times).map(Some)
    }

    /// Checks that the edges of a graph of one type have the weights and the names of types of the training data.
    fn check_edges(&self, model: &SavedModel) -> Result<()> {
        let sampling = model.sampling();
        let named = sampling.edge_type_names.iter().zip(&self.edge_type_names);
        if let Some((number, (expected, got))) =
            named.enumerate().find(|(_, (expected, got))| expected != got)
        {
            let expected = expected.clone();
            let got = got.clone();
            return Err(ModelError::Edges(ModelEdgesError::EdgeTypeName { number, expected, got }).into());
        }
        let is_weighted = match &self.graph {
            GraphAccess::Plain(graph) => Some(graph.weights().is_some()),
            _ => self.weighted.first().copied(),
        };
        match (sampling.is_weighted, is_weighted) {
            (Some(in_training), Some(is_weighted)) if in_training != is_weighted => {
                let relation = "edge".to_owned();
                Err(ModelError::Edges(ModelEdgesError::RelationWeights { relation, is_weighted }).into())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the graph and the features have the types, the columns and the relations of a model.
    fn check_schema(&self, model: &SavedModel, schema: &GraphSchema) -> Result<()> {
        let of_model = model.schema_info().ok_or(ModelError::NotHeterogeneous)?;
        let widths: Vec<_> =
            self.features.iter().map(|store| store.as_ref().map(|store| store.dim())).collect();
        let of_data = SchemaInfo::new(schema, &widths, 0, &[]);
        if !of_model.has_schema_of(&of_data) {
            return Err(ModelError::OtherSchema { expected: of_model.schema(), got: of_data.schema() }.into());
        }
        match model.sampling().edge_weights {
            StoredEdgeWeights::None => Ok(()),
            // Earlier formats do not say which relations had weights.
            _ if model.info().format < FORMAT_WITH_WEIGHTS => Ok(()),
            StoredEdgeWeights::Stored | StoredEdgeWeights::Unbiased => self.check_weights(of_model),
        }
    }

    /// Checks that the relations have weights that had weights in training. In a relation without, each edge counts with 1.
    fn check_weights(&self, of_model: &SchemaInfo) -> Result<()> {
        let are_weighted = match &self.graph {
            GraphAccess::Heterogeneous(graph) => {
                graph.iter().map(|relation| relation.graph.weights().is_some()).collect()
            }
            _ => self.weighted.clone(),
        };
        for (relation, is_weighted) in of_model.relations.iter().zip(are_weighted) {
            if relation.is_weighted != is_weighted {
                let relation = relation.name.clone();
                return Err(
                    ModelError::Edges(ModelEdgesError::RelationWeights { relation, is_weighted }).into()
                );
            }
        }
        Ok(())
    }

    /// Returns the columns of the edges that are given and that the model reads. `prepared` is the graph with the model's
    /// preparation.
    fn edge_columns_of(&self, model: &SavedModel, prepared: &GraphAccess) -> Result<EdgeColumnStores> {
        let mut read = EdgeColumnStores::default();
        for (name, expected) in model.sampling().edge_columns() {
            let Some(given) = self.edge_columns.get(name) else { continue };
            let mut rows = Arc::clone(given);
            // A step of the preparation may have changed the order of the edges, and so their ids. It moves the columns of
            // the graph.
            if let (GraphAccess::Plain(graph), GraphAccess::Plain(prepared)) = (&self.graph, prepared)
                && !has_same_edges(graph, prepared)
            {
                let column = prepared.columns().get(name);
                let column = column.ok_or(ModelError::Edges(ModelEdgesError::EdgeFeaturesOfUnprepared))?;
                rows = EdgeFeatures::try_from(column)?.into();
            }
            if model.relation_rows(name) == RelationRows::Padded {
                let expected = &model.sampling().edge_widths;
                let got = rows.relation_widths();
                if *expected != got {
                    let expected = expected.clone();
                    let error = ModelEdgesError::RelationEdgeWidths { expected, got };
                    return Err(ModelError::Edges(error).into());
                }
            }
            let got = rows.dim();
            if got != expected {
                let what = described(name);
                let error = ModelEdgesError::EdgeFeatureWidth { what, expected, got };
                return Err(ModelError::Edges(error).into());
            }
            let n_rows = rows.n_edges();
            if let Some(n_edges) = prepared.n_edges().filter(|n_edges| *n_edges != n_rows) {
                return Err(Error::Input(InputError::EdgeFeatureRows { n_rows, n_edges }));
            }
            read.set(name, rows);
        }
        Ok(read)
    }
}

impl PreparedData {
    /// Returns the columns of the edges that the model reads.
    ///
    /// # Errors
    /// Returns [`ModelEdgesError::NoEdgeFeatures`] if one is missing.
    pub(crate) fn require_edge_columns(&self, model: &SavedModel) -> Result<&EdgeColumnStores> {
        for (name, width) in model.sampling().edge_columns() {
            if self.edge_columns.get(name).is_none() {
                let what = described(name);
                return Err(ModelError::Edges(ModelEdgesError::NoEdgeFeatures { what, width }).into());
            }
        }
        Ok(&self.edge_columns)
    }
}

/// Returns the name of a column of edges in messages.
fn described(name: &str) -> String {
    match name {
        EdgeColumns::FEATURES => "edge features".to_owned(),
        _ => format!("rows of the edge column `{name}`"),
    }
}

/// Returns true if edges with the same id are the same in both graphs.
fn has_same_edges(one: &Arc<Csc>, other: &Arc<Csc>) -> bool {
    Arc::ptr_eq(one, other) || (one.indptr() == other.indptr() && one.indices() == other.indices())
}

impl fmt::Debug for PredictionData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PredictionData")
            .field("n_nodes", &self.graph.n_nodes())
            .field("schema", &self.graph.schema())
            .field("features", &self.features)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

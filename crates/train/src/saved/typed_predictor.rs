use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use kiln_feature::FeatureStore;
use kiln_graph::{GraphSchema, NodeId, Relations};
use kiln_kernels::to_vec_f32;
use kiln_loader::{Batcher, FeatureStores, NodeBatcher, SeedBatch, StageTimes};
use kiln_sample::{Fanout, Rule, SamplerConfig, Scratch, TypedSampler};

use crate::error::Result;
use crate::evaluate::layer_wise::WantedRows;
use crate::saved::batches::{PredictedRows, PredictionBatches};
use crate::saved::error::ModelError;
use crate::saved::info::{EvaluatedNeighbors, ModelTask, SamplingInfo};
use crate::saved::mode::PredictMode;
use crate::saved::model::SavedModel;
use crate::saved::outputs::OutputRows;
use crate::saved::typed_info::TypedGraphInfo;
use crate::saved::typed_network::TypedOutputs;
use crate::step::batch::ToDevice;
use crate::step::embedding_error::EmbeddingError;
use crate::step::node_keys::NodeKeys;

/// A saved model on a heterogeneous graph: predicts the nodes of the type that had targets in training, and computes their
/// embeddings. Threads can use one predictor at the same time, and clones share its data.
///
/// The data may contain other nodes than the training data. A node of a type without features has the trained row of the node
/// with its name; a node that training did not have, or that was in no batch, has the mean row
/// ([`NodeEmbedding::learned_rows`](crate::NodeEmbedding::learned_rows)).
#[derive(Clone)]
pub struct TypedNodePredictor {
    model: SavedModel,
    schema: GraphSchema,
    sampler: Arc<NewTypedSampler>,
    features: FeatureStores,
    /// The trained row of each node, for each type without features.
    rows: Vec<RowsOfNodes>,
    /// The ids of the nodes that can be predicted.
    nodes: Range<u32>,
    /// A custom sampling rule.
    rule: Option<Rule>,
    /// Tables of samplers that no thread uses at the moment.
    scratches: Arc<Mutex<Vec<Scratch>>>,
}

/// Creates a sampler of a graph from the fanouts of each layer and relation.
type NewTypedSampler = dyn Fn(Vec<Vec<Fanout>>, SamplerConfig) -> Result<TypedSampler> + Send + Sync;

/// The trained rows of the nodes of a type.
#[derive(Debug, Clone)]
enum RowsOfNodes {
    /// Node `v` has row `v`, because the nodes have no names.
    ById,
    /// The row of each node; [`NodeKeys::NO_NODE`] for a node without one.
    ByName(Arc<[NodeId]>),
}

impl RowsOfNodes {
    /// Replaces nodes by their rows.
    fn replace(&self, nodes: &mut [NodeId]) {
        if let Self::ByName(rows) = self {
            nodes.iter_mut().for_each(|node| *node = rows[node.index()]);
        }
    }
}

impl TypedNodePredictor {
    /// Prepares a graph for a model's predictions. The features of type `t`, `features[t]`, have one row per node of the type;
    /// `None` for a type without features. `keys[t]` are the keys of the names of the nodes, which are read only for types
    /// without features; `None` if they have no names, or if the graph is that of the training data, of which the model has no
    /// names: row `v` is then that of node `v`.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model is not for nodes of heterogeneous graphs; if the graph or the features
    /// have other types, columns or relations than the training data, or in another order; if a type has fewer feature rows than
    /// nodes; if nodes of a type lack the names by which the model finds their rows; or if the model has no names of the nodes
    /// of a type, and the data has names or another number of nodes. Returns [`EmbeddingError::Keys`] within
    /// [`Error::Embedding`](crate::Error::Embedding) unless a type has one key per node.
    pub fn new(
        model: &SavedModel,
        graph: Arc<Relations>,
        features: Vec<Option<Arc<dyn FeatureStore>>>,
        keys: &[Option<NodeKeys>],
    ) -> Result<Self> {
        Self::check_task(model)?;
        let schema = graph.schema().clone();
        let sampler = move |fanouts, config| Ok(TypedSampler::new(&graph, fanouts, config)?);
        Self::of(model, schema, features, keys, sampler)
    }

    /// Creates a predictor like [`TypedNodePredictor::new`] on a graph that is only sampled, such as a partitioned graph.
    /// `schema` are its types and relations, and `sampler` creates its samplers from the fanouts of each relation in each layer,
    /// `[n_layers][n_relations]`.
    ///
    /// # Errors
    /// Returns the errors of [`TypedNodePredictor::new`].
    pub fn on_sampler(
        model: &SavedModel,
        schema: GraphSchema,
        features: Vec<Option<Arc<dyn FeatureStore>>>,
        keys: &[Option<NodeKeys>],
        sampler: impl Fn(Vec<Vec<Fanout>>, SamplerConfig) -> Result<TypedSampler> + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::check_task(model)?;
        Self::of(model, schema, features, keys, sampler)
    }

    fn check_task(model: &SavedModel) -> Result<()> {
        model.typed_network()?;
        model.check_task(ModelTask::Nodes)
    }

    /// Creates a predictor for a model of any task, as [`TypedNodePredictor::on_sampler`] does.
    pub(super) fn of(
        model: &SavedModel,
        schema: GraphSchema,
        features: Vec<Option<Arc<dyn FeatureStore>>>,
        keys: &[Option<NodeKeys>],
        sampler: impl Fn(Vec<Vec<Fanout>>, SamplerConfig) -> Result<TypedSampler> + Send + Sync + 'static,
    ) -> Result<Self> {
        let network = model.typed_network()?;
        let info = info_of(model);
        let types = schema.types().clone();
        let n_types = types.n_types();
        for (what, got) in [("feature stores", features.len()), ("lists of keys", keys.len())] {
            if got != n_types {
                return Err(ModelError::NumberOfTypes { what, got, expected: n_types }.into());
            }
        }
        let target_type = check_schema(info, &schema, &features)?;
        for (node_type, store) in features.iter().enumerate() {
            let (n_rows, n_nodes) =
                (store.as_ref().map(|store| store.n_rows()), types.range(node_type).len());
            if let Some(n_rows) = n_rows.filter(|n_rows| *n_rows < n_nodes) {
                return Err(ModelError::TooFewRows { n_rows, n_nodes }.into());
            }
        }
        let without_features = (0..n_types).filter(|&node_type| features[node_type].is_none());
        let rows = without_features.zip(&network.tables).map(|(node_type, table)| {
            let (n_nodes, name) = (types.range(node_type).len(), || types.names()[node_type].clone());
            match (table.keys(), &keys[node_type]) {
                (_, Some(keys)) if keys.len() != n_nodes => {
                    Err(EmbeddingError::Keys { expected: n_nodes, got: keys.len() }.into())
                }
                (None, None) if table.n_nodes() == n_nodes => Ok(RowsOfNodes::ById),
                (None, _) => Err(ModelError::RowsWithoutNames { node_type: name() }.into()),
                (Some(of_model), Some(of_data)) => Ok(RowsOfNodes::ByName(of_model.nodes_of(of_data))),
                (Some(_), None) => Err(ModelError::NoNames { node_type: name() }.into()),
            }
        });
        Ok(Self {
            rows: rows.collect::<Result<_>>()?,
            nodes: types.range(target_type),
            features: FeatureStores::new(types, features),
            model: model.clone(),
            schema,
            sampler: Arc::new(sampler),
            rule: None,
            scratches: Arc::default(),
        })
    }

    /// Returns a predictor with the same model on another device, which `model` was opened on.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if `model` has another description.
    pub fn with_model(&self, model: &SavedModel) -> Result<Self> {
        match model.info() == self.model.info() {
            true => Ok(Self { model: model.clone(), ..self.clone() }),
            false => Err(ModelError::OtherModel.into()),
        }
    }

    /// Sets the sampling rule of a model that was trained with a custom rule.
    #[must_use]
    pub fn rule(self, rule: impl Into<Rule>) -> Self {
        Self { rule: Some(rule.into()), ..self }
    }

    /// Returns the types of nodes and the relations of the graph.
    pub fn schema(&self) -> &GraphSchema {
        &self.schema
    }

    /// Returns the model.
    pub fn model(&self) -> &SavedModel {
        &self.model
    }

    /// Returns the number of nodes of the type that had targets in training.
    pub fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the scores of nodes of the type that had targets in training, one row per node and one column per class. Nodes
    /// are numbered from 0 within the type, and may repeat.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if a node does not exist, the number of fanouts is not the number of
    /// layers, or the model was trained with a custom rule that was not set, [`Error::ExactOnTypes`](crate::Error::ExactOnTypes)
    /// for [`PredictMode::Exact`], and the errors of sampling and of the features.
    pub fn predict(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<OutputRows> {
        let batches = self.batches(nodes, mode, WantedRows::Outputs)?;
        let rows = batches.all([Some(self.model.info().inputs.n_outputs), None], |_| ())?;
        Ok(rows.scores.expect("the scores should have been computed"))
    }

    /// Returns the embeddings of nodes: the input rows of the model's last layer. The arguments are those of
    /// [`TypedNodePredictor::predict`]. `None` for no nodes.
    ///
    /// # Errors
    /// Returns the errors of [`TypedNodePredictor::predict`].
    pub fn embed(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<Option<OutputRows>> {
        Ok(self.batches(nodes, mode, WantedRows::Embeddings)?.all([None, None], |_| ())?.embeddings)
    }

    /// Returns the outputs of nodes as batches that are computed one by one. The arguments are those of
    /// [`TypedNodePredictor::predict`].
    ///
    /// # Errors
    /// Returns the errors of [`TypedNodePredictor::predict`].
    pub fn batches(
        &self,
        nodes: &[NodeId],
        mode: &PredictMode,
        wanted: WantedRows,
    ) -> Result<PredictionBatches> {
        let (n_nodes, first) = (self.n_nodes(), self.nodes.start);
        if let Some(&node) = nodes.iter().find(|node| n_nodes <= node.index()) {
            return Err(ModelError::NoSuchNode { node, n_nodes }.into());
        }
        let nodes: Vec<NodeId> = nodes.iter().map(|node| NodeId(first + node.0)).collect();
        self.batches_of(&nodes, mode, wanted)
    }

    /// Returns the outputs of nodes of any type, whose ids are those of the graph, as [`TypedNodePredictor::batches`] does.
    pub(super) fn batches_of(
        &self,
        nodes: &[NodeId],
        mode: &PredictMode,
        wanted: WantedRows,
    ) -> Result<PredictionBatches> {
        let evaluation = self.model.info().evaluation;
        let n_layers = self.model.typed_network()?.model.n_layers();
        let (fanouts, seed) = match mode {
            PredictMode::Sampled { fanouts, seed } if !fanouts.is_empty() => {
                (self.of_all_relations(fanouts, n_layers)?, *seed)
            }
            PredictMode::Sampled { seed, .. } => (info_of(&self.model).fanouts(n_layers), *seed),
            PredictMode::SampledByRelation { fanouts, seed } => {
                (fanouts.by_layer(&self.schema, n_layers)?, *seed)
            }
            PredictMode::AsEvaluated if evaluation.neighbors == EvaluatedNeighbors::Sampled => {
                (info_of(&self.model).fanouts(n_layers), evaluation.seed)
            }
            _ => return Err(crate::Error::ExactOnTypes),
        };
        let compute = self.compute(self.batcher(fanouts)?, wanted);
        Ok(PredictionBatches::of_items(nodes, evaluation.batch_size, seed, compute))
    }

    /// Returns the fanouts of each layer and relation from those of each layer.
    fn of_all_relations(&self, fanouts: &[Fanout], n_layers: usize) -> Result<Vec<Vec<Fanout>>> {
        let (n_fanouts, n_relations) = (fanouts.len(), self.schema.relations().len());
        if n_fanouts != n_layers {
            return Err(ModelError::FanoutsMismatch { n_fanouts, n_layers }.into());
        }
        Ok(fanouts.iter().map(|fanout| vec![*fanout; n_relations]).collect())
    }

    /// Returns the batcher for the fanouts of each layer and relation.
    fn batcher(&self, fanouts: Vec<Vec<Fanout>>) -> Result<NodeBatcher<TypedSampler>> {
        let (network, sampling) = (&self.model.typed_network()?.model, sampling_of(&self.model));
        let rule = sampling.rule_or(self.rule.as_ref())?;
        let sampler = (self.sampler)(fanouts, sampling.config(Vec::new(), rule))?;
        let batcher = NodeBatcher::without_targets(Arc::new(sampler), self.features.clone());
        let format = network.input_format();
        Ok(batcher.groups_of_model(format.relation_groups, format.node_groups, &self.schema))
    }

    /// Returns the function that computes the rows of a batch.
    fn compute(
        &self,
        batcher: NodeBatcher<TypedSampler>,
        wanted: WantedRows,
    ) -> impl Fn(SeedBatch, Range<usize>) -> Result<PredictedRows> + Send + Sync + 'static {
        let predictor = self.clone();
        move |seeds, positions| predictor.rows_of(&batcher, seeds, positions, wanted)
    }

    fn rows_of(
        &self,
        batcher: &NodeBatcher<TypedSampler>,
        seeds: SeedBatch,
        positions: Range<usize>,
        wanted: WantedRows,
    ) -> Result<PredictedRows> {
        let mut rows = PredictedRows { positions, scores: None, embeddings: None };
        let (step, device) = (seeds.step, self.model.device());
        let mut scratch =
            self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let batch = batcher.batch(seeds, &mut scratch, &mut StageTimes::default());
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        let batch = batch.map_err(|source| kiln_loader::Error::Batch { step, source })?;
        let mut input = batch.to_device(device).input;
        for (of_type, nodes) in self.rows.iter().zip(input.x.embedded_mut()) {
            of_type.replace(nodes);
        }
        let wanted = [wanted.has_embeddings(), wanted.has_outputs()];
        let TypedOutputs { embeddings, outputs } = self.model.typed_network()?.run(&input, wanted, device)?;
        if let Some(embeddings) = embeddings {
            // The destinations of a block are its first sources.
            let [_, width] = embeddings.dims();
            rows.embeddings = Some(OutputRows::new(to_vec_f32(embeddings), width).take(&input.seed_index));
        }
        if let Some(outputs) = outputs {
            rows.scores = Some(self.model.scores(outputs)?.take(&input.seed_index));
        }
        Ok(rows)
    }
}

pub(super) fn info_of(model: &SavedModel) -> &TypedGraphInfo {
    let graph = model.info().inputs.graph.as_ref();
    graph.expect("the description of a model of a heterogeneous graph should have the graph")
}

fn sampling_of(model: &SavedModel) -> &SamplingInfo {
    let sampling = model.info().inputs.sampling.as_ref();
    sampling.expect("the description of a node model should have its sampling")
}

/// Checks that a graph has the types and relations of a model, and returns the type that can be predicted.
fn check_schema(
    info: &TypedGraphInfo,
    schema: &GraphSchema,
    features: &[Option<Arc<dyn FeatureStore>>],
) -> Result<usize> {
    let widths: Vec<_> = features.iter().map(|store| store.as_ref().map(|store| store.dim())).collect();
    let target_type = info.target_position().unwrap_or(0);
    let of_data = TypedGraphInfo::new(schema, &widths, target_type, &[]);
    match info.has_schema_of(&of_data) {
        true => Ok(target_type),
        false => Err(ModelError::OtherSchema { expected: info.schema(), got: of_data.schema() }.into()),
    }
}

impl fmt::Debug for TypedNodePredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedNodePredictor").field("model", &self.model).finish_non_exhaustive()
    }
}

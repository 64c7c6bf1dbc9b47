mod rows;

use std::fmt;
use std::sync::{Arc, Mutex};

use kiln_feature::{EdgeFeatureStore, FeatureStore, Preparation};
use kiln_graph::{Csc, NodeId};
use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, Rule, SamplerConfig, Scratch};

use crate::error::{Error, Result};
use crate::evaluate::layer_wise::{LayerWiseConfig, WantedRows, check_edge_features};
use crate::evaluate::progress::OnProgress;
use crate::saved::batches::{PredictedRows, PredictionBatches};
use crate::saved::error::ModelError;
use crate::saved::info::{EvaluatedNeighbors, ModelTask, SamplingInfo};
use crate::saved::mode::PredictMode;
use crate::saved::model::SavedModel;
use crate::saved::outputs::OutputRows;
use crate::saved::preparation::{check_sampled_graph, left_steps_of, prepared_graph};

/// A saved node model on a graph: predicts classes and computes embeddings of the graph's nodes. Threads can use one
/// predictor at the same time, and clones share its data.
#[derive(Clone)]
pub struct NodePredictor {
    model: SavedModel,
    graph: GraphAccess,
    /// The features with the model's preparation.
    features: Arc<dyn FeatureStore>,
    edge_features: Option<Arc<dyn EdgeFeatureStore>>,
    /// A custom sampling rule.
    rule: Option<Rule>,
    /// Tables of samplers that no thread uses at the moment.
    scratches: Arc<Mutex<Vec<Scratch>>>,
    on_progress: OnProgress,
}

/// The graph of a predictor, with the model's preparation, and normalised if the model needs it.
#[derive(Clone)]
enum GraphAccess {
    Whole(Arc<Csc>),
    /// A graph that is not in this process as a whole, such as a partitioned graph.
    Sampled {
        n_nodes: usize,
        sampler: Arc<NewSampler>,
    },
}

/// Creates a sampler of a graph.
type NewSampler = dyn Fn(SamplerConfig) -> Result<Arc<dyn FrontierSampler>> + Send + Sync;

impl NodePredictor {
    /// Prepares a graph and its features for a model's predictions. Both are as they were loaded; the steps of the
    /// model's [`Preparation`](kiln_feature::Preparation) are applied to them. This copies the graph if the model needs
    /// it symmetric, with self loops or normalised, and reads no feature.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model is not for nodes, the features have another number of
    /// columns than the training data or fewer rows than the graph has nodes, or the graph lacks the edge types that the
    /// model reads or has others, and [`Error::Graph`](crate::Error::Graph) if the graph is damaged.
    pub fn new(model: &SavedModel, graph: Arc<Csc>, features: Arc<dyn FeatureStore>) -> Result<Self> {
        if model.info().inputs.preparation.is_none() {
            return Err(ModelError::UnknownPreparation.into());
        }
        Self::on_prepared(model, graph, features, &Preparation::default())
    }

    /// Creates a predictor like [`NodePredictor::new`], on data to which the steps in `done` were already applied, such
    /// as the training data. Only the other steps of the model's preparation are applied. If the model's preparation is
    /// unknown, no step is applied.
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::new`], and [`Error::Saved`](crate::Error::Saved) if the model's
    /// preparation does not have the steps in `done`, or begins with other steps of features.
    pub fn on_prepared(
        model: &SavedModel,
        graph: Arc<Csc>,
        features: Arc<dyn FeatureStore>,
        done: &Preparation,
    ) -> Result<Self> {
        model.node_network()?;
        model.check_features(&*features, graph.n_nodes())?;
        let left = left_steps_of(model.info(), done)?;
        let graph = prepared_graph(model.info(), &left, graph)?;
        model.check_edge_types(|| graph.n_edge_types())?;
        Ok(Self::of(model, GraphAccess::Whole(graph), left.features(features)?))
    }

    /// Creates a predictor like [`NodePredictor::on_prepared`] on a graph of `n_nodes` nodes that is only sampled, such
    /// as a partitioned graph. `sampler` creates its samplers. [`PredictMode::Exact`] is not possible, and the edge types
    /// are not compared with the model's relations: [`SavedModel::check_edge_types`] does.
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::on_prepared`], and [`Error::Saved`](crate::Error::Saved) if the model
    /// needs the graph symmetric or with self loops, and it is not, or normalised.
    pub fn on_sampler(
        model: &SavedModel,
        n_nodes: usize,
        features: Arc<dyn FeatureStore>,
        done: &Preparation,
        sampler: impl Fn(SamplerConfig) -> Result<Arc<dyn FrontierSampler>> + Send + Sync + 'static,
    ) -> Result<Self> {
        model.node_network()?;
        model.check_features(&*features, n_nodes)?;
        let left = left_steps_of(model.info(), done)?;
        check_sampled_graph(model.info(), &left)?;
        let graph = GraphAccess::Sampled { n_nodes, sampler: Arc::new(sampler) };
        Ok(Self::of(model, graph, left.features(features)?))
    }

    fn of(model: &SavedModel, graph: GraphAccess, features: Arc<dyn FeatureStore>) -> Self {
        let (rule, scratches, on_progress) = (None, Arc::default(), OnProgress::default());
        Self { model: model.clone(), graph, features, edge_features: None, rule, scratches, on_progress }
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

    /// Returns true if the model reads features of edges.
    pub fn reads_edge_features(&self) -> bool {
        self.sampling().edge_features.is_some()
    }

    /// Sets the features of the edges of [`NodePredictor::graph`], in the order of their ids, for a model that reads them.
    /// Other models ignore them.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model reads edge features with another number of columns, and
    /// [`Error::EdgeFeatureRows`](crate::Error::EdgeFeatureRows) if there is not one row per edge of the graph. The number of
    /// edges of a graph that is only sampled is unknown; an edge without a row is then an error of the batch that samples it.
    pub fn with_edge_features(self, features: impl Into<Arc<dyn EdgeFeatureStore>>) -> Result<Self> {
        let Some(expected) = self.sampling().edge_features else { return Ok(self) };
        let features = features.into();
        if features.dim() != expected {
            return Err(ModelError::EdgeFeatureWidth { expected, got: features.dim() }.into());
        }
        if let Some(graph) = self.graph() {
            check_edge_features(&*features, graph)?;
        }
        Ok(Self { edge_features: Some(features), ..self })
    }

    /// Returns the edge features that the model reads, `None` if it reads none, or an error if they are missing.
    fn edge_features(&self) -> Result<Option<&dyn EdgeFeatureStore>> {
        match (self.sampling().edge_features, &self.edge_features) {
            (Some(width), None) => Err(ModelError::NoEdgeFeatures { width }.into()),
            (_, features) => Ok(features.as_deref()),
        }
    }

    /// Sets the sampling rule of a model that was trained with a custom rule.
    #[must_use]
    pub fn rule(self, rule: impl Into<Rule>) -> Self {
        Self { rule: Some(rule.into()), ..self }
    }

    /// Calls `callback` after each batch, or after each range of nodes in exact mode, with the number of finished rows
    /// and of all rows.
    #[must_use]
    pub fn on_progress(self, callback: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self { on_progress: OnProgress::new(callback), ..self }
    }

    /// Returns the model.
    pub fn model(&self) -> &SavedModel {
        &self.model
    }

    /// Returns the number of nodes of the graph.
    pub fn n_nodes(&self) -> usize {
        match &self.graph {
            GraphAccess::Whole(graph) => graph.n_nodes(),
            GraphAccess::Sampled { n_nodes, .. } => *n_nodes,
        }
    }

    /// Returns the graph with the model's preparation: with the reverse of each edge or with self loops if the model needs
    /// them, and normalised for a GCN. `None` if the graph is only sampled.
    pub fn graph(&self) -> Option<&Arc<Csc>> {
        match &self.graph {
            GraphAccess::Whole(graph) => Some(graph),
            GraphAccess::Sampled { .. } => None,
        }
    }

    /// Returns the width of the embeddings.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model is not for nodes, and [`Error::NotLayerWise`] if its layers
    /// return no sizes.
    pub fn embedding_width(&self) -> Result<usize> {
        self.model.node_network()?.embedding_width().ok_or(Error::NotLayerWise)
    }

    /// Returns the scores of nodes, one row per node and one column per class; for a model of links, the rows that its
    /// decoder reads. Nodes may repeat.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if a node does not exist, the number of fanouts is not the number
    /// of layers, or the model was trained with a custom rule that was not set, and the errors of sampling, of the
    /// features and of [`LayerWiseInference::outputs`](crate::LayerWiseInference::outputs).
    pub fn predict(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<OutputRows> {
        let rows = self.rows(nodes, mode, WantedRows::Outputs)?;
        rows.scores.ok_or(Error::NotLayerWise)
    }

    /// Returns the embeddings of nodes: the input rows of the model's last layer. For a model of one layer, these are
    /// the prepared features. With jumping knowledge they begin with what the last layer needs of
    /// earlier layers: their rows ([`Cat`](kiln_nn::JumpingKnowledge::Cat)) or the maximum of all
    /// ([`Max`](kiln_nn::JumpingKnowledge::Max)).
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::predict`], and [`Error::NotLayerWise`] if the layers of the model return no sizes.
    pub fn embed(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<OutputRows> {
        let rows = self.rows(nodes, mode, WantedRows::Embeddings)?;
        rows.embeddings.ok_or(Error::NotLayerWise)
    }

    /// Returns the scores and the embeddings of nodes, in the time of [`NodePredictor::predict`].
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::embed`].
    pub fn predict_and_embed(
        &self,
        nodes: &[NodeId],
        mode: &PredictMode,
    ) -> Result<(OutputRows, OutputRows)> {
        let rows = self.rows(nodes, mode, WantedRows::Both)?;
        let scores = rows.scores.ok_or(Error::NotLayerWise)?;
        Ok((scores, rows.embeddings.ok_or(Error::NotLayerWise)?))
    }

    fn rows(&self, nodes: &[NodeId], mode: &PredictMode, wanted: WantedRows) -> Result<PredictedRows> {
        let network = self.model.node_network()?;
        let inputs = &self.model.info().inputs;
        let n_outputs = match network.outer_widths() {
            Some([_, d_out]) => Some(d_out),
            // The scores of links do not have the width of the encoder's rows.
            None if inputs.task == ModelTask::Links => None,
            None => Some(inputs.n_outputs),
        };
        let widths = [
            n_outputs.filter(|_| wanted.has_outputs()),
            network.embedding_width().filter(|_| wanted.has_embeddings()),
        ];
        let batches = self.batches(nodes, mode, wanted)?;
        // The layers of exact mode report their own progress.
        let is_exact = self.is_exact(mode);
        batches.all(widths, |n_done| {
            if !is_exact {
                self.on_progress.report(n_done, nodes.len());
            }
        })
    }

    /// Returns true if predictions in this mode read all neighbours, layer by layer over the whole graph. They are then
    /// computed by [`NodePredictor::batches`], before the first batch.
    pub fn is_exact(&self, mode: &PredictMode) -> bool {
        let evaluated = self.model.info().evaluation.neighbors;
        match mode {
            PredictMode::Exact(_) => true,
            PredictMode::Sampled { .. } | PredictMode::SampledByRelation { .. } => false,
            PredictMode::AsEvaluated => matches!(evaluated, EvaluatedNeighbors::Exact { .. }),
        }
    }

    /// Returns the outputs of nodes as batches that are computed one by one. Nodes may repeat. In exact mode, this
    /// computes all layers; only the rows of the requested nodes are read batch by batch.
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::predict`].
    pub fn batches(
        &self,
        nodes: &[NodeId],
        mode: &PredictMode,
        wanted: WantedRows,
    ) -> Result<PredictionBatches> {
        let n_nodes = self.n_nodes();
        if let Some(&node) = nodes.iter().find(|node| n_nodes <= node.index()) {
            return Err(ModelError::NoSuchNode { node, n_nodes }.into());
        }
        // The forward pass of a model without sizes of its layers may not run them in order.
        if wanted.has_embeddings() && self.model.node_network()?.embedding_width().is_none() {
            return Err(Error::NotLayerWise);
        }
        let evaluation = self.model.info().evaluation;
        let (fanouts, seed) = match (mode, evaluation.neighbors) {
            (PredictMode::Exact(config), _) => return self.exact(nodes, config.clone(), wanted),
            (PredictMode::AsEvaluated, EvaluatedNeighbors::Exact { memory_bytes }) => {
                return self.exact(nodes, LayerWiseConfig::within(memory_bytes), wanted);
            }
            (PredictMode::AsEvaluated, EvaluatedNeighbors::Sampled) => (&[][..], evaluation.seed),
            (PredictMode::Sampled { fanouts, seed }, _) => (&fanouts[..], *seed),
            (PredictMode::SampledByRelation { fanouts, seed }, _) => match fanouts.of_relations.first() {
                None => (&fanouts.of_all[..], *seed),
                Some((name, _)) => return Err(ModelError::NoNamedRelations { name: name.clone() }.into()),
            },
        };
        let (predictor, sampler) = (self.clone(), self.sampler(fanouts)?);
        Ok(PredictionBatches::of_items(nodes, evaluation.batch_size, seed, move |seeds, positions| {
            predictor.batch(&*sampler, seeds.key, seeds.seeds, positions, wanted)
        }))
    }

    fn sampling(&self) -> &SamplingInfo {
        let sampling = self.model.info().inputs.sampling.as_ref();
        sampling.expect("the description of a node model should have its sampling")
    }

    /// Returns the sampler for these fanouts, or for those of training if there are none.
    fn sampler(&self, fanouts: &[Fanout]) -> Result<Arc<dyn FrontierSampler>> {
        let sampling = self.sampling();
        let fanouts = if fanouts.is_empty() { sampling.fanouts() } else { fanouts.to_vec() };
        let (n_fanouts, n_layers) = (fanouts.len(), self.model.node_network()?.n_layers());
        if n_fanouts != n_layers {
            return Err(ModelError::FanoutsMismatch { n_fanouts, n_layers }.into());
        }
        let config = sampling.config(fanouts, sampling.rule_or(self.rule.as_ref())?);
        match &self.graph {
            GraphAccess::Whole(graph) => Ok(Arc::new(NeighborSampler::with_config(graph.clone(), config)?)),
            GraphAccess::Sampled { sampler, .. } => sampler(config),
        }
    }
}

impl fmt::Debug for NodePredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePredictor").field("model", &self.model).finish_non_exhaustive()
    }
}

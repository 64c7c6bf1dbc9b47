use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kiln_feature::{FeatureBuffer, FeatureStore, Preparation, PreparationStep};
use kiln_graph::{Csc, ItemId, NodeId, gcn_norm, symmetrize};
use kiln_kernels::{DeviceBlock, gather_features, to_vec_f32};
use kiln_loader::{ItemSampler, ItemSamplerConfig, Phase, SeedBatch, Shard};
use kiln_sample::{
    EdgeWeights, Fanout, FrontierSampler, NeighborSampler, RngKey, Rule, SamplerConfig, Scratch, Seeds,
};

use crate::error::Result;
use crate::evaluate::layer_wise::{LayerWiseConfig, LayerWiseInference, LayerWiseRows, WantedRows};
use crate::evaluate::progress::OnProgress;
use crate::saved::error::ModelError;
use crate::saved::info::{EvaluatedNeighbors, EvaluationInfo, SamplingInfo, StoredRule};
use crate::saved::model::SavedModel;
use crate::saved::outputs::{OutputRows, append};

/// The neighbours that predictions read.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum PredictMode {
    /// The neighbours that the run's evaluation read, in the same batches. For the run's test nodes, in the order of
    /// the test split, the predictions are those of the run: bit for bit on the same kind of device and processor, and
    /// up to rounding on others and after training on partitions.
    #[default]
    AsEvaluated,
    /// All neighbours, layer by layer over the whole graph. The time depends on the size of the graph, not on the
    /// number of nodes.
    Exact(LayerWiseConfig),
    /// Sampled neighbours. The neighbours of a node depend on the seed and the node, and not on the other nodes of the
    /// request.
    Sampled {
        /// The fanout of each layer, input layer first.
        fanouts: Vec<Fanout>,
        /// The seed of the draws.
        seed: u64,
    },
}

/// A saved node model on a graph: predicts classes and computes embeddings of the graph's nodes. Threads can use one
/// predictor at the same time.
pub struct NodePredictor {
    model: SavedModel,
    /// The graph with the model's preparation, and normalised if the model needs it.
    graph: Arc<Csc>,
    /// The features with the model's preparation.
    features: Arc<dyn FeatureStore>,
    /// A custom sampling rule.
    rule: Option<Rule>,
    /// Tables of samplers that no thread uses at the moment.
    scratches: Mutex<Vec<Scratch>>,
    on_progress: OnProgress,
}

/// The scores and the embeddings of a list of nodes.
struct BothRows {
    scores: Option<OutputRows>,
    embeddings: Option<OutputRows>,
}

impl NodePredictor {
    /// Prepares a graph and its features for a model's predictions. Both are as they were loaded; the steps of the
    /// model's [`Preparation`](kiln_feature::Preparation) are applied to them. This copies the graph if the model needs
    /// it symmetric or normalised, and reads no feature.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model is not for nodes or the features have another number
    /// of columns than the training data or fewer rows than the graph has nodes, and
    /// [`Error::Graph`](crate::Error::Graph) if the graph is damaged.
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
        let left = match &model.info().inputs.preparation {
            Some(wanted) => left_steps(wanted, done)?,
            None => Preparation::default(),
        };
        let graph = if left.symmetrizes() { Arc::new(symmetrize(&graph)?) } else { graph };
        let features = left.features(features)?;
        let is_normalized = model.info().inputs.sampling.as_ref().is_some_and(|sampling| sampling.gcn_norm);
        let graph = if is_normalized { Arc::new(gcn_norm(&graph)?) } else { graph };
        Ok(Self {
            model: model.clone(),
            graph,
            features,
            rule: None,
            scratches: Mutex::default(),
            on_progress: OnProgress::default(),
        })
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
        self.graph.n_nodes()
    }

    /// Returns the scores of nodes, one row per node and one column per class; for a model of links, the rows that its
    /// decoder reads. Nodes may repeat.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if a node does not exist, the number of fanouts is not the number
    /// of layers, or the model was trained with a custom rule that was not set, and the errors of sampling, of the
    /// features and of [`LayerWiseInference::outputs`].
    pub fn predict(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<OutputRows> {
        let rows = self.rows(nodes, mode, WantedRows::Outputs)?;
        Ok(rows.scores.expect("the scores should have been computed"))
    }

    /// Returns the embeddings of nodes: the input rows of the model's last layer. For a model of one layer, these are
    /// the prepared features. With jumping knowledge they begin with what the last layer needs of
    /// earlier layers: their rows ([`Cat`](kiln_nn::JumpingKnowledge::Cat)) or the maximum of all
    /// ([`Max`](kiln_nn::JumpingKnowledge::Max)).
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::predict`].
    pub fn embed(&self, nodes: &[NodeId], mode: &PredictMode) -> Result<OutputRows> {
        let rows = self.rows(nodes, mode, WantedRows::Embeddings)?;
        Ok(rows.embeddings.expect("the embeddings should have been computed"))
    }

    /// Returns the scores and the embeddings of nodes, in the time of [`NodePredictor::predict`].
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::predict`].
    pub fn predict_and_embed(
        &self,
        nodes: &[NodeId],
        mode: &PredictMode,
    ) -> Result<(OutputRows, OutputRows)> {
        let rows = self.rows(nodes, mode, WantedRows::Both)?;
        let scores = rows.scores.expect("the scores should have been computed");
        Ok((scores, rows.embeddings.expect("the embeddings should have been computed")))
    }

    fn rows(&self, nodes: &[NodeId], mode: &PredictMode, wanted: WantedRows) -> Result<BothRows> {
        let n_nodes = self.n_nodes();
        if let Some(&node) = nodes.iter().find(|node| n_nodes <= node.index()) {
            return Err(ModelError::NoSuchNode { node, n_nodes }.into());
        }
        let evaluation = self.model.info().evaluation;
        match mode {
            PredictMode::Exact(config) => self.exact(nodes, config.clone(), wanted),
            PredictMode::Sampled { fanouts, seed } => {
                let sampler = self.sampler(fanouts.clone())?;
                // One key for all batches, so that a node's neighbours do not depend on its batch.
                let key = Phase::Test.key(*seed);
                let chunks = nodes.chunks(evaluation.batch_size).scan(0, |start, nodes| {
                    let positions = *start..*start + nodes.len();
                    *start = positions.end;
                    Some((key, nodes.to_vec(), positions.collect()))
                });
                self.sampled(&sampler, nodes.len(), chunks, wanted)
            }
            PredictMode::AsEvaluated => match evaluation.neighbors {
                EvaluatedNeighbors::Exact { memory_bytes } => {
                    self.exact(nodes, LayerWiseConfig::within(memory_bytes), wanted)
                }
                EvaluatedNeighbors::Sampled => {
                    let sampler = self.sampler(self.sampling().fanouts())?;
                    let batches = batches_of_run(nodes, &evaluation)?;
                    let batches = batches.map(|(batch, positions)| (batch.key, batch.seeds, positions));
                    self.sampled(&sampler, nodes.len(), batches, wanted)
                }
            },
        }
    }

    fn exact(&self, nodes: &[NodeId], config: LayerWiseConfig, wanted: WantedRows) -> Result<BothRows> {
        let inference = LayerWiseInference::new(self.graph.clone(), config)?;
        let mut inference = inference.with_progress(self.on_progress.clone());
        if self.sampling().edge_weights() != EdgeWeights::None {
            inference = inference.carry_weights()?;
        }
        let network = self.model.node_network()?;
        let LayerWiseRows { outputs, embeddings } =
            network.exact(&inference, &*self.features, wanted, self.model.device())?;
        let select = |rows: &dyn FeatureStore| -> Result<OutputRows> {
            let mut selected = FeatureBuffer::empty(rows.dtype());
            rows.gather(nodes, &mut selected)?;
            Ok(OutputRows::new(selected.into_f32(), rows.dim()))
        };
        let scores = outputs.map(|rows| select(&rows)).transpose()?;
        let embeddings = match (embeddings, wanted.has_embeddings()) {
            (Some(rows), _) => Some(select(&rows)?),
            (None, true) => Some(select(&*self.features)?),
            (None, false) => None,
        };
        Ok(BothRows { scores, embeddings })
    }

    /// Computes the rows of `n_nodes` nodes in batches: the key of a batch, its nodes, and their positions in the
    /// request.
    fn sampled(
        &self,
        sampler: &NeighborSampler,
        n_nodes: usize,
        batches: impl Iterator<Item = (RngKey, Vec<NodeId>, Vec<usize>)>,
        wanted: WantedRows,
    ) -> Result<BothRows> {
        let mut positions = Vec::with_capacity(n_nodes);
        let mut all = BothRows { scores: None, embeddings: None };
        for (key, nodes, of_batch) in batches {
            let rows = self.batch(sampler, key, nodes, wanted)?;
            append(&mut all.scores, rows.scores);
            append(&mut all.embeddings, rows.embeddings);
            positions.extend(of_batch);
            self.on_progress.report(positions.len(), n_nodes);
        }
        let ordered = |rows: Option<OutputRows>, is_wanted: bool, width: usize| {
            let rows = rows.or_else(|| is_wanted.then(|| OutputRows::new(Vec::new(), width)))?;
            Some(rows.in_request_order(&positions))
        };
        let network = self.model.node_network()?;
        Ok(BothRows {
            scores: ordered(all.scores, wanted.has_outputs(), network.outer_widths()[1]),
            embeddings: ordered(all.embeddings, wanted.has_embeddings(), network.embedding_width()),
        })
    }

    fn batch(
        &self,
        sampler: &NeighborSampler,
        key: RngKey,
        nodes: Vec<NodeId>,
        wanted: WantedRows,
    ) -> Result<BothRows> {
        let (network, device) = (self.model.node_network()?, self.model.device());
        let mut scratch =
            self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let sampled = sampler.sample_blocks(&Seeds::nodes(nodes), key, &mut scratch);
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        let sampled = sampled?;
        let rows_of_seeds: Vec<usize> = sampled.seed_index.iter().map(|row| row.index()).collect();
        let x = gather_features(&*self.features, sampled.blocks[0].srcs(), device)?;
        let blocks: Vec<DeviceBlock> =
            sampled.blocks.into_iter().map(|block| DeviceBlock::new(block, device)).collect();
        let mut all = BothRows { scores: None, embeddings: None };
        if wanted.has_embeddings() {
            // The destinations of a block are its first sources.
            let hidden = network.hidden(&blocks, x.clone());
            let [_, width] = hidden.dims();
            all.embeddings = Some(OutputRows::new(to_vec_f32(hidden), width).take(&rows_of_seeds));
        }
        if wanted.has_outputs() {
            all.scores = Some(self.model.scores(network.forward(&blocks, x))?.take(&rows_of_seeds));
        }
        Ok(all)
    }

    fn sampling(&self) -> &SamplingInfo {
        let sampling = self.model.info().inputs.sampling.as_ref();
        sampling.expect("the description of a node model should have its sampling")
    }

    fn sampler(&self, fanouts: Vec<Fanout>) -> Result<NeighborSampler> {
        let sampling = self.sampling();
        let (n_fanouts, n_layers) = (fanouts.len(), self.model.node_network()?.n_layers());
        if n_fanouts != n_layers {
            return Err(ModelError::FanoutsMismatch { n_fanouts, n_layers }.into());
        }
        let Some(rule) = self.rule.clone().or_else(|| sampling.rule()) else {
            let rule = match &sampling.rule {
                StoredRule::Custom(name) => name.clone().unwrap_or_default(),
                StoredRule::BuiltIn(name) => name.clone(),
            };
            return Err(ModelError::CustomRule { rule }.into());
        };
        let config = SamplerConfig::new(fanouts).with_rule(rule).with_weights(sampling.edge_weights());
        Ok(NeighborSampler::with_config(self.graph.clone(), config)?)
    }
}

impl fmt::Debug for NodePredictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePredictor").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Returns the steps of `wanted` that are left after those in `done`. The graph's step and the steps of features are
/// independent of each other.
fn left_steps(wanted: &Preparation, done: &Preparation) -> Result<Preparation> {
    let split = |preparation: &Preparation| -> (Vec<PreparationStep>, Vec<PreparationStep>) {
        preparation.steps.iter().cloned().partition(|step| *step == PreparationStep::Symmetrize)
    };
    let ((of_graph, of_features), (graph_done, features_done)) = (split(wanted), split(done));
    if of_graph.is_empty() && !graph_done.is_empty() {
        return Err(ModelError::OtherPreparation { step: "symmetrized" }.into());
    }
    let Some(left) = of_features.strip_prefix(&features_done[..]) else {
        let differs = |(i, step): &(usize, &PreparationStep)| of_features.get(*i) != Some(*step);
        let step = match features_done.iter().enumerate().find(differs) {
            Some((_, PreparationStep::Scale(_))) => "scaled by other means and deviations",
            _ => "divided by the sums of its rows",
        };
        return Err(ModelError::OtherPreparation { step }.into());
    };
    let of_graph = if graph_done.is_empty() { of_graph } else { Vec::new() };
    Ok(Preparation { steps: [of_graph, left.to_vec()].concat() })
}

/// Returns the batches in which a run with these settings evaluates the items, rank by rank, each with the positions of
/// its items in the list.
pub(crate) fn batches_of_run<I: ItemId>(
    items: &[I],
    run: &EvaluationInfo,
) -> Result<impl Iterator<Item = (SeedBatch<I>, Vec<usize>)>> {
    let config = |rank| ItemSamplerConfig {
        batch_size: run.batch_size,
        shuffle: false,
        seed: run.seed,
        shard: Shard { rank, world_size: run.n_ranks },
        ..ItemSamplerConfig::default()
    };
    let items: Arc<[I]> = items.into();
    let positions: Arc<[I]> = (0..items.len() as u32).map(I::new).collect();
    // The sampler divides the positions, which stand for the items: an item may occur several times.
    let plans = (0..run.n_ranks)
        .map(|rank| Ok(ItemSampler::new(positions.clone(), config(rank))?.epoch(Phase::Test)));
    let plans = plans.collect::<Result<Vec<_>>>()?;
    Ok(plans.into_iter().flat_map(move |plan| {
        let items = items.clone();
        (0..plan.n_steps()).filter_map(move |step| {
            let mut batch = plan.step(step);
            let positions: Vec<usize> = batch.seeds.iter().map(|position| position.get() as usize).collect();
            batch.seeds = positions.iter().map(|&position| items[position]).collect();
            (!positions.is_empty()).then_some((batch, positions))
        })
    }))
}

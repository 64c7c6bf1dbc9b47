//! The computation of a predictor's rows: all of them layer by layer, or one batch.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;
use kiln_kernels::to_vec_f32;
use kiln_loader::{BatchError, Batcher, NodeBatcher, SeedBatch, StageTimes};
use kiln_sample::{CustomSampler, Fanout, FrontierSampler};
use kiln_store::progress::ProgressUnit;

use crate::error::{Error, Result};
use crate::evaluate::layer_wise::{
    InferenceInput, LayerWiseConfig, LayerWiseInference, LayerWiseRows, WantedRows,
};
use crate::saved::batches::{PredictedRows, PredictionBatches};
use crate::saved::error::{ModelError, PredictModeError};
use crate::saved::info::{StoredEdgeWeights, StoredSampler};
use crate::saved::network::NetworkRows;
use crate::saved::outputs::OutputRows;
use crate::saved::predictor::NodePredictor;
use crate::step::batch::ToDevice;
use crate::step::embedding::embeddings::learned_rows;
use crate::step::task::node::NodeInput;

/// The number of rows of a batch in exact mode, which computes all rows before the first batch.
const EXACT_ROWS: usize = 4096;

/// Returns the values of these nodes' rows, row-major.
fn values_of(rows: &dyn FeatureStore, nodes: &[NodeId]) -> Result<Vec<f32>> {
    let mut selected = FeatureBuffer::empty(rows.dtype());
    rows.gather(nodes, &mut selected)?;
    Ok(selected.into_f32())
}

impl NodePredictor {
    /// Computes the rows of all nodes layer by layer, and returns those of the requested nodes, which have ids of the graph, as
    /// batches.
    pub(super) fn exact(
        &self,
        nodes: &[NodeId],
        config: LayerWiseConfig,
        wanted: WantedRows,
    ) -> Result<PredictionBatches> {
        let inference = self.inference(config)?;
        let device = self.model.device();
        let encoder = self.model.encoder()?;
        let features = &self.data.features;
        let embedded = |nodes: &mut [Vec<NodeId>]| {
            self.replace_by_rows(nodes);
            learned_rows(&encoder.tables, nodes, device)
        };
        let input = InferenceInput::new(features, &embedded);
        let LayerWiseRows { outputs, embeddings } =
            encoder.network.exact(&inference, input, wanted, device)?;
        let scores = outputs.map(|rows| Arc::new(rows) as Arc<dyn FeatureStore>);
        let embeddings = embeddings.map(|rows| Arc::new(rows) as Arc<dyn FeatureStore>);
        // The embeddings of a model of one layer are the features of the only type of nodes, unless they were encoded.
        let only = features.only_store().filter(|_| wanted.has_embeddings()).cloned();
        let embeddings = embeddings.or(only);
        let nodes: Arc<[NodeId]> = nodes.into();
        let model = self.model.clone();
        Ok(PredictionBatches::new(ProgressUnit::Nodes, nodes.len(), EXACT_ROWS, move |_, positions| {
            let nodes = &nodes[positions.clone()];
            let scores = match &scores {
                Some(rows) => Some(model.score_rows(values_of(&**rows, nodes)?, rows.dim())),
                None => None,
            };
            let embeddings = match &embeddings {
                Some(rows) => Some(OutputRows::new(values_of(&**rows, nodes)?, rows.dim())),
                None => None,
            };
            Ok(PredictedRows { positions, scores, embeddings })
        }))
    }

    /// Returns the inference over all neighbours, with the edges as the model reads them.
    fn inference(&self, config: LayerWiseConfig) -> Result<LayerWiseInference> {
        let graph = self.data.graph.whole()?;
        let sampling = self.model.sampling();
        let mut inference = LayerWiseInference::new(graph, config)?;
        if let Some(info) = self.model.schema_info() {
            // A relation that training did not sample has no trained weights.
            let n_layers = self.model.encoder()?.network.n_layers();
            inference = inference.relation_fanouts(info.fanouts(n_layers));
        }
        if sampling.edge_weights != StoredEdgeWeights::None {
            inference = inference.carry_weights()?;
        }
        if sampling.edge_types {
            inference = inference.carry_edge_types()?;
        }
        for (name, rows) in self.data.require_edge_columns(&self.model)?.iter() {
            inference = inference.carry_edge_column(Arc::clone(name), Arc::clone(rows))?;
        }
        Ok(inference)
    }

    /// Returns the rows of nodes from sampled neighbours as batches. The nodes have ids of the graph, and the fanouts are those
    /// of each relation in each layer, `[n_layers][n_relations]`.
    pub(super) fn sampled(
        &self,
        nodes: &[NodeId],
        fanouts: Vec<Vec<Fanout>>,
        seed: u64,
        wanted: WantedRows,
    ) -> Result<PredictionBatches> {
        self.seed_times()?;
        let batcher = self.batcher(fanouts)?;
        let predictor = self.clone();
        let size = self.model.info().evaluation.batch_size;
        Ok(PredictionBatches::of_items(
            ProgressUnit::Nodes,
            nodes,
            size,
            seed,
            move |mut seeds, positions| {
                if let Some(times) = &predictor.data.seed_times {
                    seeds.times = Some(times.of(&seeds.seeds, positions.clone())?);
                }
                predictor.batch(&batcher, seeds, positions, wanted)
            },
        ))
    }

    fn batcher(&self, fanouts: Vec<Vec<Fanout>>) -> Result<NodeBatcher<dyn FrontierSampler>> {
        let config = self.model.sampling().config(self.rule.as_ref())?;
        let sampler = match self.custom_sampler()? {
            Some(custom) => self.data.graph.custom_sampler(custom, fanouts, config)?,
            None => self.data.graph.sampler(fanouts, config)?,
        };
        let mut batcher = NodeBatcher::without_targets(sampler, self.data.features.clone());
        for (name, rows) in self.data.edge_columns.iter() {
            batcher = batcher.edge_column(Arc::clone(name), Arc::clone(rows));
        }
        if let Some(ages) = &self.data.ages {
            batcher = batcher.ages(ages.clone());
        }
        if let Some(schema) = self.schema() {
            let format = self.model.encoder()?.network.input_format();
            batcher = batcher.groups_of_model(format.relation_groups, format.node_groups, schema);
        }
        Ok(batcher)
    }

    /// Returns the sampler of the program; `None` for a model that samples neighbours by a rule.
    ///
    /// # Errors
    /// Returns [`PredictModeError::CustomSampler`] if the model needs one, and [`PredictModeError::OtherSampler`] for another one.
    fn custom_sampler(&self) -> Result<Option<&CustomSampler>> {
        let error = match (&self.model.sampling().sampler, &self.sampler) {
            (None, custom) => return Ok(custom.as_ref()),
            (Some(stored), Some(custom)) if *stored == StoredSampler::from(custom) => {
                return Ok(Some(custom));
            }
            (Some(stored), Some(custom)) => {
                PredictModeError::OtherSampler { expected: stored.to_string(), got: custom.to_string() }
            }
            (Some(stored), None) => PredictModeError::CustomSampler { sampler: stored.to_string() },
        };
        Err(ModelError::Mode(error).into())
    }

    /// Computes the rows of a batch, whose seeds have these positions in the request.
    fn batch(
        &self,
        batcher: &NodeBatcher<dyn FrontierSampler>,
        seeds: SeedBatch,
        positions: Range<usize>,
        wanted: WantedRows,
    ) -> Result<PredictedRows> {
        let input = self.input(batcher, seeds)?;
        let NetworkRows { embeddings, outputs } =
            self.model.encoder()?.run(&input, wanted, self.model.device())?;
        let mut rows = PredictedRows { positions, scores: None, embeddings: None };
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

    /// Samples a batch and copies it to the device of the model. The embedded nodes are positions in the tables of the model.
    fn input(&self, batcher: &NodeBatcher<dyn FrontierSampler>, seeds: SeedBatch) -> Result<NodeInput> {
        self.data.require_edge_columns(&self.model)?;
        let step = seeds.step;
        let mut scratch =
            self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let batch = batcher.batch(seeds, &mut scratch, &mut StageTimes::default());
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        let batch = batch.map_err(|source| self.batch_error(step, source))?;
        let mut input = batch.to_device(self.model.device()).input;
        self.replace_by_rows(input.x.embedded_mut());
        Ok(input)
    }

    /// Replaces the nodes of each type without features by the positions of their rows in the tables of the model.
    fn replace_by_rows(&self, nodes: &mut [Vec<NodeId>]) {
        for (rows, nodes) in self.data.rows.iter().zip(nodes) {
            rows.replace(nodes);
        }
    }

    /// Returns the error of a batch; on a heterogeneous graph with the step, as a loader does.
    fn batch_error(&self, step: usize, source: BatchError) -> Error {
        match source {
            BatchError::Sample(source) if self.schema().is_none() => source.into(),
            BatchError::Feature(source) if self.schema().is_none() => source.into(),
            source => kiln_loader::Error::Batch { step, source }.into(),
        }
    }
}

//! The computation of a predictor's rows: all of them layer by layer, or one batch.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;
use kiln_kernels::{BlockSize, gather_features, to_vec_f32};
use kiln_loader::EdgeRows;
use kiln_sample::{FrontierSampler, RngKey, Seeds};

use crate::error::Result;
use crate::evaluate::layer_wise::{LayerWiseConfig, LayerWiseInference, LayerWiseRows, WantedRows};
use crate::saved::batches::{PredictedRows, PredictionBatches};
use crate::saved::error::ModelError;
use crate::saved::info::StoredEdgeWeights;
use crate::saved::outputs::OutputRows;
use crate::saved::predictor::{GraphAccess, NodePredictor};
use crate::step::node::blocks_to_device;

/// The number of rows of a batch in exact mode, which computes all rows before the first batch.
const EXACT_ROWS: usize = 4096;

impl NodePredictor {
    /// Computes the rows of all nodes layer by layer, and returns those of the requested nodes as batches.
    pub(super) fn exact(
        &self,
        nodes: &[NodeId],
        config: LayerWiseConfig,
        wanted: WantedRows,
    ) -> Result<PredictionBatches> {
        let GraphAccess::Whole(graph) = &self.graph else {
            return Err(ModelError::NeedsWholeGraph { what: "exact mode" }.into());
        };
        let on_progress = self.on_progress.clone();
        let mut inference = LayerWiseInference::new(graph.clone(), config)?.with_progress(on_progress);
        if self.sampling().edge_weights != StoredEdgeWeights::None {
            inference = inference.carry_weights()?;
        }
        if self.sampling().edge_types {
            inference = inference.carry_edge_types()?;
        }
        if let Some(features) = self.edge_features()? {
            let all =
                features.as_edge_features().ok_or(ModelError::NeedsWholeGraph { what: "exact mode" })?;
            inference = inference.carry_edge_features(all.clone())?;
        }
        let network = self.model.node_network()?;
        let LayerWiseRows { outputs, embeddings } =
            network.exact(&inference, &*self.features, wanted, self.model.device())?;
        let scores = outputs.map(|rows| Arc::new(rows) as Arc<dyn FeatureStore>);
        let embeddings = embeddings.map(|rows| Arc::new(rows) as Arc<dyn FeatureStore>);
        let embeddings = embeddings.or_else(|| wanted.has_embeddings().then(|| self.features.clone()));
        let nodes: Arc<[NodeId]> = nodes.into();
        let n_batches = nodes.len().div_ceil(EXACT_ROWS);
        Ok(PredictionBatches::new(nodes.len(), n_batches, move |batch| {
            let positions = batch * EXACT_ROWS..nodes.len().min((batch + 1) * EXACT_ROWS);
            let select = |rows: &Arc<dyn FeatureStore>| -> Result<OutputRows> {
                let mut selected = FeatureBuffer::empty(rows.dtype());
                rows.gather(&nodes[positions.clone()], &mut selected)?;
                Ok(OutputRows::new(selected.into_f32(), rows.dim()))
            };
            let scores = scores.as_ref().map(select).transpose()?;
            let embeddings = embeddings.as_ref().map(select).transpose()?;
            Ok(PredictedRows { positions, scores, embeddings })
        }))
    }

    /// Computes the rows of the nodes at these positions of the request.
    pub(super) fn batch(
        &self,
        sampler: &dyn FrontierSampler,
        key: RngKey,
        nodes: Vec<NodeId>,
        positions: Range<usize>,
        wanted: WantedRows,
    ) -> Result<PredictedRows> {
        let mut rows = PredictedRows { positions, scores: None, embeddings: None };
        let (network, device) = (self.model.node_network()?, self.model.device());
        let mut scratch =
            self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let sampled = sampler.sample_blocks(&Seeds::nodes(nodes), key, &mut scratch);
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        let sampled = sampled?;
        let rows_of_seeds: Vec<usize> = sampled.seed_index.iter().map(|row| row.index()).collect();
        let x = gather_features(&*self.features, sampled.blocks[0].srcs(), device)?;
        let edge_features = self.edge_features()?;
        let edge_rows =
            edge_features.map(|features| EdgeRows::gather(features, &sampled.blocks)).transpose()?;
        let blocks = blocks_to_device(sampled.blocks, edge_rows, Some(BlockSize::SAMPLED), device);
        if wanted.has_embeddings() {
            // The destinations of a block are its first sources.
            let hidden = network.hidden(&blocks, x.clone());
            let [_, width] = hidden.dims();
            rows.embeddings = Some(OutputRows::new(to_vec_f32(hidden), width).take(&rows_of_seeds));
        }
        if wanted.has_outputs() {
            rows.scores = Some(self.model.scores(network.forward(&blocks, x))?.take(&rows_of_seeds));
        }
        Ok(rows)
    }
}

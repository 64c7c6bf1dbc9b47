//! What a loader of links takes from the loader of their nodes.

use std::sync::Arc;

use kiln_data::LinkSplit;
use kiln_feature::{FeatureBuffer, FeatureDType, FeatureStore};
use kiln_graph::{LinkId, Links, NodeId};
use kiln_kernels::GraphMode;
use kiln_sample::{Fanout, SamplerConfig};
use kiln_train::{BatchConfig, EvaluationInfo, Evaluator, ModelInputs};

use crate::source::Source;
use crate::{Error, NeighborLoader, RankHandle, Result};

impl NeighborLoader {
    /// Replaces the graph by the graph of a split that passes messages, normalised or with self loops if this loader's
    /// graph is.
    ///
    /// # Errors
    /// Returns [`Error::OtherGraph`] if the graphs have different numbers of nodes, [`Error::NeedsWholeGraph`] for a
    /// partitioned graph, and [`Error::Graph`] if edge weights are not finite.
    pub(crate) fn on_message_graph(mut self, split: &LinkSplit) -> Result<Self> {
        let message = split.message();
        match &mut self.source {
            Source::Whole { data, graph, step } => {
                let (n_nodes, expected) = (message.n_nodes(), data.graph.n_nodes());
                if n_nodes != expected {
                    return Err(Error::OtherGraph { n_nodes, expected });
                }
                *graph = step.apply(message)?;
                if !Arc::ptr_eq(message, &data.graph) {
                    // The ids of the edges have changed.
                    data.edge_features = split.edge_features().cloned();
                }
                data.graph = Arc::clone(message);
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => return Err(Error::NeedsWholeGraph { what: "a split of links" }),
        }
        Ok(self.unshared())
    }

    /// Returns a loader for an evaluation that reads only the seeds: its blocks have no edges, its feature rows are
    /// zeros, and it copies neither graph nor features to a device.
    pub(crate) fn for_pairs_only(&self) -> Self {
        let mut loader = self.clone();
        loader.sampling = SamplerConfig::new(vec![Fanout::UpTo(0); self.sampling.fanouts.len()]);
        loader.graph_mode = GraphMode::Host;
        loader.feature_cache = None;
        loader.edge_features = false;
        match &mut loader.source {
            Source::Whole { data, .. } => {
                data.features = Arc::new(NoFeatures { n_rows: data.graph.n_nodes() });
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => (),
        }
        loader.unshared()
    }

    pub(crate) fn has_objective(&self) -> bool {
        self.objective.is_some()
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn batch_config(&self) -> BatchConfig {
        self.batches
    }

    /// Returns the setting of the evaluation that a run's result depends on.
    pub(crate) fn evaluation_setting(&self) -> (&'static str, String) {
        ("evaluation", self.evaluation.setting())
    }

    /// Returns the descriptions of the data and of evaluations for a saved model.
    pub(crate) fn describe(&self, seed: u64, n_ranks: usize) -> (ModelInputs, EvaluationInfo) {
        let mut inputs = self.source.model_inputs(&self.sampling);
        let width = self.edge_feature_store().ok().flatten().map(|features| features.dim());
        inputs.sampling = inputs.sampling.map(|sampling| sampling.with_edge_features(width));
        (inputs, self.evaluation.info(seed, self.batches.batch_size, n_ranks))
    }

    pub(crate) fn evaluator_of(&self, rank: &RankHandle) -> Result<Evaluator> {
        match &self.source {
            Source::Whole { data, graph, .. } => {
                let edge_features = self.edge_feature_rows(data, graph)?;
                self.evaluation.evaluator(data, graph, &self.sampling, edge_features, rank)
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => self.evaluation.sampled(),
        }
    }
}

/// Features of one column of zeros, for batches whose features are not read.
#[derive(Debug)]
struct NoFeatures {
    n_rows: usize,
}

impl FeatureStore for NoFeatures {
    fn dim(&self) -> usize {
        1
    }

    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn dtype(&self) -> FeatureDType {
        FeatureDType::F32
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        if let Some(&node) = ids.iter().find(|node| self.n_rows <= node.index()) {
            return Err(kiln_feature::Error::NodeOutOfRange { node, n_rows: self.n_rows });
        }
        *out = FeatureBuffer::F32(vec![0.0; ids.len()]);
        Ok(())
    }
}

/// Returns the sources and the destinations of some links.
pub(crate) fn nodes_of_links(links: &Links, ids: &[LinkId]) -> Vec<NodeId> {
    ids.iter().map(|link| links.pair(*link)).flat_map(|(src, dst)| [src, dst]).collect()
}

#[cfg(test)]
mod tests {
    use kiln_data::synthetic;
    use kiln_kernels::GraphMode;
    use kiln_train::HostOrDeviceBatcher;

    use super::*;

    /// The CPU device of this test cannot sample, so a copy of the graph on the device would be an error.
    #[test]
    fn a_loader_for_pairs_copies_nothing_to_the_device_and_gathers_no_features() {
        let data = synthetic::ring(100).unwrap();
        let nodes = NeighborLoader::new(&data, [10, 10]).graph_mode(GraphMode::Device).feature_cache(1 << 10);
        let pairs = nodes.for_pairs_only();
        let device = burn::tensor::Device::flex();
        let batcher = pairs.batcher(&device, None, || panic!("the cache should not be sampled")).unwrap();
        assert!(matches!(batcher, HostOrDeviceBatcher::Host(_)), "{batcher:?}");
        assert!(pairs.device_copies().is_empty() && nodes.device_copies().is_empty());
        let Source::Whole { data: of_pairs, .. } = &pairs.source else {
            panic!("the source should be a dataset")
        };
        let mut rows = FeatureBuffer::empty(FeatureDType::F32);
        of_pairs.features.gather(&[NodeId(7), NodeId(99)], &mut rows).unwrap();
        assert_eq!((of_pairs.features.dim(), rows.into_f32()), (1, vec![0.0; 2]));
        of_pairs.features.gather(&[NodeId(100)], &mut FeatureBuffer::empty(FeatureDType::F32)).unwrap_err();
        assert_eq!(
            nodes.source.data_hash(None).wait().unwrap(),
            data.hash().unwrap(),
            "the loader should not change"
        );
    }
}

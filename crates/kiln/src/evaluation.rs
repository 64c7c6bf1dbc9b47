use std::sync::Arc;

use kiln_feature::EdgeColumnStores;
use kiln_loader::NodeTargets;
use kiln_sample::EdgeWeights;
use kiln_train::{
    EvaluatedNeighbors, EvaluationInfo, Evaluator, ExactEvaluator, InferenceGraph, LayerWiseConfig,
    LayerWiseInference,
};

use crate::source::{Sampling, Source, WholeGraph, feature_stores};
use crate::{Error, RankHandle, Result};

/// The neighbours that evaluation reads, and the ranks that evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvalMode {
    /// All ranks evaluate their shares of the nodes, with sampled neighbours as in training.
    #[default]
    Sampled,
    /// Rank 0 evaluates alone, with sampled neighbours. Metrics are computed on at most `n_batches` batches of a
    /// split, predictions on the whole split.
    FirstRank {
        /// The maximum number of batches for metrics.
        n_batches: usize,
    },
    /// Rank 0 evaluates alone on all neighbours, layer by layer over the whole graph.
    Exact {
        /// The limit in bytes for layer outputs in memory; the rest is written to files in the system's folder for
        /// temporary files. `None` sets no limit.
        memory_bytes: Option<u64>,
    },
}

impl EvalMode {
    /// Returns the setting that identifies this mode in a run's fingerprint.
    pub(crate) fn setting(self) -> String {
        match self {
            Self::Sampled => "sampled".to_owned(),
            Self::FirstRank { n_batches } => format!("{n_batches} batches of the first rank"),
            Self::Exact { .. } => "exact".to_owned(),
        }
    }

    /// Returns the description of an evaluation in this mode for a saved model.
    pub(crate) fn info(self, seed: u64, batch_size: usize, n_ranks: usize) -> EvaluationInfo {
        let (n_ranks, neighbors) = match self {
            Self::Sampled => (n_ranks, EvaluatedNeighbors::Sampled),
            // Predictions of the whole split are computed by rank 0 alone.
            Self::FirstRank { .. } => (1, EvaluatedNeighbors::Sampled),
            Self::Exact { memory_bytes } => (1, EvaluatedNeighbors::Exact { memory_bytes }),
        };
        EvaluationInfo { seed, batch_size, n_ranks, neighbors }
    }

    /// Returns the evaluator of a graph whose nodes have these targets. `test_graph` is that of the test, if it differs.
    ///
    /// # Errors
    /// Returns [`Error::NeedsWholeGraph`] for an evaluation by rank 0 alone on a partitioned graph, and an error if the edges
    /// lack what the sampling reads.
    pub(crate) fn evaluator(
        self,
        graph: EvaluatedGraph,
        test_graph: Option<EvaluatedGraph>,
        targets: NodeTargets,
        sampling: &Sampling,
        rank: &RankHandle,
    ) -> Result<Evaluator> {
        let memory_bytes = match (self, graph.source.whole()) {
            (Self::Sampled, _) => return Ok(Evaluator::Sampled),
            (Self::FirstRank { n_batches }, Some(_)) => return Ok(Evaluator::FirstRank { n_batches }),
            (Self::FirstRank { .. }, None) => {
                return Err(Error::NeedsWholeGraph { what: "evaluation on rank 0" });
            }
            (Self::Exact { .. }, None) => return Err(Error::NeedsWholeGraph { what: "exact evaluation" }),
            (Self::Exact { memory_bytes }, Some(_)) => memory_bytes,
        };
        let features = feature_stores(&*graph.source);
        let inference = graph.inference(memory_bytes, sampling)?;
        let test_inference = test_graph.map(|graph| graph.inference(memory_bytes, sampling)).transpose()?;
        let threads = rank.process.machine_pool()?;
        let first_ends = [0; 2];
        Ok(Evaluator::Exact(ExactEvaluator {
            inference,
            test_inference,
            features,
            targets,
            first_ends,
            threads,
        }))
    }
}

/// A graph on which evaluations compute outputs, with the columns of its edges.
pub(crate) struct EvaluatedGraph {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) edge_columns: Result<EdgeColumnStores>,
}

impl EvaluatedGraph {
    /// Returns the exact inference on the graph.
    fn inference(self, memory_bytes: Option<u64>, sampling: &Sampling) -> Result<LayerWiseInference> {
        let graph = self.source.whole().ok_or(Error::NeedsWholeGraph { what: "exact evaluation" })?;
        let graph = match graph {
            WholeGraph::One(graph) => InferenceGraph::from(Arc::clone(graph)),
            WholeGraph::Relations(graph) => InferenceGraph::from(Arc::clone(graph)),
        };
        let inference = LayerWiseInference::new(graph, LayerWiseConfig::within(memory_bytes))?;
        let mut inference = inference.relation_fanouts(sampling.fanouts.clone());
        if sampling.config.weights != EdgeWeights::None {
            inference = inference.carry_weights()?;
        }
        if sampling.config.edge_types {
            inference = inference.carry_edge_types()?;
        }
        for (name, rows) in self.edge_columns?.iter() {
            inference = inference.carry_edge_column(Arc::clone(name), Arc::clone(rows))?;
        }
        Ok(inference)
    }
}

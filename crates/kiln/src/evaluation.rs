use std::sync::Arc;

use kiln_data::Dataset;
use kiln_graph::Csc;
use kiln_sample::EdgeWeights;
use kiln_train::{Evaluator, ExactEvaluator, LayerWiseConfig, LayerWiseInference, Spill};

#[cfg(feature = "grpc")]
use crate::Error;
use crate::{RankHandle, Result};

/// The neighbours that evaluation reads, and who evaluates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvalMode {
    /// Each rank takes its share of the nodes, with sampled neighbours as in training.
    #[default]
    Sampled,
    /// Rank 0 takes all nodes, with sampled neighbours; validation takes so many batches at most.
    FirstRank {
        /// The number of batches.
        n_batches: usize,
    },
    /// All neighbours, layer by layer over the whole graph, on rank 0.
    Exact {
        /// The bytes of layers' outputs that may be held in memory, with files in the system's folder for temporary ones
        /// for the rest; `None` for no limit.
        memory_bytes: Option<u64>,
    },
}

impl EvalMode {
    /// What a run's result depends on.
    pub(crate) fn setting(self) -> String {
        match self {
            Self::Sampled => "sampled".to_owned(),
            Self::FirstRank { n_batches } => format!("{n_batches} batches of the first rank"),
            Self::Exact { .. } => "exact".to_owned(),
        }
    }

    pub(crate) fn evaluator(
        self,
        data: &Dataset,
        graph: &Arc<Csc>,
        weights: EdgeWeights,
        rank: &RankHandle,
    ) -> Result<Evaluator> {
        let memory_bytes = match self {
            Self::Sampled => return Ok(Evaluator::Sampled),
            Self::FirstRank { n_batches } => return Ok(Evaluator::FirstRank { n_batches }),
            Self::Exact { memory_bytes } => memory_bytes,
        };
        let mut config = LayerWiseConfig::default();
        if let Some(memory_bytes) = memory_bytes {
            config.range_bytes = config.range_bytes.min(memory_bytes / 8);
            config.spill = Some(Spill { memory_bytes, folder: std::env::temp_dir() });
        }
        let mut inference = LayerWiseInference::new(graph.clone(), config)?;
        if weights != EdgeWeights::None {
            inference = inference.carry_weights()?;
        }
        let (features, labels) = (data.features.clone(), data.labels.clone());
        let threads = rank.process.machine_pool()?;
        Ok(Evaluator::Exact(ExactEvaluator { inference, features, labels, threads }))
    }

    /// The evaluator of a partitioned graph, of which nobody has all edges.
    #[cfg(feature = "grpc")]
    pub(crate) fn sampled(self) -> Result<Evaluator> {
        match self {
            Self::Sampled => Ok(Evaluator::Sampled),
            Self::FirstRank { .. } => Err(Error::NeedsWholeGraph { what: "evaluation by the first rank" }),
            Self::Exact { .. } => Err(Error::NeedsWholeGraph { what: "exact evaluation" }),
        }
    }
}

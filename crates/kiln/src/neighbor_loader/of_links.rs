//! What a loader of links takes from the loader of their nodes.

use std::sync::Arc;

use kiln_data::LinkSplit;
use kiln_graph::{LinkId, Links, NodeId, gcn_norm};
use kiln_sample::Fanout;
use kiln_train::{BatchConfig, EvaluationInfo, Evaluator, ModelInputs};

use crate::source::Source;
use crate::{Error, NeighborLoader, RankHandle, Result};

impl NeighborLoader {
    /// Replaces the graph by the graph of a split that passes messages, normalised if this loader's graph is.
    ///
    /// # Errors
    /// Returns [`Error::OtherGraph`] if the graphs have different numbers of nodes, [`Error::NeedsWholeGraph`] for a
    /// partitioned graph, and [`Error::Graph`] if edge weights are not finite.
    pub(crate) fn on_message_graph(mut self, split: &LinkSplit) -> Result<Self> {
        let message = split.message();
        match &mut self.source {
            Source::Whole { data, graph, is_normalized } => {
                let (n_nodes, expected) = (message.n_nodes(), data.graph.n_nodes());
                if n_nodes != expected {
                    return Err(Error::OtherGraph { n_nodes, expected });
                }
                *graph = if *is_normalized { Arc::new(gcn_norm(message)?) } else { Arc::clone(message) };
                data.graph = Arc::clone(message);
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => return Err(Error::NeedsWholeGraph { what: "a split of links" }),
        }
        Ok(self.unshared())
    }

    /// Returns a loader whose blocks have no edges, for an evaluation that reads only the seeds.
    pub(crate) fn without_neighbors(&self) -> Self {
        let mut loader = self.clone();
        loader.sampling.fanouts.iter_mut().for_each(|fanout| *fanout = Fanout::UpTo(0));
        loader.unshared()
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
        let inputs = self.source.model_inputs(&self.sampling);
        (inputs, self.evaluation.info(seed, self.batches.batch_size, n_ranks))
    }

    pub(crate) fn evaluator_of(&self, rank: &RankHandle) -> Result<Evaluator> {
        match &self.source {
            Source::Whole { data, graph, .. } => {
                self.evaluation.evaluator(data, graph, self.sampling.weights, rank)
            }
            #[cfg(feature = "grpc")]
            Source::Partitioned(_) => self.evaluation.sampled(),
        }
    }
}

/// Returns the sources and the destinations of some links.
pub(crate) fn nodes_of_links(links: &Links, ids: &[LinkId]) -> Vec<NodeId> {
    ids.iter().map(|link| links.pair(*link)).flat_map(|(src, dst)| [src, dst]).collect()
}

use kiln_graph::{Links, NodeId};

use crate::error::Result;
use crate::evaluate::layer_wise::WantedRows;
use crate::saved::link_scorer::{LinkScorer, LinkScorerBuilder};
use crate::saved::mode::PredictMode;
use crate::saved::predictor::NodePredictor;
use crate::saved::top_k::{ScoredLink, TopKConfig};

impl NodePredictor {
    /// Computes the rows of nodes, in any order and with repetitions, from which pairs of them are scored. The row of
    /// each node is computed once. A memory limit of exact mode also applies to the rows, beside the outputs of layers.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model was not trained for links, and the errors of
    /// [`NodePredictor::predict`].
    pub fn link_scorer(&self, nodes: Vec<NodeId>, mode: &PredictMode) -> Result<LinkScorer> {
        let builder = LinkScorerBuilder::new(self.model(), nodes, self.memory_bytes(mode))?;
        let batches = self.batches(builder.nodes(), mode, WantedRows::Outputs)?;
        builder.of_batches(&batches)
    }

    /// Returns the score of each link, a logit, by a model of link prediction. The links need not be in the graph.
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::link_scorer`].
    pub fn score_links(&self, links: &Links, mode: &PredictMode) -> Result<Vec<f32>> {
        let nodes = links.srcs().iter().chain(links.dsts().iter()).copied().collect();
        self.link_scorer(nodes, mode)?.score(links)
    }

    /// Finds the destinations with the largest scores of each source among all nodes of the graph, as
    /// [`LinkScorer::top_k`] does.
    ///
    /// # Errors
    /// Returns the errors of [`NodePredictor::link_scorer`] and [`LinkScorer::top_k`].
    pub fn top_k(&self, srcs: &[NodeId], config: &TopKConfig, mode: &PredictMode) -> Result<Vec<ScoredLink>> {
        let nodes = (0..self.n_nodes() as u32).map(NodeId).collect();
        self.link_scorer(nodes, mode)?.top_k(srcs, config)
    }

    /// Returns the memory limit of a mode, in bytes.
    fn memory_bytes(&self, mode: &PredictMode) -> Option<u64> {
        match mode {
            PredictMode::Exact(config) => config.spill.as_ref().map(|spill| spill.memory_bytes),
            PredictMode::AsEvaluated => self.model().info().evaluation.neighbors.memory_bytes(),
            PredictMode::Sampled { .. } | PredictMode::SampledByRelation { .. } => None,
        }
    }
}

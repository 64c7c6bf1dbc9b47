use burn::tensor::{Tensor, TensorData};
use kiln_graph::{Links, NodeId};
use kiln_kernels::to_vec_f32;
use kiln_nn::LinkPairs;

use crate::error::Result;
use crate::saved::mode::PredictMode;
use crate::saved::predictor::NodePredictor;
use crate::saved::registry::context;

/// The maximum number of pairs that are scored at once.
const PAIRS_AT_ONCE: usize = 1 << 16;

impl NodePredictor {
    /// Returns the score of each link, a logit, by a model of link prediction. The links need not be in the graph. The
    /// row of each node is computed once.
    ///
    /// # Errors
    /// Returns [`Error::Saved`](crate::Error::Saved) if the model was not trained for links, and the errors of
    /// [`NodePredictor::predict`].
    pub fn score_links(&self, links: &Links, mode: &PredictMode) -> Result<Vec<f32>> {
        let decoder = self.model().decoder()?;
        let mut nodes: Vec<NodeId> = links.srcs().iter().chain(links.dsts().iter()).copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        let rows = self.predict(&nodes, mode)?;
        let (n_rows, device) = (rows.n_rows(), self.model().device());
        let values = TensorData::new(rows.values().to_vec(), [n_rows, rows.width()]);
        let values = Tensor::<2>::from_data(values, device);
        let row_of = |node: &NodeId| nodes.partition_point(|other| other < node) as u32;
        let mut scores = Vec::with_capacity(links.len());
        for (srcs, dsts) in links.srcs().chunks(PAIRS_AT_ONCE).zip(links.dsts().chunks(PAIRS_AT_ONCE)) {
            let [srcs, dsts] = [srcs, dsts].map(|nodes| nodes.iter().map(row_of).collect::<Vec<u32>>());
            // Predictions have no dropout, so the pairs need no ids of their own.
            let pairs = LinkPairs::upload(&srcs, &dsts, vec![0; srcs.len()], n_rows, device);
            scores.extend(to_vec_f32(decoder.score_pairs(values.clone(), &pairs, &context())));
        }
        Ok(scores)
    }
}

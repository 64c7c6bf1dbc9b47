use std::path::Path;

use kiln_graph::{EdgeId, NodeId};

use crate::{EdgeWeights, Error, Fanout, HopRequest, Result, RngKey, SampledBlocks, Scratch, Seeds, block};

/// The edges picked in one hop, in global ids: for each destination, in the order given, its picked
/// edges in ascending edge order.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `indptr` | `u32` | `n_dst + 1` | destination |
/// | `srcs` | [`NodeId`] | `n_edges` | position of the edge in the frontier; its source |
/// | `edge_ids` | [`EdgeId`] | `n_edges` | the same; the graph's edge |
/// | `weights` | `f32` | `n_edges` | the same; `None` when weights were not asked for |
#[derive(Debug, Clone, PartialEq)]
pub struct Frontier {
    /// Where each destination's edges start.
    pub indptr: Vec<u32>,
    /// Each edge's source.
    pub srcs: Vec<NodeId>,
    /// Each edge's id in the graph.
    pub edge_ids: Vec<EdgeId>,
    /// Each edge's weight, where asked for.
    pub weights: Option<Vec<f32>>,
}

impl Default for Frontier {
    fn default() -> Self {
        Self { indptr: vec![0], srcs: Vec::new(), edge_ids: Vec::new(), weights: None }
    }
}

impl Frontier {
    /// Number of destinations.
    pub fn n_dst(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Whether the arrays fit each other and this number of destinations.
    ///
    /// # Errors
    /// [`Error::BadFrontier`], which names the layer.
    pub fn check(&self, layer: usize, n_dst: usize) -> Result<()> {
        let is_right = self.indptr.len() == n_dst + 1
            && self.indptr[0] == 0
            && self.indptr.is_sorted()
            && self.indptr[n_dst] as usize == self.srcs.len()
            && self.edge_ids.len() == self.srcs.len()
            && self.weights.as_ref().is_none_or(|weights| weights.len() == self.srcs.len());
        let (n_srcs, n_edge_ids) = (self.srcs.len(), self.edge_ids.len());
        match is_right {
            true => Ok(()),
            false => {
                Err(Error::BadFrontier { layer, n_dst: self.n_dst(), n_srcs, n_edge_ids, expected: n_dst })
            }
        }
    }

    /// Number of edges.
    pub fn n_edges(&self) -> usize {
        self.srcs.len()
    }
}

/// Samples a batch hop by hop: it picks the edges of one hop, and joins the hops to blocks. A sampler holds
/// its graph, so this trait does not name one.
pub trait FrontierSampler: Send + Sync {
    /// One fanout a layer, input layer first.
    fn fanouts(&self) -> &[Fanout];

    /// The weights that the edges of its blocks carry.
    fn weights(&self) -> EdgeWeights {
        EdgeWeights::None
    }

    /// Number of nodes of the graph; ids are below it.
    fn n_nodes(&self) -> usize;

    /// The file that the sources of its edges are mapped from, where there is one: errors name it.
    fn indices_path(&self) -> Option<&Path> {
        None
    }

    /// Fills `out` with the edges picked for `dsts`, which are distinct. What `out` held before is
    /// overwritten; its memory is used again. The fanout and the weights are the request's, whatever those
    /// of the sampler are.
    ///
    /// # Errors
    /// A destination that the graph does not have, a damaged graph, weights of a graph without weights, or
    /// more edges than a block holds.
    fn sample_frontier(
        &self,
        request: HopRequest,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()>;

    /// Number of layers, one hop and one block each.
    fn n_layers(&self) -> usize {
        self.fanouts().len()
    }

    /// Samples one block a layer for `seeds`, drawing from `key` only, which is the step's. A sampler that
    /// does not work hop by hop implements this method itself.
    ///
    /// The last block's destinations are the distinct seeds in the order of their first appearance.
    ///
    /// # Errors
    /// A seed that the graph does not have, and the errors of [`sample_frontier`](Self::sample_frontier).
    fn sample_blocks(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<SampledBlocks> {
        block::sample_blocks(self, seeds, key, scratch)
    }
}

use kiln_graph::{EdgeId, NodeId};

use crate::{Result, SamplerError};

/// The edges picked in one hop, in global ids. Destinations are in the given order, the edges of each destination in
/// ascending order of edge ids.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `indptr` | `u32` | `n_dst + 1` | destination |
/// | `srcs` | [`NodeId`] | `n_edges` | position of the edge in the frontier; its source |
/// | `edge_ids` | [`EdgeId`] | `n_edges` | the same; the graph's edge |
/// | `weights` | `f32` | `n_edges` | the same; `None` if the request has [`EdgeWeights::None`](crate::EdgeWeights::None) |
/// | `edge_types` | `u8` | `n_edges` | the same; `None` unless they are requested |
#[derive(Debug, Clone, PartialEq)]
pub struct Frontier {
    /// The offsets of the edges by destination: those of `v` are `indptr[v]..indptr[v + 1]`.
    pub indptr: Vec<u32>,
    /// Each edge's source.
    pub srcs: Vec<NodeId>,
    /// Each edge's id in the graph.
    pub edge_ids: Vec<EdgeId>,
    /// Each edge's weight; `None` if the request has [`EdgeWeights::None`](crate::EdgeWeights::None).
    pub weights: Option<Vec<f32>>,
    /// Each edge's type; `None` unless the request asks for edge types.
    pub edge_types: Option<Vec<u8>>,
}

impl Default for Frontier {
    fn default() -> Self {
        Self { indptr: vec![0], srcs: Vec::new(), edge_ids: Vec::new(), weights: None, edge_types: None }
    }
}

impl Frontier {
    /// Returns the number of destinations.
    pub fn n_dst(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Checks that the arrays are consistent and match the number of destinations. The error contains `layer`.
    ///
    /// # Errors
    /// Returns [`SamplerError::BadFrontier`] if the arrays are inconsistent or have another number of destinations.
    pub fn check(&self, layer: usize, n_dst: usize) -> Result<()> {
        let is_right = self.indptr.len() == n_dst + 1
            && self.indptr[0] == 0
            && self.indptr.is_sorted()
            && self.indptr[n_dst] as usize == self.srcs.len()
            && self.edge_ids.len() == self.srcs.len()
            && self.weights.as_ref().is_none_or(|weights| weights.len() == self.srcs.len())
            && self.edge_types.as_ref().is_none_or(|types| types.len() == self.srcs.len());
        let n_srcs = self.srcs.len();
        let n_edge_ids = self.edge_ids.len();
        match is_right {
            true => Ok(()),
            false => Err(SamplerError::BadFrontier {
                layer,
                n_dst: self.n_dst(),
                n_srcs,
                n_edge_ids,
                expected: n_dst,
            }
            .into()),
        }
    }

    /// Returns the number of edges.
    pub fn n_edges(&self) -> usize {
        self.srcs.len()
    }

    /// Removes all edges, and leaves `n_dst` destinations without edges.
    pub(crate) fn clear_edges(&mut self, n_dst: usize) {
        self.indptr.clear();
        self.indptr.resize(n_dst + 1, 0);
        self.srcs.clear();
        self.edge_ids.clear();
        self.weights.iter_mut().for_each(Vec::clear);
        self.edge_types.iter_mut().for_each(Vec::clear);
    }
}

use crate::Result;

/// The maximum number of edges of a chunk.
pub(crate) const CHUNK_EDGES: usize = 1 << 13;

/// A list of edges that can be read repeatedly, in chunks.
pub trait EdgeSource {
    /// Returns the kinds of data that each edge has.
    fn edge_data(&self) -> EdgeData;

    /// Calls `visit` with all edges in the order of the list, at most 8192 at a time. Each call of this function must
    /// produce the same edges. The visitor may change the chunk.
    ///
    /// # Errors
    /// Returns an error with the position of the first id that is not below `n_nodes`, an error if the list is
    /// otherwise invalid, and the first error of `visit`, after which reading stops.
    fn for_each_chunk(
        &self,
        n_nodes: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>,
    ) -> Result<()>;
}

/// The kinds of data that the edges of a source have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeData {
    /// True if each edge has a weight.
    pub weights: bool,
    /// True if each edge has a type.
    pub edge_types: bool,
}

/// A chunk of a list of edges `srcs[i] -> dsts[i]`. `weights` and `edge_types` have the same length as `srcs`, or are
/// empty if the edges have no weights or no types.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EdgeChunk {
    /// The source of each edge.
    pub srcs: Vec<u32>,
    /// The destination of each edge.
    pub dsts: Vec<u32>,
    /// The weight of each edge; empty if the edges have no weights.
    pub weights: Vec<f32>,
    /// The type of each edge; empty if the edges have no types.
    pub edge_types: Vec<u8>,
}

impl EdgeChunk {
    /// Returns the number of edges.
    pub fn len(&self) -> usize {
        self.srcs.len()
    }

    /// Returns true if there are no edges.
    pub fn is_empty(&self) -> bool {
        self.srcs.is_empty()
    }

    /// Removes the edges and keeps the allocated memory.
    pub(crate) fn clear(&mut self) {
        self.srcs.clear();
        self.dsts.clear();
        self.weights.clear();
        self.edge_types.clear();
    }
}

use crate::Result;

/// Most edges of a chunk.
pub(crate) const CHUNK_EDGES: usize = 1 << 13;

/// A list of edges that can be read more than once, some edges at a time.
pub trait EdgeSource {
    /// Which data each edge has.
    fn edge_data(&self) -> EdgeData;

    /// Calls `visit` with all edges in the order of the list, at most 8192 at a time; the same edges each
    /// time that it is called. The visitor may change the chunk.
    ///
    /// # Errors
    /// One that names the place of the first id that is not below `n_nodes`; what is wrong with the list
    /// otherwise; and what `visit` gives, which ends the reading.
    fn for_each_chunk(
        &self,
        n_nodes: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>,
    ) -> Result<()>;
}

/// Which data the edges of a source have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EdgeData {
    /// Whether each edge has a weight.
    pub weights: bool,
    /// Whether each edge has a type.
    pub edge_types: bool,
}

/// Some edges of a list: `srcs[i] -> dsts[i]`. `weights` and `edge_types` are as long, or empty for a source
/// without them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EdgeChunk {
    /// Where each edge comes from.
    pub srcs: Vec<u32>,
    /// Where each edge goes.
    pub dsts: Vec<u32>,
    /// Each edge's weight.
    pub weights: Vec<f32>,
    /// Each edge's type.
    pub edge_types: Vec<u8>,
}

impl EdgeChunk {
    /// Number of edges.
    pub fn len(&self) -> usize {
        self.srcs.len()
    }

    /// Whether there are no edges.
    pub fn is_empty(&self) -> bool {
        self.srcs.is_empty()
    }

    /// Forgets the edges and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.srcs.clear();
        self.dsts.clear();
        self.weights.clear();
        self.edge_types.clear();
    }
}

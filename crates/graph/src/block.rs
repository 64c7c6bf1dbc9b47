use crate::{EdgeId, LocalId, NodeId, TransposedBlock};

/// The message-flow graph of one layer: a bipartite CSC from sources to destinations in local ids. The first `n_dst`
/// sources are the destinations.
///
/// ```text
/// edges 7 -> 2, 9 -> 2, 2 -> 7 for destinations [2, 7]:
///   srcs = [2, 7, 9]   n_dst = 2   indptr = [0, 2, 3]   indices = [1, 2, 0]
/// ```
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `srcs` | [`NodeId`] | `n_src` | [`LocalId`]; destinations first; distinct in blocks made by a sampler, with times as pairs of a node and a time |
/// | `indptr` | `u32` | `n_dst + 1` | destination |
/// | `indices` | [`LocalId`] | `n_edges` | position of the edge in the block; its source |
/// | `edge_ids` | [`EdgeId`] | `n_edges` | the same; the graph's edge, ascending for each destination |
/// | `weights` | `f32` | `n_edges` | the same; `None` unless the sampler was configured to return weights |
/// | `edge_types` | `u8` | `n_edges` | the same; `None` unless the sampler was configured to return edge types |
/// | [`src_times`](Block::src_times) | `i64` | `n_src` | [`LocalId`]; the time of the item in whose tree the source is; `None` without times |
///
/// A block may cache its [`TransposedBlock`]. The cache is derived data: equality ignores it.
#[derive(Debug, Clone)]
pub struct Block {
    parts: BlockParts,
    src_times: Option<Vec<i64>>,
    /// The cached transposed block, once [`Block::transpose`] has built it.
    transposed: Option<TransposedBlock>,
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts && self.src_times == other.src_times
    }
}

/// The arrays of a [`Block`]; see its table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockParts {
    /// The global ids of the sources; the first `indptr.len() - 1` are the destinations.
    pub srcs: Vec<NodeId>,
    /// The offsets of the edges by destination: those of `v` are `indptr[v]..indptr[v + 1]`.
    pub indptr: Vec<u32>,
    /// The source of each edge.
    pub indices: Vec<LocalId>,
    /// The id of each edge in the graph.
    pub edge_ids: Vec<EdgeId>,
    /// The weight of each edge; `None` unless the sampler was configured to return weights.
    pub weights: Option<Vec<f32>>,
    /// The type of each edge; `None` unless the sampler was configured to return edge types.
    pub edge_types: Option<Vec<u8>>,
}

impl Block {
    /// Creates a block from its arrays. It does not check that sources are distinct
    /// (`kiln_testkit::check_block` does).
    ///
    /// # Panics
    /// Panics if the arrays are inconsistent, which is a bug in the sampler that made them.
    pub fn new(parts: BlockParts) -> Self {
        let BlockParts { srcs, indptr, indices, edge_ids, weights, edge_types } = &parts;
        assert!(!indptr.is_empty(), "indptr has no entries, expected n_dst + 1");
        let n_dst = indptr.len() - 1;
        assert!(n_dst <= srcs.len(), "the block has {n_dst} destinations, but only {} sources", srcs.len());
        assert_eq!(indptr[0], 0, "indptr starts at {}, expected 0", indptr[0]);
        assert!(indptr.windows(2).all(|pair| pair[0] <= pair[1]), "indptr decreases");
        assert_eq!(indptr[n_dst] as usize, indices.len(), "indptr must end at the number of indices");
        assert_eq!(edge_ids.len(), indices.len(), "the numbers of edge ids and indices differ");
        if let Some(weights) = weights {
            assert_eq!(weights.len(), indices.len(), "the numbers of weights and indices differ");
        }
        if let Some(edge_types) = edge_types {
            assert_eq!(edge_types.len(), indices.len(), "the numbers of edge types and indices differ");
        }
        // The compiler vectorises this fold over 32-bit values, but not `Iterator::max`, which returns an `Option`.
        let largest = indices.iter().fold(0, |largest, src| src.0.max(largest)) as usize;
        let in_range = indices.is_empty() || largest < srcs.len();
        assert!(in_range, "local id {largest} is out of range for {} sources", srcs.len());
        Self { parts, src_times: None, transposed: None }
    }

    /// Sets the time of each source: that of the item in whose tree it is.
    ///
    /// # Panics
    /// Panics unless there is one time per source.
    #[must_use]
    pub fn with_src_times(self, src_times: Vec<i64>) -> Self {
        assert_eq!(src_times.len(), self.n_src(), "the numbers of times and sources differ");
        Self { src_times: Some(src_times), ..self }
    }

    /// Returns the number of sources.
    pub fn n_src(&self) -> usize {
        self.parts.srcs.len()
    }

    /// Returns the number of destinations.
    pub fn n_dst(&self) -> usize {
        self.parts.indptr.len() - 1
    }

    /// Returns the number of edges.
    pub fn n_edges(&self) -> usize {
        self.parts.indices.len()
    }

    /// Returns the global ids of the sources, destinations first.
    pub fn srcs(&self) -> &[NodeId] {
        &self.parts.srcs
    }

    /// Returns the global ids of the destinations.
    pub fn dsts(&self) -> &[NodeId] {
        &self.parts.srcs[..self.n_dst()]
    }

    /// Returns the offsets of the edges by destination: those of `v` are `indptr[v]..indptr[v + 1]`.
    pub fn indptr(&self) -> &[u32] {
        &self.parts.indptr
    }

    /// Returns the source of each edge.
    pub fn indices(&self) -> &[LocalId] {
        &self.parts.indices
    }

    /// Returns the id of each edge in the graph.
    pub fn edge_ids(&self) -> &[EdgeId] {
        &self.parts.edge_ids
    }

    /// Returns the weight of each edge; `None` unless the sampler was configured to return weights.
    pub fn weights(&self) -> Option<&[f32]> {
        self.parts.weights.as_deref()
    }

    /// Returns the type of each edge; `None` unless the sampler was configured to return edge types.
    pub fn edge_types(&self) -> Option<&[u8]> {
        self.parts.edge_types.as_deref()
    }

    /// Returns the time of each source, destinations first; `None` unless items have times.
    pub fn src_times(&self) -> Option<&[i64]> {
        self.src_times.as_deref()
    }

    /// Converts a local id to the node's global id.
    ///
    /// # Panics
    /// Panics if the id is not below [`Block::n_src`].
    pub fn global(&self, local: LocalId) -> NodeId {
        self.parts.srcs[local.index()]
    }

    /// Builds and caches the transposed block, unless it is cached already. Loader workers call it in advance, so that
    /// the backward pass does not wait for it.
    pub fn transpose(&mut self) {
        if self.transposed.is_none() {
            self.transposed = Some(TransposedBlock::of(self));
        }
    }

    /// Returns the cached transposed block; `None` unless [`Block::transpose`] was called.
    pub fn transposed(&self) -> Option<&TransposedBlock> {
        self.transposed.as_ref()
    }

    /// Removes the cached transposed block and returns it; `None` if there is none.
    pub fn take_transposed(&mut self) -> Option<TransposedBlock> {
        self.transposed.take()
    }

    /// Returns the block's arrays, without the times.
    pub fn into_parts(self) -> BlockParts {
        self.parts
    }

    /// Returns the memory of the block's arrays in bytes: the capacities of their vectors, plus the cached transposed
    /// block.
    pub fn n_bytes(&self) -> usize {
        let BlockParts { srcs, indptr, indices, edge_ids, weights, edge_types } = &self.parts;
        srcs.capacity() * size_of::<NodeId>()
            + indptr.capacity() * size_of::<u32>()
            + indices.capacity() * size_of::<LocalId>()
            + edge_ids.capacity() * size_of::<EdgeId>()
            + weights.as_ref().map_or(0, |weights| weights.capacity() * size_of::<f32>())
            + edge_types.as_ref().map_or(0, Vec::capacity)
            + self.src_times.as_ref().map_or(0, |times| times.capacity() * size_of::<i64>())
            + self.transposed().map_or(0, TransposedBlock::n_bytes)
    }
}

impl TransposedBlock {
    /// Sorts a block's edges by source, on the calling thread.
    pub fn of(block: &Block) -> Self {
        Self::of_edges(block.indptr(), block.indices(), block.n_src())
    }
}

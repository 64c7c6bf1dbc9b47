use crate::{EdgeId, LocalId, NodeId, TransposedBlock};

/// One layer's message-flow graph: a bipartite CSC from sources to destinations in local ids, the
/// destinations being the first `n_dst` sources.
///
/// ```text
/// edges 7 -> 2, 9 -> 2, 2 -> 7 for destinations [2, 7]:
///   srcs = [2, 7, 9]   n_dst = 2   indptr = [0, 2, 3]   indices = [1, 2, 0]
/// ```
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `srcs` | [`NodeId`] | `n_src` | [`LocalId`]; destinations first; distinct where a sampler made the block |
/// | `indptr` | `u32` | `n_dst + 1` | destination |
/// | `indices` | [`LocalId`] | `n_edges` | position of the edge in the block; its source |
/// | `edge_ids` | [`EdgeId`] | `n_edges` | the same; the graph's edge, ascending for each destination |
/// | `weights` | `f32` | `n_edges` | the same; `None` when the sampler was not asked for weights |
///
/// A block may carry its [`TransposedBlock`], which says nothing new: it is as good as one without, and equal to it.
#[derive(Debug, Clone)]
pub struct Block {
    parts: BlockParts,
    /// What was made in advance for somebody who will need it.
    transposed: Option<TransposedBlock>,
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

/// The arrays of a [`Block`]; see its table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BlockParts {
    /// Global ids of the sources; the first `indptr.len() - 1` are the destinations.
    pub srcs: Vec<NodeId>,
    /// Where each destination's edges start.
    pub indptr: Vec<u32>,
    /// Each edge's source.
    pub indices: Vec<LocalId>,
    /// Each edge's id in the graph.
    pub edge_ids: Vec<EdgeId>,
    /// Each edge's weight, where asked for.
    pub weights: Option<Vec<f32>>,
}

impl Block {
    /// A block from its arrays.
    ///
    /// # Panics
    /// When the arrays contradict each other: a sampler that makes such a block has a bug. That sources
    /// are distinct is not checked here (`kiln_testkit::check_block` does).
    pub fn new(parts: BlockParts) -> Self {
        let BlockParts { srcs, indptr, indices, edge_ids, weights } = &parts;
        assert!(!indptr.is_empty(), "indptr has no entries, expected n_dst + 1");
        let n_dst = indptr.len() - 1;
        assert!(n_dst <= srcs.len(), "{n_dst} destinations, but only {} sources", srcs.len());
        assert_eq!(indptr[0], 0, "indptr starts at {}, expected 0", indptr[0]);
        assert!(indptr.windows(2).all(|pair| pair[0] <= pair[1]), "indptr falls");
        assert_eq!(indptr[n_dst] as usize, indices.len(), "indptr's end and the number of indices differ");
        assert_eq!(edge_ids.len(), indices.len(), "the numbers of edge ids and indices differ");
        if let Some(weights) = weights {
            assert_eq!(weights.len(), indices.len(), "the numbers of weights and indices differ");
        }
        // Over 32 bits and without an `Option`, the compiler makes vectors of it.
        let largest = indices.iter().fold(0, |largest, src| src.0.max(largest)) as usize;
        let in_range = indices.is_empty() || largest < srcs.len();
        assert!(in_range, "local id {largest} of {} sources", srcs.len());
        Self { parts, transposed: None }
    }

    /// Number of sources.
    pub fn n_src(&self) -> usize {
        self.parts.srcs.len()
    }

    /// Number of destinations.
    pub fn n_dst(&self) -> usize {
        self.parts.indptr.len() - 1
    }

    /// Number of edges.
    pub fn n_edges(&self) -> usize {
        self.parts.indices.len()
    }

    /// Global ids of the sources, destinations first.
    pub fn srcs(&self) -> &[NodeId] {
        &self.parts.srcs
    }

    /// Global ids of the destinations.
    pub fn dsts(&self) -> &[NodeId] {
        &self.parts.srcs[..self.n_dst()]
    }

    /// Where each destination's edges start.
    pub fn indptr(&self) -> &[u32] {
        &self.parts.indptr
    }

    /// Each edge's source.
    pub fn indices(&self) -> &[LocalId] {
        &self.parts.indices
    }

    /// Each edge's id in the graph.
    pub fn edge_ids(&self) -> &[EdgeId] {
        &self.parts.edge_ids
    }

    /// Each edge's weight, if the sampler was asked for weights.
    pub fn weights(&self) -> Option<&[f32]> {
        self.parts.weights.as_deref()
    }

    /// The node that a local id stands for.
    ///
    /// # Panics
    /// When the id is not below [`Block::n_src`].
    pub fn global(&self, local: LocalId) -> NodeId {
        self.parts.srcs[local.index()]
    }

    /// Makes the transposed block, which the block carries from now on, unless it does already: for gradients,
    /// where it is cheaper made now than then.
    pub fn transpose(&mut self) {
        if self.transposed.is_none() {
            self.transposed = Some(TransposedBlock::of(self));
        }
    }

    /// The transposed block, if it was made.
    pub fn transposed(&self) -> Option<&TransposedBlock> {
        self.transposed.as_ref()
    }

    /// Gives the transposed block away, if it was made.
    pub fn take_transposed(&mut self) -> Option<TransposedBlock> {
        self.transposed.take()
    }

    /// Gives the arrays back.
    pub fn into_parts(self) -> BlockParts {
        self.parts
    }

    /// Bytes that the block's arrays take, with the room behind them that their vectors have, those of the
    /// transposed block included if it was made.
    pub fn n_bytes(&self) -> usize {
        let BlockParts { srcs, indptr, indices, edge_ids, weights } = &self.parts;
        srcs.capacity() * size_of::<NodeId>()
            + indptr.capacity() * size_of::<u32>()
            + indices.capacity() * size_of::<LocalId>()
            + edge_ids.capacity() * size_of::<EdgeId>()
            + weights.as_ref().map_or(0, |weights| weights.capacity() * size_of::<f32>())
            + self.transposed().map_or(0, TransposedBlock::n_bytes)
    }
}

/// The number of feature columns and of outputs of the edges that a decoder of edges is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EdgeDims {
    /// The number of feature columns of the edges themselves; 0 for edges without features.
    pub d_edge: usize,
    /// The number of classes, labels or numbers of an edge.
    pub n_outputs: usize,
}

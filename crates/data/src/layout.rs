/// The names of the files of a data set in the kiln format, and the order of its arrays in the hash.
///
/// A set keeps the layout in which it was made, because the names of its types do not determine it: a heterogeneous set may
/// have one node type that is called `node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// The layout of a graph with the node type `node` and the relation `edge`: `features.npy`, `indptr.npy`.
    Plain,
    /// The layout of a heterogeneous graph, whose files have the position of their node type or relation: `features.0.npy`,
    /// `indptr.0.npy`.
    Numbered,
}

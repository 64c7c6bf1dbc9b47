use kiln_graph::NodeId;

/// An error in the arrays of sparse features.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SparseError {
    /// The arrays of sparse features are inconsistent.
    #[error(
        "sparse features: {what} is {got}, expected {expected}: save indptr, indices and data of one CSR matrix"
    )]
    BadSparse {
        /// The property that is wrong, for the message.
        what: &'static str,
        /// The expected value of the property.
        expected: u64,
        /// The actual value of the property.
        got: u64,
    },
    /// The value range of a sparse row is invalid.
    #[error("the feature values of node {} are {start}..{end}, expected a range within 0..{n_values}: the file is damaged: restore or regenerate it", node.0)]
    BadSparseRow {
        /// The node whose row is invalid.
        node: NodeId,
        /// The start of the row's values.
        start: u64,
        /// The end of the row's values.
        end: u64,
        /// The number of stored values.
        n_values: u64,
    },
    /// A column of a sparse row is not below the dimension.
    #[error("node {} has a feature in column {column}, expected a column below {dim}: the file is damaged: restore or regenerate it", node.0)]
    ColumnOutOfRange {
        /// The node whose row is invalid.
        node: NodeId,
        /// The invalid column.
        column: u32,
        /// The number of columns.
        dim: usize,
    },
}

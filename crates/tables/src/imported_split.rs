/// The numbers of nodes in the parts of a split that an import has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedSplit {
    /// The name of the node type.
    pub node_type: String,
    /// The number of nodes for training.
    pub n_train: u64,
    /// The number of nodes for validation.
    pub n_val: u64,
    /// The number of nodes for test.
    pub n_test: u64,
}

impl ImportedSplit {
    /// Returns the name and the number of nodes of each part.
    pub(crate) fn parts(&self) -> [(&'static str, u64); 3] {
        [("train", self.n_train), ("val", self.n_val), ("test", self.n_test)]
    }
}

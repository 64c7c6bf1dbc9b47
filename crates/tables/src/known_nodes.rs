use kiln_data::{DatasetTargets, NodeNames};

/// The nodes of a type in the set to which rows are appended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownNodes<'a> {
    pub(crate) names: &'a NodeNames,
    /// The features, row by row; empty for a type without features.
    pub(crate) features: &'a [f32],
    /// The targets and the split; `None` for a type without targets.
    pub(crate) targets: Option<&'a DatasetTargets>,
    /// The times of the nodes; `None` for a type without times.
    pub(crate) times: Option<&'a [i64]>,
    /// The id of the first node in the set.
    pub(crate) first: u32,
}

impl KnownNodes<'_> {
    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> u32 {
        self.names.len() as u32
    }
}

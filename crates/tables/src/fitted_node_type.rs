use serde::{Deserialize, Serialize};

use crate::feature_columns::names_bytes;
use crate::target::FittedTarget;
use crate::transform::FittedColumn;

/// The statistics of a node type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedNodeType {
    /// The name of the node type.
    pub name: String,
    /// The columns that become features, in the order of the feature columns.
    pub columns: Vec<FittedColumn>,
    /// The targets.
    pub target: Option<FittedTarget>,
}

impl FittedNodeType {
    /// Returns the memory of the categories and classes in bytes, with their positions by name and their text in the record of the
    /// import.
    pub(crate) fn heap_bytes(&self) -> u64 {
        names_bytes(&self.columns, self.target.iter().flat_map(FittedTarget::names))
    }
}

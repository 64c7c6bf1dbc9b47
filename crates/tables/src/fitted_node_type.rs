use serde::{Deserialize, Serialize};

use crate::target::FittedTarget;
use crate::transform::FittedColumn;

/// The memory of a name besides its text, and the number of copies of the text.
const NAME_BYTES: u64 = 128;
const COPIES: u64 = 3;

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
        let categories = self.columns.iter().flat_map(|column| column.transform.categories());
        let classes = self.target.iter().flat_map(FittedTarget::names);
        categories.chain(classes).map(|name| NAME_BYTES + COPIES * name.len() as u64).sum()
    }
}

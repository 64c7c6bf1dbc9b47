use serde::{Deserialize, Serialize};

use crate::feature_columns::names_bytes;
use crate::transform::FittedColumn;

/// The statistics of a relation whose edges have features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedRelation {
    /// The name of the relation.
    pub name: String,
    /// The columns that become features, in the order of the feature columns.
    pub columns: Vec<FittedColumn>,
}

impl FittedRelation {
    /// Returns the memory of the categories in bytes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        names_bytes(&self.columns, [].iter())
    }
}

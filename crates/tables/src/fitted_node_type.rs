use serde::{Deserialize, Serialize};

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

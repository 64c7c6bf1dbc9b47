use kiln_feature::Targets;

use crate::Split;
use crate::limits::numbers;

/// The targets of the nodes of one type, and their split; those of the rows of a [`TaskTable`](crate::TaskTable) have
/// a value per row, and a split of rows.
#[derive(Debug, Clone)]
pub struct DatasetTargets {
    /// The type of the nodes that have targets.
    pub node_type: usize,
    /// The class or the target values of each node of the type, by its position in the type; a node may have none.
    pub values: Targets,
    /// The nodes for training, validation and test, as node ids of the graph. All have a target.
    pub split: Split,
    /// The classes' names, by class; for several labels or regression targets, the columns' names.
    pub class_names: Vec<String>,
}

impl DatasetTargets {
    /// Returns the targets of the nodes of a type, whose classes or columns have their numbers as names.
    pub fn new(node_type: usize, values: Targets, split: Split) -> Self {
        let class_names = numbers(values.n_outputs());
        Self { node_type, values, split, class_names }
    }
}

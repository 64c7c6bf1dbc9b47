//! Task tables: targets of nodes at times, several of which a set may have.

mod dataset;
mod error;

use kiln_feature::Targets;
use kiln_graph::{NodeId, SharedArray};

pub use self::error::TaskTableError;
use crate::{DatasetTargets, Note};

/// A table of targets: each row has a node, a time and the target of the node at that time. A node may be in several rows. It is
/// the training table of RelBench, and the `input_nodes` with `input_time` of a loader of PyG.
///
/// A loader samples the neighbours of each row at the time of the row. A set has any number of task tables beside the targets of its
/// nodes.
///
/// ```
/// use kiln_data::{DatasetTargets, Split, TaskTable, synthetic};
/// use kiln_feature::Labels;
/// use kiln_graph::NodeId;
/// // Node 3 has the class 0 at the time 10, and the class 1 at the time 20.
/// let split = Split { train: vec![NodeId(0)].into(), test: vec![NodeId(1)].into(), ..Split::default() };
/// let churn = TaskTable {
///     name: "churn".to_owned(),
///     nodes: vec![NodeId(3), NodeId(3)].into(),
///     times: vec![10, 20].into(),
///     targets: DatasetTargets::new(0, Labels::new(vec![0, 1], 2).into(), split),
/// };
/// let ring = synthetic::ring(6)?.with_task_table(churn)?;
/// assert_eq!(ring.task_table("churn")?.times[1], 20);
/// assert!(ring.task_table("sales").is_err());
/// # Ok::<(), kiln_data::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TaskTable {
    /// The name, which is unique among the tables of a set.
    pub name: String,
    /// The node of each row, as a node id of the graph, `[n_rows]`. All have the type of the targets.
    pub nodes: SharedArray<NodeId>,
    /// The time of each row, `[n_rows]`, in the unit of the times of the set.
    pub times: SharedArray<i64>,
    /// The targets, by row. The items of their split are positions of rows, and all have a target.
    pub targets: DatasetTargets,
}

impl TaskTable {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.nodes.len()
    }

    /// Returns notes on the split, with the name of the table.
    pub fn notes(&self) -> Vec<Note> {
        let notes = self.targets.split.notes(&self.targets.values, 0).into_iter();
        notes.map(|note| Note::Other(format!("task table `{}`: {note}", self.name))).collect()
    }

    /// Returns true if a row exists and has a target.
    pub(crate) fn has_target(&self, row: NodeId) -> bool {
        match &self.targets.values {
            _ if self.n_rows() <= row.index() => false,
            Targets::Classes(labels) => labels.get(row).is_some(),
            Targets::Values(values) => values.has_any(row),
        }
    }
}

//! The files of a task table.

use kiln_graph::{NodeId, SharedArray};
use kiln_store::array_folder::{ArrayFolder, ElementType, FolderWriter, Known};

use super::numbered;
use super::target_values::ValueFiles;
use crate::{DatasetTargets, Result, Split, TaskTable};

/// The names of the files of task tables without the position of the table.
const NAMES: [&str; 5] =
    ["task_nodes.npy", "task_times.npy", "task_train.npy", "task_val.npy", "task_test.npy"];

/// The names of the files of the task table at a position: the node and the time of each row, its class or its target values, and
/// the rows of each part of the split.
#[derive(Debug, Clone)]
pub(crate) struct TaskFiles {
    pub(crate) nodes: String,
    pub(crate) times: String,
    pub(crate) values: ValueFiles,
    pub(crate) split: [String; 3],
}

impl TaskFiles {
    pub(crate) fn new(position: usize) -> Self {
        let [nodes, times, train, val, test] = NAMES.map(|name| numbered(name, position));
        let values = ValueFiles {
            labels: numbered("task_labels.npy", position).into(),
            values: numbered("task_targets.npy", position).into(),
        };
        Self { nodes, times, values, split: [train, val, test] }
    }

    /// Returns the types and shapes of the files of a table of `n_rows` rows with `n_outputs` classes or columns.
    pub(crate) fn known(&self, has_values: bool, n_rows: usize, n_outputs: usize) -> Vec<Known> {
        let known =
            |name: &String, types, shape| Known { name: name.clone().into(), types, shape, is_needed: true };
        let mut files = vec![
            known(&self.nodes, &[ElementType::U32], Some(vec![n_rows])),
            known(&self.times, &[ElementType::I64], Some(vec![n_rows])),
        ];
        files.extend(self.values.known(has_values, n_rows, n_outputs));
        files.extend(self.split.iter().map(|part| known(part, &[ElementType::U32], None)));
        files
    }

    /// Maps the arrays of a table, whose values are not checked.
    pub(crate) fn read(
        &self,
        arrays: &ArrayFolder,
        name: String,
        node_type: usize,
        class_names: Vec<String>,
    ) -> Result<TaskTable> {
        let [train, val, test] = self.split.each_ref().map(|name| arrays.values::<NodeId>(name));
        let split = Split { train: train?, val: val?, test: test? };
        let nodes: SharedArray<NodeId> = arrays.values(&self.nodes)?;
        let values = self.values.read(arrays, class_names.len())?;
        let targets = DatasetTargets { node_type, values, split, class_names };
        Ok(TaskTable { name, nodes, times: arrays.values(&self.times)?, targets })
    }

    /// Writes the arrays of a table.
    pub(crate) fn write(&self, set: &mut FolderWriter, table: &TaskTable) -> Result<()> {
        set.put(self.nodes.clone(), ElementType::U32, &table.nodes)?;
        set.put(self.times.clone(), ElementType::I64, &table.times)?;
        self.values.write(set, &table.targets.values)?;
        for (name, (_, rows)) in self.split.iter().zip(table.targets.split.parts()) {
            set.put(name.clone(), ElementType::U32, rows)?;
        }
        Ok(())
    }
}

//! The entries of task tables in the manifest of a heterogeneous set.

use std::path::Path;

use kiln_graph::NodeTypes;
use kiln_store::Hasher;
use kiln_store::array_folder::{Entries, Known, bad_key};
use serde::{Deserialize, Serialize};

use crate::graph_folder::{TaskFiles, ValueFiles, check_class_names, class_names_to_write};
use crate::{Result, TaskTable};

/// The largest number of task tables of a set.
const MAX_TASKS: usize = 1024;

/// The entry of a task table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskEntry {
    pub(super) name: String,
    /// The name of the type of the nodes.
    pub(super) node_type: String,
    pub(super) n_rows: usize,
    /// The number of classes, or of columns of target values.
    pub(super) n_classes: usize,
    /// The names of the classes or columns, by number; empty if they have no names.
    pub(super) class_names: Vec<String>,
}

impl TaskEntry {
    /// Returns the entry of a table.
    pub(super) fn describe(table: &TaskTable, types: &NodeTypes) -> Self {
        let targets = &table.targets;
        let n_classes = targets.values.n_outputs();
        Self {
            name: table.name.clone(),
            node_type: types.names()[targets.node_type].clone(),
            n_rows: table.n_rows(),
            n_classes,
            class_names: class_names_to_write(&targets.class_names, n_classes),
        }
    }

    /// Returns the line of the table at a position that is hashed.
    pub(super) fn hash(&self, node_type: i64, hasher: &mut Hasher) {
        let name = serde_json::Value::from(self.name.as_str());
        hasher.update(format!("task {node_type} {} {} {name}\n", self.n_rows, self.n_classes));
    }
}

/// Checks that the tables have different names, nodes of a type of the set and the names of their classes.
pub(super) fn check_tasks(path: &Path, tasks: &[TaskEntry], types: &[&str]) -> Result<()> {
    if MAX_TASKS < tasks.len() {
        let found = format!("{} tables", tasks.len());
        return Err(bad_key(path, "tasks", format!("at most {MAX_TASKS} tables"), found).into());
    }
    for (position, task) in tasks.iter().enumerate() {
        let TaskEntry { name, node_type, n_rows, n_classes, class_names } = task;
        let key = |key: &str| format!("tasks[{position}].{key}");
        if tasks[..position].iter().any(|other| other.name == *name) {
            let expected = "a name that no other table has";
            return Err(bad_key(path, &key("name"), expected, format!("{name:.60?}")).into());
        }
        if !types.contains(&node_type.as_str()) {
            let expected = "the name of a node type";
            return Err(bad_key(path, &key("node_type"), expected, format!("{node_type:.60?}")).into());
        }
        if u32::try_from(*n_rows).is_err() {
            return Err(bad_key(path, &key("n_rows"), "fewer than 2^32", n_rows).into());
        }
        check_class_names(path, None, *n_classes, class_names)?;
    }
    Ok(())
}

/// Checks that each table has classes or target values, and that target values have columns.
pub(super) fn check_task_files(path: &Path, files: &Entries, tasks: &[TaskEntry]) -> Result<()> {
    for (position, task) in tasks.iter().enumerate() {
        let ValueFiles { labels, values } = TaskFiles::new(position).values;
        if !files.contains_key(&*values) {
            continue;
        }
        if files.contains_key(&*labels) {
            return Err(bad_key(path, "files", format!("{labels} or {values}"), "both").into());
        }
        if task.n_classes == 0 {
            let expected = format!("at least 1, the number of columns of {values}");
            return Err(bad_key(path, &format!("tasks[{position}].n_classes"), expected, 0).into());
        }
    }
    Ok(())
}

/// Returns the files of the tables.
pub(super) fn task_entries(files: &Entries, tasks: &[TaskEntry]) -> Vec<Known> {
    let tables = tasks.iter().enumerate().flat_map(|(position, task)| {
        let of_task = TaskFiles::new(position);
        let has_values = files.contains_key(&*of_task.values.values);
        of_task.known(has_values, task.n_rows, task.n_classes)
    });
    tables.collect()
}

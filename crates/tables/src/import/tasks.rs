//! The task tables of an import.

use super::Importer;
use crate::Result;
use crate::bad_rows::BadRowLog;
use crate::join::{EndColumn, EndRows};
use crate::table::Table;
use crate::task_rows::{TaskPart, TaskRows};

impl<'a> Importer<'a> {
    /// Returns the task table of each of the columns of [`Importer::columns_of_tasks`].
    pub(super) fn tasks_of(&self, node_type: usize) -> Vec<usize> {
        let name = &self.spec.nodes[node_type].name;
        let tasks = self.spec.tasks.iter().zip(&self.tables.tasks).enumerate();
        let tasks = tasks.filter(|(_, (spec, _))| spec.key.node_type == *name);
        tasks.flat_map(|(task, (_, parts))| vec![task; parts.len()]).collect()
    }

    /// Returns the columns of keys of the task tables whose nodes have a type: one for each part.
    pub(super) fn columns_of_tasks(&self, node_type: usize) -> Vec<EndColumn> {
        let of_type = &self.spec.nodes[node_type];
        let mut columns = Vec::new();
        for (task, (spec, parts)) in self.spec.tasks.iter().zip(&self.tables.tasks).enumerate() {
            if spec.key.node_type != of_type.name {
                continue;
            }
            for (number, (_, source)) in parts.iter().enumerate() {
                columns.push(EndColumn {
                    table: Table { source: source.clone(), columns: vec![spec.key.column.clone()] },
                    key_type: of_type.key_type,
                    name: format!("task-{task}-{number}"),
                });
            }
        }
        columns
    }

    /// Checks the rows of all task tables, whose keys were joined.
    pub(super) fn scan_tasks(&mut self, rows: Vec<Vec<EndRows>>) -> Result<Vec<TaskRows<'a>>> {
        let mut tasks = Vec::new();
        for (position, (spec, rows)) in self.spec.tasks.iter().zip(rows).enumerate() {
            let parts = self.tables.tasks[position].iter().zip(rows);
            let parts: Vec<TaskPart> = parts
                .map(|((part, source), rows)| TaskPart { part: *part, source: source.clone(), rows })
                .collect();
            let sources: Vec<_> = parts.iter().map(|part| part.source.clone()).collect();
            let earlier = self.earlier_import().and_then(|earlier| earlier.task(&spec.name));
            let key_type = self.key_type_of(&spec.key.node_type);
            let mut log = BadRowLog::default();
            let task = TaskRows::scan(spec, key_type, parts, earlier, (self.temporary, position), &mut log)?;
            let mut found = log.finish(&task.label(), &spec.drop);
            self.explain_missing_nodes(&[&spec.key], &mut found);
            self.found.extend(found);
            if !self.has_earlier() {
                self.notes.extend(sources.iter().filter_map(|source| source.note_on_unused_texts()));
            }
            self.notes.extend(task.notes.iter().cloned());
            tasks.push(task);
        }
        Ok(tasks)
    }
}

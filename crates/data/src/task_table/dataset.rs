//! The task tables of a set.

use kiln_graph::{did_you_mean, similar_name};
use kiln_store::check_count;

use crate::check::Place;
use crate::{Dataset, DatasetTimes, Error, Note, Result, TaskTable, TaskTableError};

impl TaskTable {
    /// Checks that all columns have the same number of rows, that the nodes are those of a type of the set, and that each row has
    /// a time; and that the rows of the split exist and have targets. Returns notes on the split.
    ///
    /// # Errors
    /// Returns [`TaskTableError`] with the first row that is bad, and [`kiln_store::Error::Inconsistent`] for other lengths.
    pub(crate) fn check(&self, data: &Dataset, place: Place<'_>) -> Result<Vec<Note>> {
        self.check_lengths(data)?;
        let table = || self.name.clone();
        let nodes = data.graph.types().range(self.targets.node_type);
        if let Some(row) = self.nodes.iter().position(|node| !nodes.contains(&node.0)) {
            let node_type = data.graph.types().names()[self.targets.node_type].clone();
            let node = self.nodes[row].0;
            return Err(TaskTableError::Node { table: table(), row, node, node_type }.into());
        }
        let no_times = [DatasetTimes::NEVER, DatasetTimes::ALWAYS];
        if let Some(row) = self.times.iter().position(|time| no_times.contains(time)) {
            return Err(TaskTableError::Time { table: table(), row }.into());
        }
        self.targets.values.validate().map_err(|error| place.located(error.into()))?;
        for (part, rows) in self.targets.split.parts() {
            if let Some(position) = rows.iter().position(|row| !self.has_target(*row)) {
                let row = rows[position].0;
                return Err(TaskTableError::Split { table: table(), part, position, row }.into());
            }
        }
        Ok(self.notes())
    }

    /// Checks that all columns have the same number of rows, and that the set has the type of the nodes.
    pub(crate) fn check_lengths(&self, data: &Dataset) -> Result<()> {
        if data.graph.types().n_types() <= self.targets.node_type {
            let node_type = self.targets.node_type;
            return Err(TaskTableError::NodeType { table: self.name.clone(), node_type }.into());
        }
        for (what, got) in [
            ("the number of times of a task table", self.times.len()),
            ("the number of targets of a task table", self.targets.values.len()),
        ] {
            check_count(&data.name, what, self.n_rows(), got)?;
        }
        Ok(())
    }
}

impl Dataset {
    /// Returns the set with one more task table.
    ///
    /// # Errors
    /// Returns [`TaskTableError`] for a name that the set has already, for nodes of another type, and for rows without a time;
    /// and [`kiln_store::Error::Inconsistent`] unless there is one time and one target per row.
    pub fn with_task_table(mut self, table: TaskTable) -> Result<Self> {
        if self.tasks.iter().any(|other| other.name == table.name) {
            return Err(TaskTableError::Twice { table: table.name }.into());
        }
        table.check(&self, Place::Set(self.name.as_ref()))?;
        self.tasks.push(table);
        Ok(self)
    }

    /// Returns the task table of a name, after a check of its values, which those of a mapped set may not have passed.
    ///
    /// # Errors
    /// Returns [`TaskTableError::NoSuchTable`] with the names of the set if there is none, and the errors of
    /// [`Dataset::with_task_table`] for a damaged one.
    pub fn task_table(&self, name: &str) -> Result<&TaskTable> {
        let known = || self.tasks.iter().map(|table| table.name.as_str());
        let table = self.tasks.iter().find(|table| table.name == name).ok_or_else(|| {
            Error::from(TaskTableError::NoSuchTable {
                data: self.name.clone(),
                name: name.to_owned(),
                known: match self.tasks.is_empty() {
                    true => "it has none".to_owned(),
                    false => {
                        let names = known().collect::<Vec<_>>().join(", ");
                        format!("it has {names}{}", did_you_mean(similar_name(name, known())))
                    }
                },
            })
        })?;
        table.check(self, Place::Set(self.name.as_ref()))?;
        Ok(table)
    }
}

//! Task tables: targets of nodes at times, several of which a set may have.

mod error;

use kiln_feature::Targets;
use kiln_graph::{NodeId, SharedArray, did_you_mean, similar_name};
use kiln_store::check_count;

pub use self::error::TaskTableError;
use crate::check::Place;
use crate::{Dataset, DatasetTargets, DatasetTimes, Error, Note, Result};

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

    /// Returns notes on the split, with the name of the table.
    pub fn notes(&self) -> Vec<Note> {
        let notes = self.targets.split.notes(&self.targets.values, 0).into_iter();
        notes.map(|note| Note::Other(format!("task table `{}`: {note}", self.name))).collect()
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

    fn has_target(&self, row: NodeId) -> bool {
        match &self.targets.values {
            _ if self.n_rows() <= row.index() => false,
            Targets::Classes(labels) => labels.get(row).is_some(),
            Targets::Values(values) => values.has_any(row),
        }
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

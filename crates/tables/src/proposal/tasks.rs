//! The task tables of a folder in RelBench's layout.

use std::path::{Path, PathBuf};

use kiln_store::counted;

use super::describe::{describe, percent};
use super::graph::GraphDraft;
use super::keys::references;
use super::options::ProposalOptions;
use super::profile::ValueKind;
use super::relational_folder::TaskFolder;
use super::tables::{InputTable, entry_of, read_tables};
use super::targets::{TargetCandidate, targets};
use super::times::{TimeColumn, certain_time, time_columns};
use super::write_table::{bad_rows, write_dropped};
use super::yaml::{self, Lines, scalar};
use crate::Result;
use crate::bad_rows::BadRowKind;

/// A task table, of which the rows for training were read.
pub(super) struct TaskDraft {
    name: String,
    table: InputTable,
    /// The file of each part as a spec has it.
    files: [Option<PathBuf>; 3],
    /// What the columns are, or the reason why the task is left out.
    columns: Result<TaskColumns, String>,
}

/// The columns of a task table.
struct TaskColumns {
    node_type: usize,
    key: usize,
    time: TimeColumn,
    /// The targets that the other columns may be, the first of which the spec has.
    targets: Vec<TargetCandidate>,
}

impl TaskDraft {
    /// Reads the rows for training of a task, and finds what its columns are.
    ///
    /// # Errors
    /// Returns the errors of reading.
    pub(super) fn read(
        task: TaskFolder,
        tables: &[InputTable],
        graph: &GraphDraft,
        options: &ProposalOptions,
    ) -> Result<Option<Self>> {
        let TaskFolder { name, files } = task;
        let train: Vec<PathBuf> = files[0].iter().cloned().collect();
        let Some(table) = read_tables(&train, options)?.pop() else { return Ok(None) };
        let folder = options.spec.parent().unwrap_or(Path::new(""));
        let entries = files.map(|file| file.map(|file| entry_of(&file, folder)).transpose());
        let [train, val, test] = entries;
        let columns = TaskColumns::find(&table, tables, graph);
        Ok(Some(Self { name, table, files: [train?, val?, test?], columns }))
    }

    /// Returns true if the spec has the task.
    pub(super) fn is_known(&self) -> bool {
        self.columns.is_ok()
    }

    /// Writes the task, or the reason why it is left out.
    pub(super) fn write(&self, lines: &mut Lines, tables: &[InputTable], graph: &GraphDraft) {
        let profile = &self.table.profile;
        let TaskColumns { node_type, key, time, targets } = match &self.columns {
            Ok(columns) => columns,
            Err(why) => {
                lines.comment(2, &format!("The task {} is left out: {why}.", self.name));
                return;
            }
        };
        let node = &graph.nodes[*node_type];
        lines.comment(2, &format!("{}: {} to train", self.table.label(), counted(profile.n_rows, "row")));
        lines.push(2, &format!("- name: {}", scalar(&self.name)), "");
        let keys = &profile.columns[*key];
        let line = format!("key: {{type: {}, column: {}}}", scalar(&node.name), scalar(&keys.name));
        let overlap = node
            .origin
            .map(|(table, column)| keys.overlap_as(&tables[table].profile.columns[column], node.key_type));
        let about = overlap.filter(|overlap| overlap.n_values > 0).map(|overlap| {
            let share = percent(overlap.n_values_found, overlap.n_values);
            format!("{share} of {} values are keys of {}", overlap.n_values, node.name)
        });
        lines.push(4, &line, &about.unwrap_or_default());
        lines.push(4, &time.time(&self.table), &describe(&self.table, &profile.columns[time.column]));
        for (position, target) in targets.iter().enumerate() {
            let line = format!("target: {}", target.yaml);
            match position {
                0 => lines.push(4, &line, &target.about),
                _ => lines.comment(4, &format!("or {line}  # {}", target.about)),
            }
        }
        for (part, file) in ["train", "val", "test"].into_iter().zip(&self.files) {
            let file = file.iter().map(|file| format!("{part}: {}", yaml::files(std::slice::from_ref(file))));
            file.for_each(|line| lines.push(4, &line, ""));
        }
        let csv = yaml::csv(&self.table.csv);
        csv.into_iter().for_each(|csv| lines.push(4, &format!("csv: {csv}"), ""));
        if !profile.missing.is_empty() {
            let texts = yaml::list(profile.missing.iter().map(String::as_str));
            lines.push(4, &format!("missing: {texts}"), "in each column of the table");
        }
        let mut dropped = bad_rows(&self.table);
        if keys.n_missing > 0 {
            dropped
                .push((BadRowKind::MissingKey, format!("{} without a key", counted(keys.n_missing, "row"))));
        }
        let n_dangling = overlap.map_or(0, |overlap| overlap.n_rows - overlap.n_rows_found);
        if n_dangling > 0 {
            let what = format!("{} of a key that no node has", counted(n_dangling, "row"));
            dropped.push((BadRowKind::Dangling, what));
        }
        write_dropped(lines, &dropped);
    }
}

impl TaskColumns {
    /// Finds the columns of a task table; the error is the reason why it has none.
    fn find(table: &InputTable, tables: &[InputTable], graph: &GraphDraft) -> Result<Self, String> {
        let columns = &table.profile.columns;
        if (0..columns.len()).any(|column| is_list_of_keys(table, column)) {
            return Err(
                "its target is a list of keys, and the rows are no targets of nodes but links".to_owned()
            );
        }
        let mut keys: Vec<Option<usize>> = vec![None; tables.len() + 1];
        graph.nodes.iter().filter_map(|node| node.origin).for_each(|(table, key)| keys[table] = Some(key));
        let found = references(table, tables.len(), tables, &keys);
        let found: Vec<(usize, usize)> = found
            .iter()
            .filter_map(|reference| Some((graph.type_of_table(reference.table)?, reference.column)))
            .collect();
        let (node_type, key) = match found[..] {
            [only] => only,
            [] => return Err("no column has the keys of a node type".to_owned()),
            [..] => {
                let names: Vec<&str> =
                    found.iter().map(|(_, column)| columns[*column].name.as_str()).collect();
                return Err(format!("several columns have keys of node types: {}", names.join(", ")));
            }
        };
        let others: Vec<usize> = (0..columns.len()).filter(|column| *column != key).collect();
        let times = time_columns(table, &others);
        let time = match (certain_time(&times), &times[..]) {
            (Some(time), _) | (None, [time]) => time.clone(),
            (None, []) => return Err("no column has the times of its rows".to_owned()),
            (None, _) => return Err("several columns may have the times of its rows".to_owned()),
        };
        let others: Vec<usize> = others.into_iter().filter(|column| *column != time.column).collect();
        let targets = targets(table, &others);
        match targets.is_empty() {
            true => Err("no column has classes, labels or numbers that differ".to_owned()),
            false => Ok(Self { node_type, key, time, targets }),
        }
    }
}

/// Returns true for a column of lists of the keys that the file declares.
fn is_list_of_keys(table: &InputTable, column: usize) -> bool {
    let column = &table.profile.columns[column];
    let is_declared = table.declared.as_ref().is_some_and(|keys| keys.references.contains_key(&column.name));
    is_declared && column.kind(table.has_decimal_commas) == ValueKind::List
}

//! The spec of a task table: targets of nodes at times.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use kiln_graph::{did_you_mean, similar_name};
use serde::{Deserialize, Serialize};

use super::check_files::{check_csv, check_files, check_rows};
use super::check_target::{check_name, check_target, check_zone};
use super::place::At;
use super::{CsvSpec, EndSpec, NodeTypeSpec, SplitSpec, TargetSpec, TimeSpec};
use crate::{BadRowKind, Result};

/// A task table: each row has the key of a node, a time and the target of the node at that time. A key may be in several rows.
///
/// The table is one of `files` with a `split`, or has files of its own for each part: `train`, `val` and `test`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// The name, which is unique among the task tables.
    pub name: String,
    /// The type and the column of the keys. The type has a table.
    pub key: EndSpec,
    /// The times of the rows. A row without a time is bad.
    pub time: TimeSpec,
    /// The targets. A row without a target is in no part of the split.
    pub target: TargetSpec,
    /// The files of the table, relative to the folder of the spec: files, folders and patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
    /// The split of the rows of `files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSpec>,
    /// The files of the rows for training, instead of `files`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub train: Vec<PathBuf>,
    /// The files of the rows for validation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub val: Vec<PathBuf>,
    /// The files of the rows for test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<PathBuf>,
    /// The form of CSV files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<CsvSpec>,
    /// The rows that are taken: those with one of these values in each of these columns. All rows by default.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, Vec<String>>,
    /// The texts of values that are missing, besides an empty text and NaN.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The kinds of bad rows that are dropped instead of being an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<BadRowKind>,
}

impl TaskSpec {
    /// Returns the files of each part of the split, 0 for training, 1 for validation and 2 for test; `None` as the part for files
    /// whose rows are in several.
    pub(crate) fn files_of_parts(&self) -> Vec<(Option<usize>, &[PathBuf])> {
        if !self.files.is_empty() {
            return vec![(None, &self.files)];
        }
        let parts = [&self.train, &self.val, &self.test].into_iter().enumerate();
        let parts = parts.filter(|(_, files)| !files.is_empty());
        parts.map(|(part, files)| (Some(part), files.as_slice())).collect()
    }

    /// Returns the columns of the table that an import reads, each once.
    pub(crate) fn columns_of_table(&self) -> Vec<String> {
        let mut columns = vec![self.key.column.clone(), self.time.column.clone()];
        columns.extend(self.target.columns().into_iter().map(str::to_owned));
        columns.extend(self.split.iter().flat_map(SplitSpec::columns).map(str::to_owned));
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

/// Checks a task table of a set with these node types.
pub(super) fn check_task<'n>(
    at: &At<'_>,
    task: &'n TaskSpec,
    nodes: &[NodeTypeSpec],
    names: &mut BTreeSet<&'n str>,
) -> Result<()> {
    check_name(&at.child("name"), &task.name, names)?;
    let of_table = nodes.iter().filter(|spec| spec.from.is_none()).map(|spec| spec.name.as_str());
    let of_table: Vec<&str> = of_table.collect();
    let name = task.key.node_type.as_str();
    let known: Vec<&str> = of_table.iter().copied().take(20).collect();
    let similar = did_you_mean(similar_name(name, of_table.iter().copied()));
    let expected = format!("the name of a node type with a table: {}{similar}", known.join(", "));
    at.child("key.type").require(of_table.contains(&name), expected, format!("{name:?}"))?;
    check_zone(&at.child("time"), task.time.zone.as_deref())?;
    check_target(at, Some(&task.target), task.split.as_ref())?;
    let parts = [("train", &task.train), ("val", &task.val), ("test", &task.test)];
    let has_parts = parts.iter().any(|(_, files)| !files.is_empty());
    for (key, files) in parts.into_iter().filter(|(_, files)| !files.is_empty()) {
        check_files(&at.child(key), files)?;
    }
    if has_parts {
        let expected = "none beside files of `train`, `val` and `test`";
        at.child("files").require(task.files.is_empty(), expected, "a list of files")?;
        at.child("split").require(task.split.is_none(), expected, "a split")?;
        at.child("train").require(!task.train.is_empty(), "files of the rows for training", "none")?;
    } else {
        let expected = "files with a `split`, or files of `train`, `val` and `test`";
        at.child("files").require(!task.files.is_empty(), expected, "none")?;
        check_files(&at.child("files"), &task.files)?;
        let expected = "a split of the rows, such as one by `time`, or files of `train`, `val` and `test`";
        at.child("split").require(task.split.is_some(), expected, "none")?;
    }
    check_csv(&at.child("csv"), task.csv.as_ref())?;
    check_rows(&at.child("where"), &task.rows)?;
    let duplicate =
        "kinds of bad rows of task tables: `duplicate` is one of nodes, and a key may be in several rows";
    at.child("drop").require(!task.drop.contains(&BadRowKind::Duplicate), duplicate, "duplicate")
}

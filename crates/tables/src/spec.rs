//! The spec of an import: the tables of node types and relations, and how their columns become features.

mod check;
mod check_files;
mod check_target;
mod columns;
mod csv;
mod place;
mod read;
mod tasks;
mod times;

use std::collections::BTreeMap;
use std::path::PathBuf;

use kiln_graph::EdgeColumns;
use serde::{Deserialize, Serialize};

pub use self::columns::{ColumnSpec, ColumnTransform, NgramUnit, SplitSpec, TargetSpec, TimePart};
pub use self::csv::CsvSpec;
pub use self::tasks::TaskSpec;
pub(crate) use self::times::offset_of;
pub use self::times::{TimeBorder, TimeQuantiles, TimeSpec, TimeSplitSpec, TimeUnit};
use crate::BadRowKind;

/// The spec of an import. `spec.schema.json` of this crate is its JSON schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportSpec {
    /// The name of the set.
    pub name: String,
    /// The node types, in the order of their node ids.
    pub nodes: Vec<NodeTypeSpec>,
    /// The relations, in the order of their edge ids. Reverse relations follow their relation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<RelationSpec>,
    /// The task tables: targets of nodes at times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskSpec>,
}

/// A node type: the rows of a table, or the keys that occur in relations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTypeSpec {
    /// The name, which is unique among the node types.
    pub name: String,
    /// The files of the table, relative to the folder of the spec: files that end in `.parquet`, `.arrow`, `.feather`, `.csv`, `.tsv` or
    /// `.jsonl`, text also with `.gz` or `.zst`; folders of such files; and patterns with `*`, `?`, `[a-z]` and `**`. Ids are in
    /// the order of their rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PathBuf>,
    /// The form of CSV files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<CsvSpec>,
    /// The rows of the table that are nodes of this type: those with one of these values in each of these columns. All rows by default.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, Vec<String>>,
    /// The origin of the nodes of a type without a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeOrigin>,
    /// The column of the keys; required with files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The type of the keys.
    #[serde(default)]
    pub key_type: KeyType,
    /// The texts of values that are missing, besides an empty text and NaN.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The times of the nodes; those of the split by time by default, and none for another split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeSpec>,
    /// The columns that become features, in the order of the feature columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnSpec>,
    /// The targets; at most one node type has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// The split of the nodes with targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSpec>,
    /// The kinds of bad rows that are dropped instead of being an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<BadRowKind>,
}

/// The origin of the nodes of a type without a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOrigin {
    /// The keys in the relations of the type, in the order of their first occurrence.
    Relations,
}

/// The type of the keys of a node type. Keys are compared as text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyType {
    /// Texts, and integers in decimal, also as floating-point numbers.
    #[default]
    Text,
    /// Integers; texts are parsed, so that `007` is 7.
    Integer,
}

/// A relation: the rows of a table with a key of a source and a key of a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationSpec {
    /// The name, which is unique among the relations.
    pub name: String,
    /// The files of the table, relative to the folder of the spec: files, folders and patterns.
    pub files: Vec<PathBuf>,
    /// The form of CSV files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csv: Option<CsvSpec>,
    /// The rows of the table that are edges of this relation: those with one of these values in each of these columns. All rows by default.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub rows: BTreeMap<String, Vec<String>>,
    /// The sources.
    pub src: EndSpec,
    /// The destinations.
    pub dst: EndSpec,
    /// The column of the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// The columns that become the features of the edges, in the order of the feature columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<ColumnSpec>,
    /// The times of the edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeSpec>,
    /// Further columns of the edges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edge_columns: Vec<EdgeColumnSpec>,
    /// The name of a second relation, with the reverse of each edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse: Option<String>,
    /// The targets of the edges; at most one relation has them. The edges with a target are links of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetSpec>,
    /// The split of the edges with targets. Those for validation and test, and their reverses, are not in the graph of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitSpec>,
    /// If true, the reverse of each edge is in the same relation, whose ends have one node type. Of the edges between two nodes,
    /// also in opposite directions, the first one is kept.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undirected: bool,
    /// The texts of values that are missing, besides an empty text and NaN.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The kinds of bad rows that are dropped instead of being an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop: Vec<BadRowKind>,
}

/// Returns true for a setting that a spec does not have.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_false(setting: &bool) -> bool {
    !setting
}

/// A column of the edges of a relation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeColumnSpec {
    /// The column of the table, which has numbers.
    pub column: String,
    /// The name in the set ([`EdgeColumns`]); `None` for that of the column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl EdgeColumnSpec {
    /// Returns the name in the set.
    pub fn name(&self) -> &str {
        self.name.as_ref().unwrap_or(&self.column)
    }
}

impl NodeTypeSpec {
    /// Returns the columns of the table that an import reads, each once.
    pub(crate) fn columns_of_table(&self) -> Vec<String> {
        let mut columns: Vec<String> = self.key.iter().cloned().collect();
        columns.extend(self.columns.iter().map(|column| column.column.clone()));
        columns.extend(self.target.iter().flat_map(TargetSpec::columns).map(str::to_owned));
        columns.extend(self.split.iter().flat_map(SplitSpec::columns).map(str::to_owned));
        columns.extend(self.time.iter().map(|time| time.column.clone()));
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Returns the columns of lists and of texts that are no categories.
    pub(crate) fn text_columns(&self) -> Vec<&str> {
        columns_of_texts(&self.columns).chain(column_of_labels(self.target.as_ref())).collect()
    }
}

/// Returns the column of several labels, which are lists or texts with a separator.
pub(crate) fn column_of_labels(target: Option<&TargetSpec>) -> Option<&str> {
    match target {
        Some(TargetSpec::MultiLabel { column, .. }) => Some(column.as_str()),
        Some(TargetSpec::Class { .. } | TargetSpec::Regression { .. }) | None => None,
    }
}

/// Returns the columns that become features from lists, or from texts that are no categories.
fn columns_of_texts(columns: &[ColumnSpec]) -> impl Iterator<Item = &str> {
    let of_texts = columns.iter().filter(|spec| match spec.transform {
        ColumnTransform::MultiHot { .. } | ColumnTransform::Text { .. } | ColumnTransform::Vector { .. } => {
            true
        }
        ColumnTransform::Numeric
        | ColumnTransform::Standardize
        | ColumnTransform::Quantile
        | ColumnTransform::OneHot { .. }
        | ColumnTransform::Ordinal { .. }
        | ColumnTransform::Hash { .. }
        | ColumnTransform::Time { .. } => false,
    });
    of_texts.map(|spec| spec.column.as_str())
}

impl RelationSpec {
    /// Returns the columns of numbers of the edges, with the weights: their names in the set, and those in the table.
    pub(crate) fn columns_of_edges(&self) -> Vec<(&str, &str)> {
        let weights = self.weight.iter().map(|column| (EdgeColumns::WEIGHTS, column.as_str()));
        let others = self.edge_columns.iter().map(|spec| (spec.name(), spec.column.as_str()));
        weights.chain(others).collect()
    }

    /// Returns the columns of lists and of texts that are no categories.
    pub(crate) fn text_columns(&self) -> Vec<&str> {
        columns_of_texts(&self.columns).chain(column_of_labels(self.target.as_ref())).collect()
    }

    /// Returns the columns of the table that an import reads, each once.
    pub(crate) fn columns_of_table(&self) -> Vec<String> {
        let mut columns = vec![self.src.column.clone(), self.dst.column.clone()];
        columns.extend(self.columns_of_edges().into_iter().map(|(_, column)| column.to_owned()));
        columns.extend(self.columns.iter().map(|column| column.column.clone()));
        columns.extend(self.target.iter().flat_map(TargetSpec::columns).map(str::to_owned));
        columns.extend(self.split.iter().flat_map(SplitSpec::columns).map(str::to_owned));
        columns.extend(self.time_column().map(|time| time.column));
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

/// The sources or the destinations of a relation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndSpec {
    /// The name of the node type.
    #[serde(rename = "type")]
    pub node_type: String,
    /// The column of the keys.
    pub column: String,
}

use std::path::Path;

use kiln_feature::{FeatureColumn, Preparation};
use kiln_graph::SharedArray;
use kiln_store::Hasher;
use kiln_store::array_folder::bad_key;
use serde::{Deserialize, Serialize};

use crate::{DatasetTimes, Result, StoredOrders, TimeKind, TimeSplit};

/// What a manifest states about a set beside its graph and its files, whatever its layout.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) name: String,
    /// The number of feature columns of each node type; `None` for a type without features.
    pub(super) dims: Vec<Option<usize>>,
    /// What the feature columns of each node type mean; empty for a type whose columns have no names.
    pub(super) feature_columns: Vec<Vec<FeatureColumn>>,
    /// `None` for a set without targets.
    pub(super) targets: Option<TargetContents>,
    /// The relation of the links, and its reverse; `None` for a set without links.
    pub(super) links: Option<(usize, Option<usize>)>,
    /// The name and the targets of each task table.
    pub(super) tasks: Vec<(String, TargetContents)>,
    /// The number of classes or columns of the target values of the links, and their names; `None` for links without target values.
    pub(super) link_outputs: Option<(usize, Vec<String>)>,
    pub(super) edge_type_names: Vec<String>,
    /// The first new row of each node type; `None` for a set without appended rows.
    pub(super) first_new: Option<Vec<u32>>,
    pub(super) times: TimesEntry,
    pub(super) preparation: Preparation,
}

/// The meaning of the times of a set, and its split by time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimesEntry {
    /// The meaning of the times.
    #[serde(default)]
    pub kind: TimeKind,
    /// The split by time; `None` for another split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<TimeSplit>,
}

impl TimesEntry {
    /// Returns the entry of a set.
    pub fn of(times: &DatasetTimes) -> Self {
        Self { kind: times.kind, split: times.split }
    }

    /// Returns the times with those of the nodes of each type, `[n_types]`.
    pub fn with_nodes(self, nodes: Vec<Option<SharedArray<i64>>>) -> DatasetTimes {
        let has_any = nodes.iter().any(Option::is_some);
        let nodes = if has_any { nodes } else { Vec::new() };
        DatasetTimes { kind: self.kind, nodes, split: self.split, orders: StoredOrders::default() }
    }

    /// Returns true for an entry that is not written: integers without a split.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Appends the entry to the bytes that are hashed, unless it is not written.
    pub(crate) fn hash(&self, hasher: &mut Hasher) {
        if self.is_default() {
            return;
        }
        hasher.update(format!("times {}\n", serde_json::json!(self)));
    }

    /// Checks the order of the borders of the split. `path` is that of the manifest, for messages.
    ///
    /// # Errors
    /// Returns [`TimeError::Order`](crate::TimeError::Order) as the error of a key of the manifest.
    pub fn check(&self, path: &Path) -> Result<()> {
        let Some(split) = &self.split else { return Ok(()) };
        let expected = "borders of which train is before val, and val not after test";
        Ok(split.check().map_err(|error| bad_key(path, "times.split", expected, error))?)
    }
}

/// The targets of a set.
#[derive(Debug)]
pub(crate) struct TargetContents {
    pub(crate) node_type: usize,
    /// The number of classes, or of columns of target values.
    pub(crate) n_outputs: usize,
    /// The names of the classes or columns; empty if they have no names.
    pub(crate) class_names: Vec<String>,
}

/// Checks that each node type, with these numbers of nodes, has a first new row that is not behind its last row.
pub(crate) fn check_first_new(path: &Path, first_new: Option<&[u32]>, n_nodes: &[usize]) -> Result<()> {
    let Some(first_new) = first_new else { return Ok(()) };
    if first_new.len() != n_nodes.len() {
        let expected = format!("{} numbers, one per node type", n_nodes.len());
        return Err(bad_key(path, "first_new", expected, first_new.len()).into());
    }
    for (position, (first, n_nodes)) in first_new.iter().zip(n_nodes).enumerate() {
        if *n_nodes < *first as usize {
            let key = format!("first_new[{position}]");
            let expected = format!("at most {n_nodes}, the number of nodes");
            return Err(bad_key(path, &key, expected, first).into());
        }
    }
    Ok(())
}

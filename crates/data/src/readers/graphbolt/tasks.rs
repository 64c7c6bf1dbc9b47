//! The tasks of a GraphBolt folder that are read.

use std::path::Path;

use kiln_store::ArrayFile;
use kiln_store::Error as StoreError;
use kiln_store::yaml::YamlEntry;

use super::set_arrays::{LABELS, PAIRS, SEEDS, numpy};
use crate::Result;

/// The name of the task with node labels to use if there are several.
const NODE_TASK: &str = "node_classification";

/// The name of the task of links.
const LINK_TASK: &str = "link_prediction";

/// The tasks that are read, as [`open`](super::open) documents.
#[derive(Default)]
pub(super) struct Tasks<'a> {
    pub(super) of_nodes: Option<YamlEntry<'a>>,
    pub(super) of_links: Option<YamlEntry<'a>>,
    /// The task with labels of edges; `None` if there is another one.
    pub(super) of_edges: Option<YamlEntry<'a>>,
}

impl<'a> Tasks<'a> {
    /// Selects the tasks of a folder.
    pub(super) fn select(folder: &Path, root: &YamlEntry<'a>) -> Result<Self> {
        let mut named = None;
        let mut with_node_labels = Vec::new();
        let mut with_edge_labels = Vec::new();
        let mut of_links = None;
        let mut names = Vec::new();
        for task in root.list_of("tasks")? {
            let name = task.get("name")?.map_or(Ok("without a name"), |name| name.text())?;
            names.push(name);
            if name == LINK_TASK {
                of_links.get_or_insert(task);
            } else if name == NODE_TASK {
                named.get_or_insert(task);
            } else if has_labels_of_edges(folder, &task)? {
                with_edge_labels.push(task);
            } else if has_labels_of_nodes(&task)? {
                with_node_labels.push(task);
            }
        }
        let of_nodes = match (named, &with_node_labels[..]) {
            (Some(task), _) => Some(task),
            (None, [task]) => Some(task.clone()),
            (None, []) => None,
            (None, _) => return Err(ambiguous(root, &names)),
        };
        let of_edges = match &with_edge_labels[..] {
            _ if of_nodes.is_some() || of_links.is_some() => None,
            [task] => Some(task.clone()),
            _ => return Err(ambiguous(root, &names)),
        };
        Ok(Self { of_nodes, of_links, of_edges })
    }

    /// Returns true if a task is read.
    pub(super) fn contains(&self, task: &YamlEntry<'_>) -> bool {
        let read = [&self.of_nodes, &self.of_links, &self.of_edges];
        read.into_iter().flatten().any(|read| read.key() == task.key())
    }
}

/// Returns the error for no task to read, or for several.
fn ambiguous(root: &YamlEntry<'_>, names: &[&str]) -> crate::Error {
    StoreError::Metadata {
        path: root.path().to_owned(),
        key: "tasks".into(),
        expected: format!(
            "one called {NODE_TASK}, or only one with labels of nodes, or only one with labels of edges: rename the one to use, or \
             remove the others"
        ),
        found: if names.is_empty() { "missing".into() } else { names.join(", ") },
    }
    .into()
}

fn has_labels_of_nodes(task: &YamlEntry<'_>) -> Result<bool> {
    let mut has = [false; 2];
    for set in task.list_of("train_set")? {
        for data in set.list_of("data")? {
            let name = data.get("name")?.map(|name| name.text()).transpose()?.unwrap_or_default();
            has[0] |= SEEDS.contains(&name);
            has[1] |= name == LABELS;
        }
    }
    Ok(has == [true; 2])
}

/// Returns true if a set for training has labels of pairs of nodes. With `indexes`, they tell links from negatives.
fn has_labels_of_edges(folder: &Path, task: &YamlEntry<'_>) -> Result<bool> {
    for set in task.list_of("train_set")? {
        let [mut has_labels, mut has_pairs, mut has_indexes] = [false; 3];
        for data in set.list_of("data")? {
            match data.get("name")?.map(|name| name.text()).transpose()?.unwrap_or_default() {
                LABELS => has_labels = true,
                "indexes" => has_indexes = true,
                name if PAIRS.contains(&name) => {
                    has_pairs |= name != SEEDS[0] || is_of_edge_type(&set)? || is_of_pairs(folder, &data);
                }
                _ => {}
            }
        }
        if has_labels && has_pairs && !has_indexes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the type of a set has the form `source:name:destination`.
fn is_of_edge_type(set: &YamlEntry<'_>) -> Result<bool> {
    let node_or_edge_type = set.get("type")?.map(|of| of.text()).transpose()?;
    Ok(node_or_edge_type.is_some_and(|name| name.split(':').count() == 3))
}

/// Returns true if an array can be read and has a row or a column for each end of an edge.
fn is_of_pairs(folder: &Path, data: &YamlEntry<'_>) -> bool {
    let array = numpy(folder, data).ok().and_then(|path| ArrayFile::open_in_any_order(path).ok());
    array.is_some_and(|array| matches!(array.shape(), [_, 2] | [2, _]))
}

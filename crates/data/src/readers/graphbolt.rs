//! A reader of data sets in the format of DGL GraphBolt: a folder with a `metadata.yaml` that lists the other files.

mod edges;
mod heterogeneous;
mod links;
mod set_arrays;
mod tasks;
mod unread;

use std::path::{Path, PathBuf};

use kiln_feature::{Labels, Targets};
use kiln_graph::{EdgeColumns, NodeId, SharedArray};
use kiln_store::Error as StoreError;
use kiln_store::npy::DType;
use kiln_store::paths::{find, required};
use kiln_store::yaml::{Yaml, YamlEntry};
use kiln_store::{ArrayFile, check_count};

use crate::arrays::{node_error, row_shape};
use crate::check::{Place, check_split};
use crate::edges::ColumnArray;
use crate::limits::{MEMORY_BYTES, check_n_classes, check_n_nodes};
use crate::readers::ids::listed_nodes;
use crate::readers::stored::{Edges, Source, Stored};
use crate::readers::{classes, name_of};
use crate::{Dataset, Error, Note, Result, Split};

use self::set_arrays::{LABELS, SEEDS, data, numpy};
use self::tasks::Tasks;
use self::unread::{note_unread_data, note_unread_keys, note_unread_tasks};

pub(crate) use self::heterogeneous::has_types;
pub use self::heterogeneous::{open_heterogeneous, open_heterogeneous_within};

/// The name of the node features to use if there are several.
const FEATURE: &str = "feat";

/// Opens a GraphBolt folder. One with several node types or edge types is a heterogeneous set, which
/// [`open_heterogeneous`] opens. The others have one of each:
///
/// | entry of `metadata.yaml` | content |
/// |---|---|
/// | `dataset_name` | the set's name (optional) |
/// | `graph.nodes` | one entry with `num` |
/// | `graph.edges` | one entry with `format` and `path`: `numpy` (`[2, n_edges]`, sources first) or `csv` (no header) |
/// | `feature_data` | the node features named `feat`, or the only node features: a `numpy` array `[n_nodes, dim]` |
/// | | and, optionally, the edge features named `feat`, or the only ones: `[n_edges, dim]`, in the order of the edges |
/// | `tasks` | the task named `node_classification`, or the only one with node labels; and the one named `link_prediction` |
/// | | or, without both, the only task with labels of edges |
/// | a task | `train_set`, and optionally `validation_set`, `test_set` and `num_classes` |
/// | a set's `data` | `numpy` arrays: the nodes, named `seeds` or `seed_nodes` (ids, or a mask of all nodes), and their `labels` |
/// | of links | `seeds` or `node_pairs`, `[n_links, 2]`; for fixed negatives `negative_dsts`, `[n_links, n_negatives]`, and optionally `negative_srcs` |
/// | | or negatives among the `seeds`: `labels` 1 or 0, and `indexes`, equal for a link and its negatives |
/// | of edges | `seeds` or `node_pairs`, `[n_edges, 2]`, and their `labels` |
///
/// Features stay mapped if their element type allows it (`<f4`, `<f2`), regardless of `in_memory`. Only nodes of the
/// three sets have labels. Parallel edges are kept, and no edge is added.
///
/// Labels of edges are classes if they are integers or if `num_classes` is stated, numbers if they are floats, and several labels
/// or numbers per edge in an array `[n_edges, n_columns]`. The set has them as [`Dataset::links`](crate::Dataset::links), with
/// the rows of the edge features, and its graph lacks the edges for validation and test and their reverses
/// ([`LinkSplit::hold_out`](crate::LinkSplit::hold_out)). If the graph has several edges of a pair, the rows of the pair in the
/// three sets are these edges, in the order of both.
///
/// Other features
/// and tasks are not read; a note names each of them, and the keys that are none of these. A set with links may lack a task with node labels: no node then has a label.
///
/// A relative path is resolved against the folder, as in GraphBolt. Absolute paths and paths that contain `..` may
/// refer to files outside of the folder.
///
/// # Errors
/// Returns [`kiln_store::Error::Missing`] if the folder has no `metadata.yaml`, [`Error::Unsupported`] for `torch`
/// files, sets that contain only the folder `preprocessed`, graphs of several types and graphs without node features,
/// [`kiln_store::Error::Metadata`] or [`kiln_store::Error::BadLine`] for invalid entries and lines,
/// [`kiln_store::Error::BadValue`], [`kiln_store::Error::Inconsistent`] or [`kiln_store::Error::Npy`] for invalid
/// arrays, [`LinkSplitError::NotAnEdge`](crate::LinkSplitError::NotAnEdge) within [`Error::InPart`] for a pair with labels that
/// has no edge of its own, and [`Error::EdgeListTooLarge`] if compressed edges would take more than 1 GiB
/// ([`open_within`](crate::open_within) sets another limit).
pub fn open(folder: impl AsRef<Path>) -> Result<Dataset> {
    open_within(folder.as_ref(), MEMORY_BYTES)
}

/// Opens a folder as [`open`] does, with another limit for compressed edges and for nodes without features.
pub(crate) fn open_within(folder: &Path, memory_bytes: u64) -> Result<Dataset> {
    match has_types(folder)? {
        true => open_heterogeneous_within(folder, memory_bytes),
        false => read(folder)?.read_within(memory_bytes),
    }
}

/// Reads the labels and the split, and locates the files of features and edges.
pub(crate) fn read(folder: &Path) -> Result<Stored> {
    let path = metadata_path(folder)?;
    let yaml = Yaml::read(&path)?;
    let root = YamlEntry::root(&path, &yaml);
    let mut notes = Vec::new();
    note_unread_keys(&path, &yaml, &mut notes);
    let graph = graph_entry(&root)?;
    let nodes = only(&graph, "nodes", "a graph of several node types", OPEN_TYPES)?;
    let edges_entry = only(&graph, "edges", "a graph of several edge types", OPEN_TYPES)?;
    let node_type = nodes.get("type")?.map(|ty| ty.text()).transpose()?;
    check_type(&edges_entry, node_type)?;
    let tasks = Tasks::select(folder, &root)?;
    note_unread_tasks(&root, |task| tasks.contains(task), &mut notes)?;
    let n_nodes = check_n_nodes(&path, nodes.require("num", "the number of nodes")?.count()?)?;
    note_unused(&graph.list_of("feature_data")?, &[], &mut notes)?;
    let features = root.list_of("feature_data")?;
    let mut used = Vec::new();
    let columns = edge_columns(folder, &features, |_| Ok(true), &mut used, &mut notes)?;
    // The number of nodes is compared with the number of feature rows before arrays of that length are allocated.
    let rows = find_features(folder, &features, &root, node_type, n_nodes, &mut used)?;
    note_unused(&features, &used, &mut notes)?;
    let source = find_edges(folder, &edges_entry)?;
    let edges = Edges { source, n_stated: None, is_symmetrized: false, columns };
    let (labels, split) = match &tasks.of_nodes {
        Some(task) => read_task(folder, task, node_type, n_nodes, &mut notes)?,
        None => (Labels::new(vec![-1; n_nodes], 0), Split::default()),
    };
    let links = match (&tasks.of_links, &tasks.of_edges) {
        (Some(task), _) => {
            Some(links::read_task(folder, task, n_nodes, |set| check_type(set, node_type), Ok, &mut notes)?)
        }
        (None, Some(task)) => Some(edges::read_task(
            folder,
            task,
            n_nodes,
            |set| check_edge_type(set, &edges_entry, node_type),
            Ok,
            &mut notes,
        )?),
        (None, None) => None,
    };
    let targets = Targets::from(labels);
    check_split(Place::Set(&path), &split, &targets, &mut notes)?;
    let name = root.get("dataset_name")?.map(|name| name.text()).transpose()?;
    let name = name.map_or_else(|| name_of(folder), str::to_owned);
    Ok(Stored { name, targets, split, links, features: Source::Mapped(rows), edges, notes })
}

fn metadata_path(folder: &Path) -> Result<PathBuf> {
    if find(folder, &["metadata.yaml"]).is_none() && find(folder, &["preprocessed/metadata.yaml"]).is_some() {
        return Err(preprocessed(folder));
    }
    Ok(required(folder, &["metadata.yaml"], "the list of the set's files")?)
}

fn preprocessed(path: &Path) -> Error {
    Error::Unsupported {
        path: path.to_owned(),
        what: "a set with only its preprocessed part, which only DGL can read,".into(),
        instead: "open the folder with the raw files, whose metadata.yaml has the entry `graph`".into(),
    }
}

fn graph_entry<'a>(root: &YamlEntry<'a>) -> Result<YamlEntry<'a>> {
    let graph = root.get("graph")?;
    if graph.is_none() && root.get("graph_topology")?.is_some() {
        return Err(preprocessed(root.path()));
    }
    Ok(graph.map_or_else(|| root.require("graph", "a mapping with `nodes` and `edges`"), Ok)?)
}

/// The advice for a graph of several types.
const OPEN_TYPES: &str = "open it with graphbolt::open or Dataset::open";

/// Returns the only entry of a list. `several` is the noun phrase for a list of several entries, and `instead` the advice.
fn only<'a>(parent: &YamlEntry<'a>, key: &str, several: &str, instead: &str) -> Result<YamlEntry<'a>> {
    let list = parent.require(key, "a list of one entry")?;
    let mut entries = list.list()?;
    match (entries.pop(), entries.len()) {
        (Some(entry), 0) => Ok(entry),
        (None, _) => Err(list.bad("a list of one entry").into()),
        (Some(_), _) => Err(Error::Unsupported {
            path: parent.path().to_owned(),
            what: format!("{several} ({})", list.key()),
            instead: instead.into(),
        }),
    }
}

/// Returns the set of a part of a task on links or edges; `None`, with a note, for a task without it. Each task has a `train_set`.
fn set_of_part<'a>(task: &YamlEntry<'a>, key: &str, notes: &mut Vec<Note>) -> Result<Option<YamlEntry<'a>>> {
    if key != "train_set" && task.get(key)?.is_none() {
        notes.push(Note::Other(format!(
            "metadata.yaml has no {key} of the task: that part of the split is empty"
        )));
        return Ok(None);
    }
    only(task, key, "a set over several edge types", ONE_TYPE).map(Some)
}

/// Checks that an entry refers to the graph's only node type, if that type has a name.
fn check_type(entry: &YamlEntry<'_>, node_type: Option<&str>) -> Result<()> {
    let (Some(stated), Some(node_type)) = (entry.get("type")?, node_type) else {
        return Ok(());
    };
    // The form of an edge type is `source:name:destination`.
    let of_others = match &stated.text()?.split(':').collect::<Vec<_>>()[..] {
        [src, _, dst] => *src != node_type || *dst != node_type,
        name => *name != [node_type],
    };
    if of_others { Err(stated.bad(format!("{node_type}, the only node type")).into()) } else { Ok(()) }
}

/// Checks that a set of edges is of the graph's only edge type, if that type has a name.
fn check_edge_type(set: &YamlEntry<'_>, edges: &YamlEntry<'_>, node_type: Option<&str>) -> Result<()> {
    check_type(set, node_type)?;
    let (Some(stated), Some(edge_type)) = (set.get("type")?, edges.get("type")?) else {
        return Ok(());
    };
    let edge_type = edge_type.text()?;
    match stated.text()? == edge_type {
        true => Ok(()),
        false => Err(stated.bad(format!("{edge_type}, the only edge type")).into()),
    }
}

fn find_edges(folder: &Path, edges: &YamlEntry<'_>) -> Result<Source> {
    let format = edges.require("format", "numpy or csv")?;
    match format.text()? {
        "csv" => {
            let path = edges.require("path", "the name of a file")?;
            Ok(Source::Table(folder.join(path.text()?)))
        }
        "numpy" | "torch" => Ok(Source::Mapped(ArrayFile::open_in_any_order(numpy(folder, edges)?)?)),
        _ => Err(format.bad("numpy or csv").into()),
    }
}

fn find_features(
    folder: &Path,
    all: &[YamlEntry<'_>],
    root: &YamlEntry<'_>,
    node_type: Option<&str>,
    n_nodes: usize,
    used: &mut Vec<usize>,
) -> Result<ArrayFile> {
    let position = the_feature(root, all)?;
    used.push(position);
    check_type(&all[position], node_type)?;
    let path = numpy(folder, &all[position])?;
    let array = ArrayFile::open(&path)?;
    check_count(&path, "the number of feature rows", n_nodes, row_shape(&array)?.0)?;
    Ok(array)
}

/// Returns the position in `all` of the node features named [`FEATURE`], or else of the only node features.
fn the_feature(root: &YamlEntry<'_>, all: &[YamlEntry<'_>]) -> Result<usize> {
    let mut of_nodes = Vec::new();
    for (position, feature) in all.iter().enumerate() {
        let name = feature.require("name", "the features' name")?.text()?;
        if feature.require("domain", "node or edge")?.text()? == "node" {
            of_nodes.push((position, name));
        }
    }
    let named = of_nodes.iter().find(|(_, name)| *name == FEATURE);
    match (named, &of_nodes[..]) {
        (Some(&(position, _)), _) | (None, &[(position, _)]) => Ok(position),
        (None, []) => Err(Error::Unsupported {
            path: root.path().to_owned(),
            what: "a graph without node features".into(),
            instead: format!("add an entry called {FEATURE} with the domain node to feature_data"),
        }),
        (None, several) => Err(StoreError::Metadata {
            path: root.path().to_owned(),
            key: "feature_data".into(),
            expected: format!("node features called {FEATURE}: rename the ones to use"),
            found: several.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", "),
        }
        .into()),
    }
}

/// Returns the column of the features of a relation's edges: those named [`FEATURE`], or else the only ones that are of the
/// relation. Their position in `all` is added to `used`. Features of whole numbers, such as times, are none.
fn edge_columns(
    folder: &Path,
    all: &[YamlEntry<'_>],
    is_of_relation: impl Fn(&YamlEntry<'_>) -> Result<bool>,
    used: &mut Vec<usize>,
    notes: &mut Vec<Note>,
) -> Result<Vec<ColumnArray>> {
    let mut of_edges = Vec::new();
    for (position, feature) in all.iter().enumerate() {
        let name = feature.require("name", "the features' name")?.text()?;
        if feature.require("domain", "node or edge")?.text()? == "edge" && is_of_relation(feature)? {
            of_edges.push((position, name));
        }
    }
    let named = of_edges.iter().find(|(_, name)| *name == FEATURE);
    let ((Some(&(position, _)), _) | (None, &[(position, _)])) = (named, &of_edges[..]) else {
        return Ok(Vec::new());
    };
    used.push(position);
    let array = ArrayFile::open(numpy(folder, &all[position])?)?;
    if !matches!(array.dtype(), DType::F16 | DType::F32 | DType::F64) {
        let path = array.path().display();
        notes.push(Note::Other(format!("{path} is not read: edge features are floats (<f4 or <f2)")));
        return Ok(Vec::new());
    }
    Ok(vec![ColumnArray::rows(array, EdgeColumns::FEATURES)?])
}

/// Adds a note for each feature that is not read: all except those at the positions `used`.
fn note_unused(features: &[YamlEntry<'_>], used: &[usize], notes: &mut Vec<Note>) -> Result<()> {
    for (position, feature) in features.iter().enumerate() {
        if !used.contains(&position) {
            let domain = feature.get("domain")?.map_or(Ok("unknown"), |domain| domain.text())?;
            let name = feature.get("name")?.map_or(Ok("without a name"), |name| name.text())?;
            let key = feature.key();
            notes.push(Note::Other(format!(
                "the {domain} feature {name} ({key} in metadata.yaml) is not used"
            )));
        }
    }
    Ok(())
}

/// The advice for a set of nodes or links of several types.
const ONE_TYPE: &str = "write a task over one type";

/// Reads the train, validation and test set. Returns the labels of their nodes, and the split.
fn read_task(
    folder: &Path,
    task: &YamlEntry<'_>,
    node_type: Option<&str>,
    n_nodes: usize,
    notes: &mut Vec<Note>,
) -> Result<(Labels, Split)> {
    let n_classes = match task.get("num_classes")? {
        Some(stated) => Some(check_n_classes(task.path(), stated.count()?)?),
        None => None,
    };
    let mut classes = Classes { of_nodes: vec![-1; n_nodes], n_classes };
    let mut part = |key: &str| -> Result<SharedArray<NodeId>> {
        if key != "train_set" && task.get(key)?.is_none() {
            notes.push(Note::Other(format!("metadata.yaml has no {key}: that part of the split is empty")));
            return Ok(SharedArray::default());
        }
        let set = only(task, key, "a set over several node types", ONE_TYPE)?;
        check_type(&set, node_type)?;
        classes.read_set(folder, &set, notes)
    };
    let split = Split { train: part("train_set")?, val: part("validation_set")?, test: part("test_set")? };
    let n_classes = n_classes.unwrap_or_else(|| classes::n_classes(&classes.of_nodes));
    Ok((Labels::new(classes.of_nodes, n_classes), split))
}

/// The classes of the nodes in the sets that were read so far.
struct Classes {
    /// The class of each node; -1 if it was in no set so far.
    of_nodes: Vec<i32>,
    n_classes: Option<usize>,
}

impl Classes {
    /// Reads the nodes of a set and stores their labels.
    fn read_set(
        &mut self,
        folder: &Path,
        set: &YamlEntry<'_>,
        notes: &mut Vec<Note>,
    ) -> Result<SharedArray<NodeId>> {
        let n_nodes = self.of_nodes.len();
        note_unread_data(set, &[&SEEDS, &[LABELS]], notes)?;
        let (nodes_path, labels_path) = (data(folder, set, &SEEDS)?, data(folder, set, &[LABELS])?);
        let nodes_array = ArrayFile::open(nodes_path)?;
        let nodes = listed_nodes(&nodes_array, n_nodes, notes)?;
        let labels_array = ArrayFile::open(&labels_path)?;
        let labels = classes::from_array(&labels_array)?;
        check_count(&labels_path, "the number of labels", nodes.len(), labels.len())?;
        for (position, (node, &label)) in nodes.iter().zip(&labels).enumerate() {
            let Some(known) = self.of_nodes.get_mut(node.index()) else {
                // Ids of type <i4 were mapped as unsigned integers. The message states the signed value.
                let is_signed = nodes_array.dtype() == DType::I32;
                let id = if is_signed { i128::from(node.0 as i32) } else { i128::from(node.0) };
                return Err(node_error(&nodes_array, "entry", position, id, n_nodes).into());
            };
            let expected = match self.n_classes {
                _ if label < 0 => "a class: every node of a set needs one".to_owned(),
                Some(n_classes) if label as usize >= n_classes => format!("below num_classes, {n_classes}"),
                _ if *known >= 0 && *known != label => {
                    format!("{known}, the class of node {} in another set", node.0)
                }
                _ => {
                    *known = label;
                    continue;
                }
            };
            return Err(labels_array.bad_value("the label of row", position, expected, label).into());
        }
        Ok(nodes)
    }
}

//! The reader of GraphBolt folders with several node types or several edge types.

use std::path::Path;
use std::sync::Arc;

use kiln_feature::FeatureStore;
use kiln_graph::{Links, NodeId, NodeTypes, Relations, SharedArray};
use kiln_store::yaml::{Yaml, YamlEntry};
use kiln_store::{ArrayFile, Error as StoreError, check_count};

use super::set_arrays::numpy;
use super::{
    FEATURE, ONE_TYPE, Tasks, edge_columns, edges as edge_task, find_edges, graph_entry, links,
    metadata_path, note_unread_keys, note_unread_tasks, note_unused, only, read_task,
};
use crate::arrays::{RowsOf, row_shape, rows_of};
use crate::check::{Place, check_split};
use crate::edges::ColumnArray;
use crate::limits::{MAX_TYPES, MEMORY_BYTES, check_n_nodes};
use crate::readers::edge_targets::add_edge_task;
use crate::readers::links::{StoredLinks, StoredNegatives};
use crate::readers::name_of;
use crate::readers::relation_files::{RelationFiles, check_offsets, unique_names};
use crate::readers::stored::Edges;
use crate::{Dataset, DatasetLinks, DatasetTargets, Note, Result};

/// Opens a GraphBolt folder with any number of node types and edge types as a heterogeneous set. The entries of `metadata.yaml` are those of
/// [`graphbolt::open`](super::open), and in addition:
///
/// | entry | content |
/// |---|---|
/// | `graph.nodes` | one entry per node type with `type` and `num` |
/// | `graph.edges` | one entry per relation with `type: "SOURCE:RELATION:DESTINATION"`, `format` and `path` |
/// | `feature_data` | for each node type with features, those named `feat`, or the only ones, with `type` |
/// | a set of a task | one entry with `type`, a node type or, for links, an edge type, the same in all sets of the task |
///
/// Ids count from 0 within their type. The types and the relations keep their order. The name of a relation is the part
/// `RELATION`, or the whole `type` if this part occurs several times. A task of link prediction without a `train_set`, or
/// with one over several edge types, is not read; a note names it. A relation with the reverse of each edge of the relation with
/// labels of edges is its reverse relation, with a note. A folder without tasks is a set without targets. The reverse of relations is not added, as in GraphBolt.
///
/// # Errors
/// Returns the errors of [`graphbolt::open`](super::open) except those for several types, and
/// [`Error::Memory`](crate::Error::Memory) if the
/// offsets of nodes that no file confirms would take more than 1 GiB and more than all features: those of types without
/// features, and those of all relations but the first into a type with features.
pub fn open_heterogeneous(folder: impl AsRef<Path>) -> Result<Dataset> {
    open_heterogeneous_within(folder, MEMORY_BYTES)
}

/// Opens a folder as [`open_heterogeneous`] does, with another limit for compressed edges and for nodes without features.
///
/// # Errors
/// Returns the errors of [`open_heterogeneous`].
pub fn open_heterogeneous_within(folder: impl AsRef<Path>, memory_bytes: u64) -> Result<Dataset> {
    let folder = folder.as_ref();
    let path = metadata_path(folder)?;
    let yaml = Yaml::read(&path)?;
    let root = YamlEntry::root(&path, &yaml);
    let mut notes = Vec::new();
    note_unread_keys(&path, &yaml, &mut notes);
    let graph = graph_entry(&root)?;
    let types = Arc::new(node_types(&graph)?);
    let edges = edge_types(&graph, &types)?;
    note_unused(&graph.list_of("feature_data")?, &[], &mut notes)?;
    let feature_data = root.list_of("feature_data")?;
    let mut used = Vec::new();
    let features = read_features(folder, &feature_data, &root, &types, &mut used, &mut notes)?;
    let dst_types: Vec<usize> = edges.iter().map(|edges| edges.dst_type).collect();
    let is_confirmed: Vec<bool> = features.iter().map(Option::is_some).collect();
    check_offsets(&path, &types, &dst_types, &is_confirmed, &features, memory_bytes)?;
    let (mut relations, mut left_bytes) = (Vec::new(), memory_bytes);
    for edges in &edges {
        let columns = edge_columns(folder, &feature_data, |of| edges.is_named_in(of), &mut used, &mut notes)?;
        let files = edges.files(folder, columns)?;
        relations.push(files.read(&types, &mut left_bytes, &mut notes)?);
    }
    note_unused(&feature_data, &used, &mut notes)?;
    let graph = Arc::new(Relations::new(types.clone(), relations)?);
    let tasks = match root.list_of("tasks")?.is_empty() {
        true => Tasks::default(),
        false => Tasks::select(folder, &root)?,
    };
    let links = match &tasks.of_links {
        Some(task) => read_links(folder, task, &edges, &types, &mut notes)?,
        None => None,
    };
    let edge_targets = match &tasks.of_edges {
        Some(task) => Some(read_edge_targets(folder, task, &edges, &types, &mut notes)?),
        None => None,
    };
    note_unread_tasks(&root, |task| tasks.contains(task), &mut notes)?;
    let targets = tasks.of_nodes.map(|task| read_targets(folder, &root, &task, &types, &mut notes));
    let targets = targets.transpose()?;
    let name = root.get("dataset_name")?.map(|name| name.text()).transpose()?;
    let name = name.map_or_else(|| name_of(folder), str::to_owned);
    let data = Dataset { targets, links, notes, ..Dataset::heterogeneous(name, graph, features) };
    match edge_targets {
        Some(DatasetLinks { relation, targets, .. }) => {
            add_edge_task(data, relation, Arc::unwrap_or_clone(targets))
        }
        None => Ok(data),
    }
}

/// Returns true if the folder has several node types or several edge types.
pub(crate) fn has_types(folder: &Path) -> Result<bool> {
    let path = metadata_path(folder)?;
    let yaml = Yaml::read(&path)?;
    let graph = graph_entry(&YamlEntry::root(&path, &yaml))?;
    Ok(1 < graph.list_of("nodes")?.len() || 1 < graph.list_of("edges")?.len())
}

/// Returns the node types. The only type may have no name; it is then called `node`.
fn node_types(graph: &YamlEntry<'_>) -> Result<NodeTypes> {
    let nodes = graph.require("nodes", "a list of node types")?;
    let list = nodes.list()?;
    if MAX_TYPES < list.len() {
        return Err(nodes.bad(format!("at most {MAX_TYPES} node types")).into());
    }
    let mut types = Vec::new();
    for entry in &list {
        let n_nodes = entry.require("num", "the number of nodes")?.count()?;
        types.push((type_of(entry, list.len() == 1)?, check_n_nodes(entry.path(), n_nodes)?));
    }
    let bad = |error| nodes.bad(format!("node types with different names, at most 2^32 - 1 nodes ({error})"));
    Ok(NodeTypes::new(types).map_err(bad)?)
}

/// Returns the name of an entry's node type, which may be missing if the graph has one type.
fn type_of<'a>(entry: &YamlEntry<'a>, is_only: bool) -> Result<&'a str> {
    match entry.get("type")? {
        Some(name) => Ok(name.text()?),
        None if is_only => Ok("node"),
        None => Ok(entry.require("type", "the name of a node type")?.text()?),
    }
}

/// Returns the position of an entry's node type.
fn position_of(entry: &YamlEntry<'_>, types: &NodeTypes) -> Result<usize> {
    match entry.get("type")? {
        None if types.n_types() == 1 => Ok(0),
        _ => {
            let name = entry.require("type", "the name of a node type")?;
            let expected = || name.bad(format!("one of the node types: {}", types.names().join(", ")));
            Ok(types.position(name.text()?).ok_or_else(expected)?)
        }
    }
}

/// The entry of a relation in `graph.edges`.
struct EdgeType<'a> {
    entry: YamlEntry<'a>,
    name: String,
    src_type: usize,
    dst_type: usize,
}

/// Returns the relations, with unique names if their types are unique.
fn edge_types<'a>(graph: &YamlEntry<'a>, types: &NodeTypes) -> Result<Vec<EdgeType<'a>>> {
    let mut found: Vec<(EdgeType<'a>, String)> = Vec::new();
    let edges = graph.require("edges", "a list of edge types")?;
    let list = edges.list()?;
    if Relations::MOST < list.len() {
        return Err(edges.bad(format!("at most {} edge types", Relations::MOST)).into());
    }
    for entry in list {
        if entry.get("type")?.is_none() && types.n_types() == 1 {
            found.push((
                EdgeType { entry, name: "edge".to_owned(), src_type: 0, dst_type: 0 },
                "edge".to_owned(),
            ));
            continue;
        }
        let stated = entry.require("type", "SOURCE:RELATION:DESTINATION")?;
        let parts: Vec<&str> = stated.text()?.split(':').collect();
        let ends = |src, dst| Some((types.position(src)?, types.position(dst)?));
        let of_types = match parts[..] {
            [src, name, dst] => ends(src, dst).map(|ends| (name, ends)),
            _ => None,
        };
        let Some((name, (src_type, dst_type))) = of_types else {
            let names = types.names().join(", ");
            return Err(stated
                .bad(format!("SOURCE:RELATION:DESTINATION with the node types {names}"))
                .into());
        };
        let whole = stated.text()?.to_owned();
        found.push((EdgeType { entry, name: name.to_owned(), src_type, dst_type }, whole));
    }
    let names = found.iter().map(|(edge_type, whole)| (edge_type.name.as_str(), whole.as_str()));
    let names = unique_names(names).map_err(|name| {
        edges.bad(format!("edge types with different names, but `{name:.60}` is empty or occurs twice"))
    })?;
    let named = found.into_iter().zip(names).map(|((edge_type, _), name)| EdgeType { name, ..edge_type });
    Ok(named.collect())
}

impl EdgeType<'_> {
    /// Returns true if another entry names this edge type.
    fn is_named_in(&self, other: &YamlEntry<'_>) -> Result<bool> {
        Ok(match (self.entry.get("type")?, other.get("type")?) {
            (Some(name), Some(of)) => name.text()? == of.text()?,
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        })
    }

    /// Returns the files of the relation, whose edges have these columns.
    fn files(&self, folder: &Path, columns: Vec<ColumnArray>) -> Result<RelationFiles> {
        let source = find_edges(folder, &self.entry)?;
        let edges = Edges { source, n_stated: None, is_symmetrized: false, columns };
        let (name, src_type, dst_type) = (self.name.clone(), self.src_type, self.dst_type);
        Ok(RelationFiles { name, src_type, dst_type, edges })
    }
}

/// Returns the features of each node type: those named [`FEATURE`], or else the only ones.
fn read_features(
    folder: &Path,
    all: &[YamlEntry<'_>],
    root: &YamlEntry<'_>,
    types: &NodeTypes,
    used: &mut Vec<usize>,
    notes: &mut Vec<Note>,
) -> Result<Vec<Option<Arc<dyn FeatureStore>>>> {
    let mut of_types = vec![Vec::new(); types.n_types()];
    for (position, feature) in all.iter().enumerate() {
        let name = feature.require("name", "the features' name")?.text()?;
        if feature.require("domain", "node or edge")?.text()? == "node" {
            of_types[position_of(feature, types)?].push((position, name));
        }
    }
    let mut features = Vec::<Option<Arc<dyn FeatureStore>>>::new();
    for (node_type, found) in of_types.iter().enumerate() {
        let named = found.iter().find(|(_, name)| *name == FEATURE);
        let position = match (named, &found[..]) {
            (_, []) => {
                features.push(None);
                continue;
            }
            (Some(&(position, _)), _) | (None, &[(position, _)]) => position,
            (None, several) => {
                let names: Vec<&str> = several.iter().map(|(_, name)| *name).collect();
                let (path, key) = (root.path().to_owned(), "feature_data".into());
                let of_type = &types.names()[node_type];
                let expected = format!("features of {of_type} called {FEATURE}: rename the ones to use");
                let found = names.join(", ");
                return Err(StoreError::Metadata { path, key, expected, found }.into());
            }
        };
        used.push(position);
        let array = ArrayFile::open(numpy(folder, &all[position])?)?;
        let n_nodes = types.range(node_type).len();
        check_count(array.path(), RowsOf::Nodes.count(), n_nodes, row_shape(&array)?.0)?;
        features.push(Some(Arc::new(rows_of(&array, RowsOf::Nodes, notes)?)));
    }
    Ok(features)
}

/// Reads the links of the task of link prediction. Returns `None` with a note for a training set that is not of one relation.
fn read_links(
    folder: &Path,
    task: &YamlEntry<'_>,
    edges: &[EdgeType<'_>],
    types: &NodeTypes,
    notes: &mut Vec<Note>,
) -> Result<Option<DatasetLinks>> {
    let train = task.list_of("train_set")?;
    let [first] = &train[..] else {
        let (key, n_types) = (task.key(), train.len());
        notes.push(Note::Other(format!(
            "the task of link prediction ({key} in metadata.yaml) is not read: its train_set is of {n_types} edge types, \
             expected one"
        )));
        return Ok(None);
    };
    let relation = relation_of(first, edges)?;
    let of_relation = OfRelation { task, types, edges, relation };
    let targets = links::read_task(
        folder,
        task,
        of_relation.most_nodes(),
        |set| of_relation.check_type(set),
        |links| of_relation.ids_of_links(links),
        notes,
    )?;
    Ok(Some(DatasetLinks { relation, reverse: None, targets }))
}

/// Reads the edges and the labels of the task with labels of edges.
fn read_edge_targets(
    folder: &Path,
    task: &YamlEntry<'_>,
    edges: &[EdgeType<'_>],
    types: &NodeTypes,
    notes: &mut Vec<Note>,
) -> Result<DatasetLinks> {
    let train = only(task, "train_set", "a set over several edge types", ONE_TYPE)?;
    let relation = relation_of(&train, edges)?;
    let of_relation = OfRelation { task, types, edges, relation };
    let targets = edge_task::read_task(
        folder,
        task,
        of_relation.most_nodes(),
        |set| of_relation.check_type(set),
        |links| of_relation.ids_of_links(links),
        notes,
    )?;
    Ok(DatasetLinks { relation, reverse: None, targets })
}

/// Returns the position of the relation of a set of links.
fn relation_of(set: &YamlEntry<'_>, edges: &[EdgeType<'_>]) -> Result<usize> {
    if let (None, [_]) = (set.get("type")?, edges) {
        return Ok(0);
    }
    let stated = set.require("type", "SOURCE:RELATION:DESTINATION")?;
    for (position, edge_type) in edges.iter().enumerate() {
        if edge_type.is_named_in(set)? {
            return Ok(position);
        }
    }
    Err(stated.bad("one of the edge types in graph.edges").into())
}

/// The relation of a task of links or edges.
struct OfRelation<'a> {
    task: &'a YamlEntry<'a>,
    types: &'a NodeTypes,
    edges: &'a [EdgeType<'a>],
    relation: usize,
}

impl OfRelation<'_> {
    /// Returns the types of the sources and of the destinations.
    fn ends(&self) -> [usize; 2] {
        let EdgeType { src_type, dst_type, .. } = self.edges[self.relation];
        [src_type, dst_type]
    }

    /// Returns the number of nodes of the larger type, below which all ids must be.
    fn most_nodes(&self) -> usize {
        let [n_srcs, n_dsts] = self.ends().map(|node_type| self.types.range(node_type).len());
        n_srcs.max(n_dsts)
    }

    /// Checks that a set is of the relation of the train_set.
    fn check_type(&self, set: &YamlEntry<'_>) -> Result<()> {
        if relation_of(set, self.edges)? == self.relation {
            return Ok(());
        }
        let stated = set.require("type", "SOURCE:RELATION:DESTINATION")?;
        Err(stated.bad("the edge type of the train_set").into())
    }

    /// Returns links and negatives with node ids of the graph instead of ids that count from 0 within their types.
    fn ids_of_links(&self, stored: StoredLinks) -> Result<StoredLinks> {
        let [src_type, dst_type] = self.ends();
        let StoredLinks { links, negatives } = stored;
        let srcs = self.ids("the source of link", links.srcs(), src_type)?;
        let dsts = self.ids("the destination of link", links.dsts(), dst_type)?;
        let negatives = negatives.map(|StoredNegatives { n_per_link, srcs, dsts }| {
            let of_srcs = |nodes: &SharedArray<NodeId>| self.ids("the source of negative", nodes, src_type);
            let srcs = srcs.as_ref().map(of_srcs).transpose()?;
            let dsts = self.ids("the destination of negative", &dsts, dst_type)?;
            Ok::<_, crate::Error>(StoredNegatives { n_per_link, srcs, dsts })
        });
        Ok(StoredLinks { links: Links::new(srcs, dsts)?, negatives: negatives.transpose()? })
    }

    /// Returns the node ids of nodes of a type.
    fn ids(
        &self,
        what: &'static str,
        nodes: &SharedArray<NodeId>,
        node_type: usize,
    ) -> Result<SharedArray<NodeId>> {
        let range = self.types.range(node_type);
        let Some(position) = nodes.iter().position(|node| range.len() <= node.index()) else {
            return Ok(nodes.iter().map(|node| NodeId(range.start + node.0)).collect());
        };
        let (n_nodes, name) = (range.len(), &self.types.names()[node_type]);
        Err(StoreError::BadValue {
            path: self.task.path().to_owned(),
            what,
            position: position as u64,
            expected: format!(
                "below {n_nodes}, the number of nodes of type `{name:.60}`, in {}",
                self.task.key()
            ),
            found: nodes[position].0.to_string(),
        }
        .into())
    }
}

/// Reads the targets and the split of the task with node labels.
fn read_targets(
    folder: &Path,
    root: &YamlEntry<'_>,
    task: &YamlEntry<'_>,
    types: &NodeTypes,
    notes: &mut Vec<Note>,
) -> Result<DatasetTargets> {
    let train = only(task, "train_set", "a set over several node types", ONE_TYPE)?;
    let node_type = position_of(&train, types)?;
    let (nodes, name) = (types.range(node_type), &types.names()[node_type]);
    for set in [task.list_of("validation_set")?, task.list_of("test_set")?].iter().flatten() {
        if position_of(set, types)? != node_type {
            let stated = set.require("type", "the name of a node type")?;
            return Err(stated.bad(format!("{name}, the type of the train_set")).into());
        }
    }
    let stated = (1 < types.n_types()).then_some(name.as_str());
    let (labels, split) = read_task(folder, task, stated, nodes.len(), notes)?;
    let values = labels.into();
    check_split(Place::Set(root.path()), &split, &values, notes)?;
    Ok(DatasetTargets::new(node_type, values, split.shifted(nodes.start)))
}

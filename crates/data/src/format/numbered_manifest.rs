//! The manifest `kiln.json` of a heterogeneous set: its types, relations and names, and the type, shape and hash of each
//! file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kiln_feature::{FeatureColumn, MAX_DIM, Preparation};
use kiln_graph::{NodeTypes, Relation, Relations};
use kiln_store::Hasher;
use kiln_store::array_folder::{
    ElementType, Entries, Entry, FolderWriter, Known, bad_entry, bad_key, check_entries, check_together,
    check_unlisted, read_manifest,
};
use serde::{Deserialize, Serialize};

use super::attachment::check_names;
use super::contents::{Contents, TargetContents, TimesEntry, check_first_new};
use super::edges_by_time::{self, OrderEntries, RelationEnds, is_order};
use super::links_entry::{LinkTargetsEntry, LinksEntry, check_link_targets, check_links, n_links};
use super::location::{FILE_NAME, path_in};
use super::tasks_entry::{TaskEntry, check_task_files, check_tasks, task_entries};
use crate::graph_folder::{
    FEATURES, LABELS, LINK_FILES, LINK_VALUES, NEGATIVES, NODE_TIMES, TARGETS, check_class_names,
    check_feature_columns, check_target_files, class_names_of, class_names_to_write, column_entries,
    column_files, link_entries, link_value_entries, numbered, target_files,
};
use crate::layout::Layout;
use crate::limits::{MAX_TYPES, MEMORY_BYTES};
use crate::{Dataset, Result};

/// The version of the format that is written, and the only one that can be read.
const VERSION: u32 = 1;

/// The content of `kiln.json`: everything about a heterogeneous set except its arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NumberedManifest {
    /// The version of the format, always [`VERSION`].
    format: u32,
    pub(super) name: String,
    /// The node types, in the order of their ids.
    pub(super) node_types: Vec<TypeEntry>,
    /// The relations, in the order of their edge ids.
    pub(super) relations: Vec<RelationEntry>,
    /// The name of the node type that has targets; `None` for a set without targets.
    pub(super) target_type: Option<String>,
    /// The number of classes, or of columns of target values; `None` for a set without targets.
    pub(super) n_classes: Option<usize>,
    /// The names of the classes or columns, by number; empty if they have no names.
    pub(super) class_names: Vec<String>,
    /// The relation of the links of link prediction; absent for a set without links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) links: Option<LinksEntry>,
    /// The target values of the links; absent if they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) link_targets: Option<LinkTargetsEntry>,
    /// The task tables; absent for a set without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tasks: Vec<TaskEntry>,
    /// The first row of each node type that the last append has added; absent for a set without appended rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) first_new: Option<Vec<u32>>,
    /// The meaning of the times and the split by time; absent for a set of integers without such a split.
    #[serde(default, skip_serializing_if = "TimesEntry::is_default")]
    pub(super) times: TimesEntry,
    /// The orders of the edges of relations by time, by file name; absent if neither edges nor nodes have times.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) orders: OrderEntries,
    /// The SHA-256 of each JSON file beside the arrays, by file name; absent if there is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) attachments: BTreeMap<String, String>,
    /// The entries of the files, by file name.
    pub(super) files: Entries,
}

/// The entry of a node type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TypeEntry {
    pub(super) name: String,
    pub(super) n_nodes: usize,
    /// The number of feature columns; `None` for a type without features.
    pub(super) dim: Option<usize>,
    /// What the feature columns mean; absent if they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) feature_columns: Vec<FeatureColumn>,
}

/// The entry of a relation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RelationEntry {
    pub(super) name: String,
    /// The name of the type of the sources.
    pub(super) src_type: String,
    /// The name of the type of the destinations.
    pub(super) dst_type: String,
    pub(super) n_edges: usize,
}

impl NumberedManifest {
    /// Returns the manifest of a set, without files.
    pub(super) fn describe(data: &Dataset) -> Self {
        let types = data.graph.types();
        let of_type = |(position, name): (usize, &String)| TypeEntry {
            name: name.clone(),
            n_nodes: types.range(position).len(),
            dim: data.features[position].as_ref().map(|features| features.dim()),
            feature_columns: data.feature_columns[position].clone(),
        };
        let of_relation = |relation: &Relation| RelationEntry {
            name: relation.name.clone(),
            src_type: types.names()[relation.src_type].clone(),
            dst_type: types.names()[relation.dst_type].clone(),
            n_edges: relation.graph.n_edges() as usize,
        };
        let targets = data.targets.as_ref();
        let n_classes = targets.map(|targets| targets.values.n_outputs());
        Self {
            format: VERSION,
            name: data.name.clone(),
            node_types: types.names().iter().enumerate().map(of_type).collect(),
            relations: data.graph.iter().map(of_relation).collect(),
            target_type: targets.map(|targets| types.names()[targets.node_type].clone()),
            n_classes,
            class_names: targets.map_or_else(Vec::new, |targets| {
                class_names_to_write(&targets.class_names, targets.values.n_outputs())
            }),
            links: data.links.as_ref().map(|links| {
                let name = |relation: usize| data.graph.relation(relation).name.clone();
                LinksEntry { relation: name(links.relation), reverse: links.reverse.map(name) }
            }),
            link_targets: data.links.as_ref().and_then(|links| LinkTargetsEntry::describe(&links.targets)),
            tasks: data.tasks.iter().map(|table| TaskEntry::describe(table, types)).collect(),
            first_new: data.first_new.clone(),
            times: TimesEntry::of(&data.times),
            orders: OrderEntries::new(),
            attachments: BTreeMap::new(),
            files: Entries::new(),
        }
    }

    /// Returns the manifest of a set with nodes of these types and nothing else.
    pub(super) fn of_types(name: &str, types: &NodeTypes) -> Self {
        let of_type = |(position, name): (usize, &String)| TypeEntry {
            name: name.clone(),
            n_nodes: types.range(position).len(),
            dim: None,
            feature_columns: Vec::new(),
        };
        Self {
            format: VERSION,
            name: name.to_owned(),
            node_types: types.names().iter().enumerate().map(of_type).collect(),
            relations: Vec::new(),
            target_type: None,
            n_classes: None,
            class_names: Vec::new(),
            links: None,
            link_targets: None,
            tasks: Vec::new(),
            first_new: None,
            times: TimesEntry::default(),
            orders: OrderEntries::new(),
            attachments: BTreeMap::new(),
            files: Entries::new(),
        }
    }

    /// Reads the manifest of a folder and checks that it is consistent and conforms to the format.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = path_in(folder);
        let what = "the manifest of a heterogeneous set in the kiln format";
        let manifest: Self = read_manifest(&path, VERSION..=VERSION, what)?;
        manifest.check(&path)?;
        let relations = manifest.relation_files(&path)?;
        let types = manifest.type_files();
        let columns = column_files(folder)?;
        let tasks = task_entries(&manifest.files, &manifest.tasks);
        let names = relations.iter().chain(&types).chain(&tasks).map(|known| &*known.name);
        let names = names.chain(columns.iter().map(String::as_str));
        let of_links = LINK_FILES.iter().chain(NEGATIVES.as_flattened()).chain(&LINK_VALUES).copied();
        check_unlisted(&path, &manifest.files, names.chain(TARGET_FILES).chain(of_links))?;
        Ok(manifest)
    }

    /// Orders the edges of relations with times, writes the manifest with the entries of the written files, and renames the folder
    /// to its final name.
    pub(super) fn commit(self, mut folder: FolderWriter) -> Result<()> {
        let path = path_in(folder.folder());
        let mut manifest = Self { files: folder.entries().clone(), orders: OrderEntries::new(), ..self };
        manifest.check(&path)?;
        let mut relations = Vec::with_capacity(manifest.relations.len());
        for (position, relation) in manifest.relations.iter().enumerate() {
            relations.push((relation.name.clone(), manifest.types_of(&path, position)?));
        }
        let ends = RelationEnds { types: Arc::new(manifest.types(&path)?), relations };
        manifest.orders = edges_by_time::write(&mut folder, Layout::Numbered, &ends)?;
        manifest.files = folder.entries().clone();
        manifest.check(&path)?;
        Ok(folder.commit_with(FILE_NAME, &manifest)?)
    }

    /// Returns the hash that [`format::hash`](super::super::hash) documents.
    pub(super) fn hash(&self) -> String {
        let mut hasher = Hasher::default();
        let quoted = |name: &String| serde_json::Value::from(name.as_str());
        let position = |name: &String| self.node_types.iter().position(|node_type| node_type.name == *name);
        let number = |name: &String| position(name).map_or(-1, |position| position as i64);
        hasher.update("kiln typed format 1\n");
        for TypeEntry { name, n_nodes, dim, .. } in &self.node_types {
            let dim = dim.map_or_else(|| "null".into(), |dim| dim.to_string());
            hasher.update(format!("node_type {n_nodes} {dim} {}\n", quoted(name)));
        }
        for RelationEntry { name, src_type, dst_type, .. } in &self.relations {
            let (src_type, dst_type) = (number(src_type), number(dst_type));
            hasher.update(format!("relation {src_type} {dst_type} {}\n", quoted(name)));
        }
        if let (Some(name), Some(n_classes)) = (&self.target_type, self.n_classes) {
            hasher.update(format!("target_type {} {n_classes}\n", number(name)));
        }
        if let Some(LinksEntry { relation, reverse }) = &self.links {
            let reverse =
                reverse.as_ref().map_or_else(|| "null".into(), |reverse| quoted(reverse).to_string());
            hasher.update(format!("links {} {reverse}\n", quoted(relation)));
        }
        if let Some(LinkTargetsEntry { n_classes, .. }) = &self.link_targets {
            hasher.update(format!("link_targets {n_classes}\n"));
        }
        for task in &self.tasks {
            task.hash(number(&task.node_type), &mut hasher);
        }
        self.times.hash(&mut hasher);
        for (name, Entry { dtype, shape, sha256 }) in &self.files {
            if !name.starts_with("names_") && !is_order(name) {
                let lengths = shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
                hasher.update(format!("{name} {dtype} {lengths} {sha256}\n"));
            }
        }
        hasher.finish()
    }

    /// Returns what the manifest states about a set with this graph.
    pub(super) fn contents(&self, graph: &Relations) -> Result<Contents> {
        let target_type = self.target_type.as_ref().and_then(|name| graph.types().position(name));
        let targets = match (target_type, self.n_classes) {
            (Some(node_type), Some(n_outputs)) => {
                Some(TargetContents { node_type, n_outputs, class_names: self.class_names.clone() })
            }
            _ => None,
        };
        let links = match &self.links {
            Some(LinksEntry { relation, reverse }) => {
                let reverse = reverse.as_ref().map(|name| graph.require(name)).transpose()?;
                Some((graph.require(relation)?, reverse))
            }
            None => None,
        };
        Ok(Contents {
            name: self.name.clone(),
            dims: self.node_types.iter().map(|node_type| node_type.dim).collect(),
            feature_columns: self.node_types.iter().map(|of_type| of_type.feature_columns.clone()).collect(),
            targets,
            links,
            tasks: self.task_contents(graph)?,
            link_outputs: self.link_targets.as_ref().map(LinkTargetsEntry::outputs),
            edge_type_names: Vec::new(),
            first_new: self.first_new.clone(),
            times: self.times,
            preparation: Preparation::default(),
        })
    }

    /// Returns what the manifest states about the task tables.
    fn task_contents(&self, graph: &Relations) -> Result<Vec<(String, TargetContents)>> {
        let tasks = self.tasks.iter().map(|task: &TaskEntry| {
            let node_type = graph.types().require(&task.node_type)?;
            let class_names = class_names_of(task.class_names.clone(), task.n_classes);
            Ok((task.name.clone(), TargetContents { node_type, n_outputs: task.n_classes, class_names }))
        });
        tasks.collect()
    }

    /// Returns the node types.
    pub(super) fn types(&self, path: &Path) -> Result<NodeTypes> {
        let types = self.node_types.iter().map(|node_type| (node_type.name.as_str(), node_type.n_nodes));
        let expected = "types with different names and fewer than 2^32 nodes in all";
        Ok(NodeTypes::new(types).map_err(|error| bad_key(path, "node_types", expected, error))?)
    }

    /// Returns the positions of the types of a relation's sources and destinations.
    pub(super) fn types_of(&self, path: &Path, relation: usize) -> Result<[usize; 2]> {
        let RelationEntry { src_type, dst_type, .. } = &self.relations[relation];
        let position = |key: &str, name: &str| {
            let position = self.node_types.iter().position(|node_type| node_type.name == name);
            position.ok_or_else(|| no_such_type(path, &format!("relations[{relation}].{key}"), name))
        };
        Ok([position("src_type", src_type)?, position("dst_type", dst_type)?])
    }

    /// Checks that the counts are consistent, that the format defines every entry, that every entry has an allowed
    /// element type and the shape that the counts require, and that no required entry is missing.
    fn check(&self, path: &Path) -> Result<()> {
        self.check_counts(path)?;
        check_names(path, &self.attachments)?;
        let absent: &[&str] = if self.target_type.is_none() { &TARGET_FILES } else { &[] };
        if let Some(name) = absent.iter().find(|name| self.files.contains_key(**name)) {
            return Err(bad_entry(path, name, "", "no entry, because target_type is null", "an entry").into());
        }
        check_target_files(path, &self.files, self.n_classes.unwrap_or(0))?;
        for (position, node_type) in self.node_types.iter().enumerate() {
            let files = FEATURES.of_type(position);
            let mut names = [&files.dense].into_iter().chain(&files.sparse);
            if let Some(name) =
                names.find(|name| node_type.dim.is_none() && self.files.contains_key(&***name))
            {
                return Err(bad_entry(path, name, "", "no entry, because dim is null", "an entry").into());
            }
        }
        let relations = self.relations.iter();
        let relations: Vec<_> =
            relations.map(|relation| (&*relation.name, [&*relation.src_type, &*relation.dst_type])).collect();
        check_links(path, self.links.as_ref(), &relations, &self.files)?;
        check_link_targets(path, self.link_targets.as_ref(), &self.files)?;
        check_task_files(path, &self.files, &self.tasks)?;
        let of_links = link_entries(&self.files, self.links.is_some());
        let n_outputs = self.link_targets.as_ref().map(|entry| entry.n_classes);
        let of_values = link_value_entries(&self.files, n_links(&self.files), n_outputs).to_vec();
        check_entries(
            path,
            &self.files,
            &[
                self.relation_files(path)?,
                self.type_files(),
                self.target_files(),
                of_links,
                of_values,
                task_entries(&self.files, &self.tasks),
            ]
            .concat(),
        )?;
        for (position, node_type) in self.node_types.iter().enumerate() {
            FEATURES.of_type(position).check(path, &self.files, node_type.dim.is_some())?;
            let names = ["names_text.npy", "names_ends.npy"].map(|name| numbered(name, position));
            check_together(path, &self.files, &names.each_ref().map(String::as_str))?;
        }
        self.check_unconfirmed(path)
    }

    /// Checks the number of nodes of types whose number no file confirms, for which samplers allocate memory.
    fn check_unconfirmed(&self, path: &Path) -> Result<()> {
        const BYTES: u64 = 8;
        let is_confirmed = |position: usize, TypeEntry { name, dim, .. }: &TypeEntry| {
            dim.is_some()
                || self.target_type.as_ref() == Some(name)
                || self.files.contains_key(&numbered("names_ends.npy", position))
                || self.files.contains_key(&numbered(NODE_TIMES, position))
                || self.relations.iter().any(|relation| relation.dst_type == *name)
        };
        let most = MEMORY_BYTES / BYTES;
        let mut n_nodes = 0_u64;
        for (position, node_type) in self.node_types.iter().enumerate() {
            if !is_confirmed(position, node_type) {
                n_nodes = n_nodes.saturating_add(node_type.n_nodes as u64);
            }
            if most < n_nodes {
                let expected =
                    format!("at most {most} nodes without features, names, targets and edges to them");
                return Err(
                    bad_key(path, &format!("node_types[{position}].n_nodes"), expected, n_nodes).into()
                );
            }
        }
        Ok(())
    }

    /// Checks that the counts and names are consistent.
    pub(super) fn check_counts(&self, path: &Path) -> Result<()> {
        let n_types = self.node_types.len();
        if MAX_TYPES < n_types {
            let expected = format!("at most {MAX_TYPES} types");
            return Err(bad_key(path, "node_types", expected, format!("{n_types} types")).into());
        }
        self.types(path)?;
        for (position, node_type) in self.node_types.iter().enumerate() {
            if let Some(dim) = node_type.dim.filter(|dim| !(1..=MAX_DIM).contains(dim)) {
                let key = format!("node_types[{position}].dim");
                return Err(bad_key(path, &key, format!("1 to {MAX_DIM}, or null"), dim).into());
            }
            let key = format!("node_types[{position}].feature_columns");
            check_feature_columns(path, &key, &node_type.feature_columns, node_type.dim)?;
        }
        let counts: Vec<usize> = self.node_types.iter().map(|node_type| node_type.n_nodes).collect();
        check_first_new(path, self.first_new.as_deref(), &counts)?;
        self.times.check(path)?;
        let types: Vec<&str> = self.node_types.iter().map(|node_type| node_type.name.as_str()).collect();
        check_tasks(path, &self.tasks, &types)?;
        let n_relations = self.relations.len();
        if Relations::MOST < n_relations {
            let expected = format!("at most {} relations", Relations::MOST);
            return Err(bad_key(path, "relations", expected, format!("{n_relations} relations")).into());
        }
        for relation in 0..n_relations {
            self.types_of(path, relation)?;
        }
        match (&self.target_type, self.n_classes) {
            (Some(name), Some(_)) if self.node_types.iter().all(|node_type| node_type.name != *name) => {
                Err(no_such_type(path, "target_type", name).into())
            }
            (Some(_), None) => {
                Err(bad_key(path, "n_classes", "a number, because target_type is a name", "null").into())
            }
            (None, Some(n)) => Err(bad_key(path, "n_classes", "null, because target_type is null", n).into()),
            (_, n_classes) => check_class_names(path, None, n_classes.unwrap_or(0), &self.class_names),
        }
    }

    /// Returns the files of the relations.
    fn relation_files(&self, path: &Path) -> Result<Vec<Known>> {
        use ElementType::{U32, U64};
        let mut files = Vec::new();
        for (position, relation) in self.relations.iter().enumerate() {
            let rows_and_one = self.n_of(&relation.dst_type).saturating_add(1);
            files.extend([
                known(numbered("indptr.npy", position), &[U64], Some(vec![rows_and_one]), true),
                known(numbered("indices.npy", position), &[U32], Some(vec![relation.n_edges]), true),
            ]);
            let n_edges = relation.n_edges;
            files.extend(column_entries(path, &self.files, Layout::Numbered, position, n_edges)?);
        }
        let n_edges: Vec<usize> = self.relations.iter().map(|relation| relation.n_edges).collect();
        files.extend(edges_by_time::known_files(
            path,
            &self.files,
            &self.orders,
            Layout::Numbered,
            &n_edges,
        )?);
        Ok(files)
    }

    /// Returns the files of features and names of the node types.
    fn type_files(&self) -> Vec<Known> {
        use ElementType::{I64, U8, U32};
        let mut files = Vec::new();
        for (position, &TypeEntry { n_nodes, dim, .. }) in self.node_types.iter().enumerate() {
            files.extend(FEATURES.of_type(position).known(n_nodes, dim.unwrap_or(0)));
            files.push(known(numbered("names_text.npy", position), &[U8], None, false));
            files.push(known(numbered("names_ends.npy", position), &[U32], Some(vec![n_nodes]), false));
            files.push(known(numbered(NODE_TIMES, position), &[I64], Some(vec![n_nodes]), false));
        }
        files
    }

    /// Returns the files of targets and split.
    fn target_files(&self) -> Vec<Known> {
        let Some(name) = &self.target_type else { return Vec::new() };
        let n_outputs = self.n_classes.unwrap_or(0);
        let [_, _, split @ ..] = TARGET_FILES;
        let mut files = target_files(&self.files, self.n_of(name), n_outputs).to_vec();
        files.extend(split.map(|part| known(part, &[ElementType::U32], None, true)));
        files
    }

    /// Returns the number of nodes of a type; 0 if there is no such type.
    fn n_of(&self, name: &str) -> usize {
        self.node_types.iter().find(|node_type| node_type.name == name).map_or(0, |found| found.n_nodes)
    }
}

/// The files of targets and split.
const TARGET_FILES: [&str; 5] = [LABELS, TARGETS, "train.npy", "val.npy", "test.npy"];

fn known(
    name: impl Into<Cow<'static, str>>,
    types: &'static [ElementType],
    shape: Option<Vec<usize>>,
    is_needed: bool,
) -> Known {
    Known { name: name.into(), types, shape, is_needed }
}

fn no_such_type(path: &Path, key: &str, name: &str) -> kiln_store::Error {
    const LONGEST: usize = 60;
    let found = name.chars().take(LONGEST).collect::<String>();
    bad_key(path, key, "the name of a node type", format!("{found:?}"))
}

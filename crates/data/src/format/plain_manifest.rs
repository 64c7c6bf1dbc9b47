//! The manifest `kiln.json` of a homogeneous set: its counts and names, and the type, shape and hash of each file.

use std::collections::BTreeMap;
use std::path::Path;

use kiln_feature::{FeatureColumn, Preparation};
use kiln_store::Hasher;
use kiln_store::array_folder::{
    ElementType, Entries, Entry, FolderWriter, Known, bad_entry, bad_key, check_entries, check_together,
    check_unlisted, read_manifest,
};
use serde::{Deserialize, Serialize};

use super::contents::{Contents, TargetContents, TimesEntry, check_first_new};
use super::edges_by_time::{self, OrderEntries, RelationEnds, is_order};
use super::links_entry::{LinkTargetsEntry, check_link_targets, n_links};
use super::location::{FILE_NAME, path_in};
use crate::graph_folder::{
    FEATURE_FILES, FEATURES, LABELS, LINK_FILES, LINK_VALUES, NEGATIVES, NODE_TIMES, TARGETS,
    check_class_names, check_feature_columns, check_negative_entries, check_target_files,
    class_names_to_write, column_entries, column_files, link_value_entries, shape_of_negatives,
};
use crate::layout::Layout;
use crate::{Dataset, Result, TaskTableError};

/// The version of the format that is written, and the only one that can be read.
pub(crate) const VERSION: u32 = 1;

/// The content of `kiln.json`: everything about a homogeneous set except its arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlainManifest {
    /// The version of the format, always [`VERSION`].
    pub(crate) format: u32,
    pub(crate) name: String,
    pub(crate) n_nodes: usize,
    pub(crate) n_edges: usize,
    /// The number of feature columns; `None` for a graph without node data (no features, labels and split).
    pub(crate) dim: Option<usize>,
    /// What the feature columns mean; absent if they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) feature_columns: Vec<FeatureColumn>,
    /// The number of classes, or of columns of target values; `None` for a graph without node data.
    pub(crate) n_classes: Option<usize>,
    /// The names of the classes or columns, by number; empty if they have no names.
    pub(crate) class_names: Vec<String>,
    /// The names of the edge types, by type; empty if the edge types have no names.
    pub(crate) edge_type_names: Vec<String>,
    /// The first new node, as a list of one number; absent for a set without appended rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_new: Option<Vec<u32>>,
    /// The meaning of the times and the split by time; absent for a set of integers without such a split.
    #[serde(default, skip_serializing_if = "TimesEntry::is_default")]
    pub(crate) times: TimesEntry,
    /// The steps that prepared the set before it was written; empty if it is as it was loaded.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub(crate) preparation: Preparation,
    /// The target values of the links; absent if they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link_targets: Option<LinkTargetsEntry>,
    /// The orders of the edges by time, by file name; absent if neither edges nor nodes have times.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) orders: OrderEntries,
    /// The entries of the files, by file name.
    pub(crate) files: Entries,
}

fn is_empty(preparation: &Preparation) -> bool {
    preparation.steps.is_empty()
}

/// The kinds of sets in which a file is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The file is required in every set.
    Always,
    /// The file is required in every set except a graph without node data, which must not have it.
    ForNodes,
    /// The file of classes or the file of target values: a set with node data has one of them.
    ForTargets,
    /// The file is optional.
    Optional,
}

/// The length of an array: a count of the manifest, or any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    NodesAndOne,
    Nodes,
    Edges,
    /// A row per node, with a column for each output.
    NodesAndOutputs,
    /// A row per link of a part of the split, with a column for each negative.
    LinksAndNegatives,
    Any,
}

use ElementType::{F32, I32, I64, U8, U32, U64};

/// The files of the format except those of features, which [`FEATURES`] lists, and of the columns of edges
/// ([`column_entries`]).
const KNOWN: [(&str, &[ElementType], Length, Need); 19] = [
    ("indptr.npy", &[U64], Length::NodesAndOne, Need::Always),
    ("indices.npy", &[U32], Length::Edges, Need::Always),
    (LABELS, &[I32], Length::Nodes, Need::ForTargets),
    (TARGETS, &[U8, F32], Length::NodesAndOutputs, Need::ForTargets),
    ("train.npy", &[U32], Length::Any, Need::ForNodes),
    ("val.npy", &[U32], Length::Any, Need::ForNodes),
    ("test.npy", &[U32], Length::Any, Need::ForNodes),
    ("names_text.npy", &[U8], Length::Any, Need::Optional),
    ("names_ends.npy", &[U32], Length::Nodes, Need::Optional),
    (NODE_TIMES, &[I64], Length::Nodes, Need::Optional),
    (LINK_FILES[0], &[U32], Length::Any, Need::Optional),
    (LINK_FILES[1], &[U32], Length::Any, Need::Optional),
    (LINK_FILES[2], &[U32], Length::Any, Need::Optional),
    (LINK_FILES[3], &[U32], Length::Any, Need::Optional),
    (LINK_FILES[4], &[U32], Length::Any, Need::Optional),
    (NEGATIVES[0][0], &[U32], Length::LinksAndNegatives, Need::Optional),
    (NEGATIVES[0][1], &[U32], Length::LinksAndNegatives, Need::Optional),
    (NEGATIVES[1][0], &[U32], Length::LinksAndNegatives, Need::Optional),
    (NEGATIVES[1][1], &[U32], Length::LinksAndNegatives, Need::Optional),
];

/// The files of the node names: a set has both or neither.
const NAMES: [&str; 2] = ["names_text.npy", "names_ends.npy"];

impl PlainManifest {
    /// Returns the manifest of a homogeneous set, without files. The parts of the set are consistent.
    pub(super) fn describe(data: &Dataset) -> Result<Self> {
        if !data.tasks.is_empty() {
            return Err(TaskTableError::NotStored { data: data.name.clone() }.into());
        }
        let n_outputs = data.targets.as_ref().map_or(0, |targets| targets.values.n_outputs());
        Ok(Self {
            format: VERSION,
            name: data.name.clone(),
            n_nodes: data.graph.n_nodes(),
            n_edges: data.graph.n_edges() as usize,
            dim: Some(data.node_features()?.dim()),
            feature_columns: data.feature_columns.concat(),
            n_classes: Some(n_outputs),
            class_names: class_names_to_write(data.class_names(), n_outputs),
            edge_type_names: data.edge_type_names.clone(),
            first_new: data.first_new.clone(),
            times: TimesEntry::of(&data.times),
            preparation: data.preparation.clone(),
            link_targets: data.links.as_ref().and_then(|links| LinkTargetsEntry::describe(&links.targets)),
            orders: OrderEntries::new(),
            files: Entries::new(),
        })
    }

    /// Reads the manifest of a folder and checks that it is consistent and conforms to the format.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = path_in(folder);
        let what = "the manifest of a set in the kiln format";
        let manifest: Self = read_manifest(&path, VERSION..=VERSION, what)?;
        manifest.check(&path)?;
        let columns = column_files(folder)?;
        let names = file_names().chain(columns.iter().map(String::as_str));
        check_unlisted(&path, &manifest.files, names)?;
        Ok(manifest)
    }

    /// Returns what the manifest states about the set; `None` for a graph without node data.
    pub(super) fn contents(&self) -> Option<Contents> {
        let (Some(dim), Some(n_outputs)) = (self.dim, self.n_classes) else { return None };
        let class_names = self.class_names.clone();
        Some(Contents {
            name: self.name.clone(),
            dims: vec![Some(dim)],
            feature_columns: vec![self.feature_columns.clone()],
            targets: Some(TargetContents { node_type: 0, n_outputs, class_names }),
            links: Some((0, None)),
            tasks: Vec::new(),
            link_outputs: self.link_targets.as_ref().map(LinkTargetsEntry::outputs),
            edge_type_names: self.edge_type_names.clone(),
            first_new: self.first_new.clone(),
            times: self.times,
            preparation: self.preparation.clone(),
        })
    }

    /// Orders the edges of a set with times, writes the manifest with the entries of the written files, and renames the folder to
    /// its final name.
    pub(crate) fn commit(self, mut folder: FolderWriter) -> Result<()> {
        let path = path_in(folder.folder());
        let mut manifest = Self { files: folder.entries().clone(), orders: OrderEntries::new(), ..self };
        manifest.check(&path)?;
        if !manifest.is_graph_alone() {
            let ends = RelationEnds::homogeneous(manifest.n_nodes)?;
            manifest.orders = edges_by_time::write(&mut folder, Layout::Plain, &ends)?;
            manifest.files = folder.entries().clone();
        }
        manifest.check(&path)?;
        Ok(folder.commit_with(FILE_NAME, &manifest)?)
    }

    /// Returns the hash that [`format::hash`](super::super::hash) documents.
    pub(crate) fn hash(&self) -> String {
        let mut hasher = Hasher::default();
        hasher.update("kiln format 1\n");
        for (what, n) in [("dim", self.dim), ("n_classes", self.n_classes)] {
            if let Some(n) = n {
                hasher.update(format!("{what} {n}\n"));
            }
        }
        if let Some(LinkTargetsEntry { n_classes, .. }) = &self.link_targets {
            hasher.update(format!("link_targets {n_classes}\n"));
        }
        self.times.hash(&mut hasher);
        for (name, Entry { dtype, shape, sha256 }) in &self.files {
            if !NAMES.contains(&name.as_str()) && !is_order(name) {
                let lengths = shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
                hasher.update(format!("{name} {dtype} {lengths} {sha256}\n"));
            }
        }
        hasher.finish()
    }

    /// Returns true if the set has only a topology, without features, labels and split.
    pub(crate) fn is_graph_alone(&self) -> bool {
        self.dim.is_none()
    }

    /// Checks that the counts are consistent, that the format defines every entry, that every entry has an allowed
    /// element type and the shape that the counts require, and that no required entry is missing.
    fn check(&self, path: &Path) -> Result<()> {
        self.check_counts(path)?;
        check_first_new(path, self.first_new.as_deref(), &[self.n_nodes])?;
        self.times.check(path)?;
        let (known, features) = (self.known(), FEATURES.known(self.n_nodes, self.dim.unwrap_or(0)));
        if self.is_graph_alone() {
            let is_for_nodes = |need| matches!(need, Need::ForNodes | Need::ForTargets);
            let for_nodes = KNOWN.iter().filter(|(.., need)| is_for_nodes(*need)).map(|known| known.0);
            let mut alone = for_nodes.chain(features.iter().map(|known| &*known.name));
            if let Some(name) = alone.find(|name| self.files.contains_key(*name)) {
                return Err(bad_entry(path, name, "", "no entry, because dim is null", "an entry").into());
            }
        }
        check_target_files(path, &self.files, self.n_classes.unwrap_or(0))?;
        check_negative_entries(path, &self.files)?;
        check_link_targets(path, self.link_targets.as_ref(), &self.files)?;
        let columns = column_entries(path, &self.files, Layout::Plain, 0, self.n_edges)?;
        let n_outputs = self.link_targets.as_ref().map(|entry| entry.n_classes);
        let of_links = link_value_entries(&self.files, n_links(&self.files), n_outputs);
        let orders =
            edges_by_time::known_files(path, &self.files, &self.orders, Layout::Plain, &[self.n_edges])?;
        let all = [&known[..], &columns[..], &features[..], &of_links[..], &orders[..]].concat();
        check_entries(path, &self.files, &all)?;
        FEATURES.check(path, &self.files, !self.is_graph_alone())?;
        check_together(path, &self.files, &LINK_FILES)?;
        Ok(check_together(path, &self.files, &NAMES)?)
    }

    /// Checks that the counts and names are consistent.
    pub(crate) fn check_counts(&self, path: &Path) -> Result<()> {
        let n_classes = self.n_classes.unwrap_or(0);
        match (self.dim, self.n_classes) {
            (Some(_), None) => {
                return Err(bad_key(path, "n_classes", "a number, because dim is a number", "null").into());
            }
            (None, Some(n)) => return Err(bad_key(path, "n_classes", "null, because dim is null", n).into()),
            _ => check_class_names(path, self.dim, n_classes, &self.class_names)?,
        }
        check_feature_columns(path, "feature_columns", &self.feature_columns, self.dim)?;
        if self.edge_type_names.len() > 256 {
            let found = format!("{} names", self.edge_type_names.len());
            return Err(bad_key(path, "edge_type_names", "at most 256 names", found).into());
        }
        Ok(())
    }

    /// Returns the files of [`KNOWN`], with the lengths that the manifest's counts require.
    fn known(&self) -> [Known; 19] {
        let has_values = self.files.contains_key(TARGETS);
        KNOWN.map(|(name, types, length, need)| Known {
            name: name.into(),
            types,
            shape: match length {
                Length::NodesAndOne => Some(vec![self.n_nodes.saturating_add(1)]),
                Length::Nodes => Some(vec![self.n_nodes]),
                Length::Edges => Some(vec![self.n_edges]),
                Length::NodesAndOutputs => Some(vec![self.n_nodes, self.n_classes.unwrap_or(0)]),
                Length::LinksAndNegatives => Some(shape_of_negatives(&self.files, name)),
                Length::Any => None,
            },
            is_needed: match need {
                Need::Always => true,
                Need::ForNodes => !self.is_graph_alone(),
                Need::ForTargets => !self.is_graph_alone() && (name == TARGETS) == has_values,
                Need::Optional => false,
            },
        })
    }
}

/// Returns the names of all arrays that a set may have.
fn file_names<'a>() -> impl Iterator<Item = &'a str> {
    KNOWN.iter().map(|known| known.0).chain(["weights.npy"]).chain(FEATURE_FILES).chain(LINK_VALUES)
}

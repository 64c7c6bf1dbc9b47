//! The manifest `part.json`: metadata of a partition and the list of its files (`docs/formats.md`).

mod numbered;
mod plain;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use kiln_data::format::TimesEntry;
use kiln_data::graph_folder::{
    FEATURES, NODE_TIMES, RowFiles, TARGETS, check_class_names, check_feature_columns, check_target_files,
    column_entries, column_file, column_files, target_files,
};
use kiln_feature::{FeatureColumn, MAX_DIM, Preparation};
use kiln_graph::{EdgeColumns, GraphSchema, NodeTypes, RelationSchema, Relations};
use kiln_store::array_folder::{
    ElementType, Entries, FolderWriter, Known, bad_entry, bad_key, check_entries, check_unlisted,
    read_manifest,
};
use kiln_store::sha256;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use self::numbered::NumberedManifest;
use self::plain::PlainManifest;
use crate::layout::PartLayout;
use crate::{Error, Method, Result};
use kiln_data::Layout;

/// The manifest's file name.
const FILE_NAME: &str = "part.json";

/// The largest number of edge types, which are stored as `u8`.
const MAX_EDGE_TYPES: usize = 256;

/// The maximum number of node types: two for each relation, as in the kiln format.
const MAX_TYPES: usize = 2 * Relations::MOST;

/// The files of the cached feature rows of remote nodes.
pub(crate) const CACHE: RowFiles = RowFiles::new([
    "cache_features.npy",
    "cache_features_indptr.npy",
    "cache_features_indices.npy",
    "cache_features_data.npy",
]);

/// The file of the keys of the nodes of a type without features.
pub(crate) const KEYS: &str = "keys.npy";

/// The number of bytes of a key.
pub(crate) const KEY_BYTES: usize = 16;

/// The metadata of a partition. All fields except `layout`, `part` and `files` describe the whole data set.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    pub(crate) layout: Layout,
    pub(crate) name: String,
    /// The hash of the whole data set, which covers all data that training reads.
    pub(crate) hash: String,
    /// The node types, in the order of their ids.
    pub(crate) node_types: Vec<TypeEntry>,
    /// The relations, in the order of their edge ids.
    pub(crate) relations: Vec<RelationEntry>,
    /// The position of the node type that has targets.
    pub(crate) target_type: usize,
    /// The number of classes, or of columns of target values.
    pub(crate) n_classes: usize,
    /// The name of each class or column; empty if they have no names.
    pub(crate) class_names: Vec<String>,
    /// The meaning of the times of nodes and edges, and the split by time.
    pub(crate) times: TimesEntry,
    /// The steps that prepared the data set before it was partitioned; `None` if they are unknown.
    pub(crate) preparation: Option<Preparation>,
    pub(crate) method: Method,
    pub(crate) n_cut_edges: u64,
    /// The index of this partition, from 0.
    pub(crate) part: usize,
    /// The element type, shape and hash of each file, by file name.
    pub(crate) files: Entries,
}

/// A node type.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TypeEntry {
    pub(crate) name: String,
    pub(crate) n_nodes: usize,
    /// The number of feature columns; `None` for a type without features.
    pub(crate) dim: Option<usize>,
    /// What the feature columns mean; absent if they have no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) feature_columns: Vec<FeatureColumn>,
    /// The offsets of the type's [`PartitionBook`](crate::PartitionBook).
    pub(crate) offsets: Vec<u32>,
}

/// A relation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RelationEntry {
    pub(crate) name: String,
    /// The position of the sources' type.
    pub(crate) src_type: usize,
    /// The position of the destinations' type.
    pub(crate) dst_type: usize,
    /// The number of edges of the whole graph.
    pub(crate) n_edges: u64,
    /// Only in [`Layout::Plain`], with keys of its own.
    #[serde(skip)]
    pub(crate) edges: EdgeEntry,
}

/// The types and features of the edges of a relation.
#[derive(Debug, Clone, Default)]
pub(crate) struct EdgeEntry {
    /// The name of each edge type; empty if edge types have no names.
    pub(crate) type_names: Vec<String>,
    /// The number of edge types: one more than the largest, or the number of names if it is larger. `None` without edge
    /// types, and in partitions of older versions of kiln.
    pub(crate) n_types: Option<usize>,
    /// The number of columns of the edge features; `None` if edges have no features.
    pub(crate) dim: Option<usize>,
}

/// Returns true if the manifest at `path` has lists of node types and relations. A manifest that cannot be read counts as
/// one without, whose reader returns the error.
fn has_node_types(path: &Path) -> bool {
    #[derive(Deserialize)]
    struct Keys {
        node_types: Option<IgnoredAny>,
    }
    read_manifest(path, 0..=u32::MAX, "").is_ok_and(|keys: Keys| keys.node_types.is_some())
}

impl Manifest {
    /// Reads the manifest of a folder and checks that it is consistent and lists exactly the files of the format.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = path_in(folder);
        check_is_partition(folder, &path)?;
        let manifest: Self = if has_node_types(&path) {
            let what = "the manifest of a partition of a heterogeneous set";
            read_manifest::<NumberedManifest>(&path, 1..=numbered::VERSION, what)?.into()
        } else {
            let what = "the manifest of a partition";
            read_manifest::<PlainManifest>(&path, 1..=plain::VERSION, what)?.into()
        };
        manifest.check_preparation(&path)?;
        manifest.times.check(&path)?;
        manifest.check_edge_data(&path)?;
        manifest.check_types(&path)?;
        check_class_names(&path, None, manifest.n_classes, &manifest.class_names)?;
        manifest.schema(&path)?;
        manifest.check_files(&path)?;
        Ok(manifest)
    }

    /// Writes the manifest to a folder, and completes the folder.
    pub(crate) fn commit(&self, folder: FolderWriter) -> Result<()> {
        let committed = match (self.layout, &self.node_types[..], &self.relations[..]) {
            (Layout::Plain, [node], [edge]) => {
                folder.commit_with(FILE_NAME, &PlainManifest::new(self, node, edge))
            }
            _ => folder.commit_with(FILE_NAME, &NumberedManifest::from(self)),
        };
        Ok(committed?)
    }

    /// Returns the node types and relations of the whole graph.
    pub(crate) fn schema(&self, path: &Path) -> Result<GraphSchema> {
        let types = self.node_types.iter().map(|node_type| (node_type.name.as_str(), node_type.n_nodes));
        let expected = "types with different names and fewer than 2^32 nodes in all";
        let types = NodeTypes::new(types).map_err(|error| bad_key(path, "node_types", expected, error))?;
        let relations = self.relations.iter().map(|relation| RelationSchema {
            name: relation.name.clone(),
            src_type: relation.src_type,
            dst_type: relation.dst_type,
            n_edges: relation.n_edges,
        });
        let schema = GraphSchema::new(types, relations.collect());
        let expected = "at most 256 with different names, between node types";
        Ok(schema.map_err(|error| bad_key(path, "relations", expected, error))?)
    }

    /// Returns the hash of the partitioning; see [`Part::partition_hash`](crate::Part::partition_hash).
    pub(crate) fn partition_hash(&self) -> String {
        let book_hash = |node_type| {
            let book = self.files.get(&*self.layout.file("new_ids.npy", node_type));
            book.map_or("", |entry| &*entry.sha256)
        };
        let books: String = (0..self.node_types.len()).map(book_hash).collect();
        let books = match self.layout {
            Layout::Plain => books,
            Layout::Numbered => sha256(books.as_bytes()),
        };
        format!("{}-{}-{}", short(&self.hash), self.n_parts(), short(&books))
    }

    /// Returns true if the partition has cached rows of a node type.
    pub(crate) fn has_cache(&self, node_type: usize) -> bool {
        self.files.contains_key(&*self.layout.file("cache_ids.npy", node_type))
    }

    /// Returns true if the targets are several labels or numbers, not classes.
    fn has_target_values(&self) -> bool {
        self.files.contains_key(TARGETS)
    }

    fn n_parts(&self) -> usize {
        self.node_types.first().map_or(0, |node_type| node_type.offsets.len().saturating_sub(1))
    }

    /// Returns the number of nodes of a type that this partition owns. The types must be valid.
    fn n_owned(&self, node_type: usize) -> usize {
        let offsets = &self.node_types[node_type].offsets;
        offsets[self.part + 1].saturating_sub(offsets[self.part]) as usize
    }

    /// Returns the length of an array by its entry; 0 if there is none.
    fn length(&self, name: &str) -> usize {
        self.files.get(name).and_then(|entry| entry.shape.first().copied()).unwrap_or(0)
    }

    fn check_preparation(&self, path: &Path) -> Result<()> {
        let dim = self.node_types.first().and_then(|node_type| node_type.dim).unwrap_or(0);
        if let Some(Err(error)) = self.preparation.as_ref().map(|steps| steps.check(dim)) {
            let expected = format!("steps for {dim} feature columns");
            return Err(bad_key(path, "preparation", expected, error).into());
        }
        Ok(())
    }

    fn check_edge_data(&self, path: &Path) -> Result<()> {
        for (position, RelationEntry { edges, .. }) in self.relations.iter().enumerate() {
            let key = |name| self.layout.key("relations", position, name);
            if let Some(n_types) = edges.n_types.filter(|n_types| MAX_EDGE_TYPES < *n_types) {
                let expected = format!("at most {MAX_EDGE_TYPES}");
                return Err(bad_key(path, &key("n_edge_types"), expected, n_types).into());
            }
            if let Some(dim) = edges.dim.filter(|dim| !(1..=MAX_DIM).contains(dim)) {
                let expected = format!("1 to {MAX_DIM} columns");
                return Err(bad_key(path, &key("edge_dim"), expected, dim).into());
            }
            let file = self.layout.file(column_file(EdgeColumns::FEATURES), position);
            if self.layout == Layout::Plain && edges.dim.is_none() && self.files.contains_key(&*file) {
                let expected = format!("the number of columns of {file}");
                return Err(bad_key(path, &key("edge_dim"), expected, "nothing").into());
            }
        }
        Ok(())
    }

    fn check_types(&self, path: &Path) -> Result<()> {
        let n_types = self.node_types.len();
        let n_parts = self.n_parts();
        if MAX_TYPES < n_types {
            let expected = format!("at most {MAX_TYPES} types");
            return Err(bad_key(path, "node_types", expected, format!("{n_types} types")).into());
        }
        if n_parts <= self.part {
            let expected = format!("below {n_parts}, the number of partitions");
            return Err(bad_key(path, "part", expected, self.part).into());
        }
        for (position, node_type) in self.node_types.iter().enumerate() {
            self.check_type(path, position, node_type)?;
        }
        if n_types <= self.target_type {
            let expected = format!("below {n_types}, the number of node types");
            return Err(bad_key(path, "target_type", expected, self.target_type).into());
        }
        Ok(())
    }

    fn check_type(&self, path: &Path, position: usize, node_type: &TypeEntry) -> Result<()> {
        let TypeEntry { dim, feature_columns, offsets, .. } = node_type;
        let key = |name| self.layout.key("node_types", position, name);
        check_feature_columns(path, &key("feature_columns"), feature_columns, *dim)?;
        let n_parts = self.n_parts();
        if offsets.len() != n_parts + 1 {
            let expected = format!("{} offsets, one more than partitions", n_parts + 1);
            return Err(bad_key(path, &key("offsets"), expected, offsets.len()).into());
        }
        if let Some(pair) = offsets.windows(2).find(|pair| pair[1] < pair[0]) {
            let key = match self.layout {
                Layout::Plain => "an offset".to_owned(),
                Layout::Numbered => key("offsets"),
            };
            let expected = format!("at least {}, the previous one", pair[0]);
            return Err(bad_key(path, &key, expected, pair[1]).into());
        }
        if let Some(dim) = dim.filter(|dim| !(1..=MAX_DIM).contains(dim)) {
            let expected = match self.layout {
                Layout::Plain => format!("1 to {MAX_DIM}"),
                Layout::Numbered => format!("1 to {MAX_DIM}, or null"),
            };
            return Err(bad_key(path, &key("dim"), expected, dim).into());
        }
        Ok(())
    }

    /// Checks that the entries are those of the format. The types must be valid.
    fn check_files(&self, path: &Path) -> Result<()> {
        check_target_files(path, &self.files, self.n_classes)?;
        let mut known = Vec::new();
        for (position, node_type) in self.node_types.iter().enumerate() {
            self.add_files_of_type(position, node_type, &mut known);
        }
        for (position, relation) in self.relations.iter().enumerate() {
            self.add_files_of_relation(path, position, relation, &mut known)?;
        }
        let n_targets = self.node_types[self.target_type].n_nodes;
        known.extend(target_files(&self.files, n_targets, self.n_classes));
        known.extend(
            ["train.npy", "val.npy", "test.npy"].map(|name| file(name, &[ElementType::U32], None, true)),
        );
        check_entries(path, &self.files, &known)?;
        for (position, node_type) in self.node_types.iter().enumerate() {
            if node_type.dim.is_some() {
                self.layout.rows(&FEATURES, position).check(path, &self.files, true)?;
                self.layout.rows(&CACHE, position).check(path, &self.files, self.has_cache(position))?;
            }
        }
        let columns = column_files(path.parent().unwrap_or(path))?;
        let names = known.iter().map(|known| &*known.name).chain(columns.iter().map(String::as_str));
        Ok(check_unlisted(path, &self.files, names)?)
    }

    fn add_files_of_type(&self, position: usize, node_type: &TypeEntry, known: &mut Vec<Known>) {
        use ElementType::{I64, U8, U32};
        let name = |name| self.layout.file(name, position);
        let n_owned = self.n_owned(position);
        known.push(file(name("new_ids.npy"), &[U32], Some(vec![node_type.n_nodes]), true));
        known.push(file(name("old_ids.npy"), &[U32], Some(vec![n_owned]), true));
        known.push(file(name(NODE_TIMES), &[I64], Some(vec![node_type.n_nodes]), false));
        let Some(dim) = node_type.dim else {
            known.push(file(name(KEYS), &[U8], Some(vec![n_owned, KEY_BYTES]), false));
            return;
        };
        let n_cached = self.length(&name("cache_ids.npy"));
        let has_cache = self.has_cache(position);
        known.push(file(name("cache_ids.npy"), &[U32], None, false));
        known.push(file(name("cache_counts.npy"), &[U32], Some(vec![n_cached]), has_cache));
        known.extend(self.layout.rows(&FEATURES, position).known(n_owned, dim));
        known.extend(self.layout.rows(&CACHE, position).known(n_cached, dim));
    }

    fn add_files_of_relation(
        &self,
        path: &Path,
        position: usize,
        relation: &RelationEntry,
        known: &mut Vec<Known>,
    ) -> Result<()> {
        use ElementType::{U32, U64};
        let name = |name: Cow<'static, str>| self.layout.file(name, position);
        let n_owned = self.n_owned(relation.dst_type);
        let n_edges = self.length(&name("indices.npy".into()));
        if relation.n_edges < n_edges as u64 {
            let expected = format!("at most {}, the edges of the whole relation", relation.n_edges);
            return Err(bad_entry(path, &name("indices.npy".into()), ".shape", expected, n_edges).into());
        }
        known.push(file(name("indptr.npy".into()), &[U64], Some(vec![n_owned + 1]), true));
        known.push(file(name("first_edges.npy".into()), &[U64], Some(vec![n_owned]), true));
        known.push(file(name("indices.npy".into()), &[U32], None, true));
        let features = name(column_file(EdgeColumns::FEATURES));
        for mut column in column_entries(path, &self.files, self.layout, position, n_edges)? {
            // In the plain layout, the manifest states the width of the features.
            if let Some(dim) = relation.edges.dim.filter(|_| column.name == features) {
                column.shape = Some(vec![n_edges, dim]);
                column.is_needed = true;
            }
            known.push(column);
        }
        Ok(())
    }
}

/// Returns 64 bits of a hash in hexadecimal.
fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}

/// Returns a file that a partition may contain, or must if it is needed.
fn file(
    name: impl Into<Cow<'static, str>>,
    types: &'static [ElementType],
    shape: Option<Vec<usize>>,
    is_needed: bool,
) -> Known {
    Known { name: name.into(), types, shape, is_needed }
}

/// Returns the path of the manifest in a folder.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join(FILE_NAME)
}

/// Checks that a folder is not a dataset or a folder of partitions, and that it exists.
fn check_is_partition(folder: &Path, manifest: &Path) -> Result<()> {
    let first = folder.join("part0");
    let got = if manifest.exists() {
        return Ok(());
    } else if !folder.exists() {
        "a path that does not exist".to_owned()
    } else if path_in(&first).exists() {
        format!("a folder of partitions: give one of them, such as {}", first.display())
    } else if folder.join("kiln.json").exists() {
        format!(
            "a whole dataset: write it as partitions (`kiln data partition {} --parts 1 --out PARTS`), and give PARTS/part0",
            folder.display()
        )
    } else {
        return Ok(());
    };
    Err(Error::NotAPartition { folder: folder.to_owned(), got })
}

/// Creates an error for an invalid value in a file of a partition.
pub(crate) fn bad_value(
    folder: &Path,
    file: &str,
    what: &'static str,
    position: usize,
    expected: impl Into<String>,
    found: impl ToString,
) -> Error {
    let (path, position) = (folder.join(file), position as u64);
    let (expected, found) = (expected.into(), found.to_string());
    kiln_store::Error::BadValue { path, what, position, expected, found }.into()
}

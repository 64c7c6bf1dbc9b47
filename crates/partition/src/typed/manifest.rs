//! The manifest `part.json` of a partition of a heterogeneous set (`docs/formats.md`).

use std::path::Path;

use kiln_data::graph_folder::{FEATURES, check_class_names, numbered};
use kiln_feature::MAX_DIM;
use kiln_graph::{GraphSchema, NodeTypes, RelationSchema, Relations};
use kiln_store::array_folder::{
    ElementType, Entries, Known, bad_entry, bad_key, check_entries, check_unlisted, read_manifest,
};
use kiln_store::sha256;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::manifest::{CACHE, known, path_in, short};
use crate::{Error, Method, Result};

/// The version of the format with the keys of nodes, and the last one that can be read. Partitions without keys have version 1.
pub(super) const VERSION: u32 = 2;

/// The file of the keys of the nodes of a type without features.
pub(super) const KEYS: &str = "keys.npy";

/// The number of bytes of a key.
pub(super) const KEY_BYTES: usize = 16;

/// The maximum number of node types: two for each relation, as in the kiln format.
const MAX_TYPES: usize = 2 * Relations::MOST;

/// The metadata of a partition. All keys except `part` and `files` describe the whole set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// The version of the format, at most [`VERSION`].
    pub(super) format: u32,
    pub(super) name: String,
    /// The hash of the whole set.
    pub(super) hash: String,
    /// The node types, in the order of their ids.
    pub(super) node_types: Vec<TypeEntry>,
    /// The relations, in the order of their edge ids.
    pub(super) relations: Vec<RelationEntry>,
    /// The position of the node type that has labels.
    pub(super) target_type: usize,
    pub(super) n_classes: usize,
    /// The name of each class; empty if classes have no names.
    pub(super) class_names: Vec<String>,
    pub(super) method: Method,
    pub(super) n_cut_edges: u64,
    /// The index of this partition, from 0.
    pub(super) part: usize,
    /// The element type, shape and hash of each file, by file name.
    pub(super) files: Entries,
}

/// A node type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TypeEntry {
    pub(super) name: String,
    pub(super) n_nodes: usize,
    /// The number of feature columns; `None` for a type without features.
    pub(super) dim: Option<usize>,
    /// The offsets of the type's [`PartitionBook`](crate::PartitionBook).
    pub(super) offsets: Vec<u32>,
}

/// A relation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RelationEntry {
    pub(super) name: String,
    /// The position of the sources' type.
    pub(super) src_type: usize,
    /// The position of the destinations' type.
    pub(super) dst_type: usize,
    /// The number of edges of the whole graph.
    pub(super) n_edges: u64,
}

/// Returns true if the manifest in a folder is that of a partition of a heterogeneous set.
pub(crate) fn is_typed(folder: &Path) -> bool {
    has_node_types(folder) == Some(true)
}

/// Returns whether the manifest in a folder has node types, or `None` if it is damaged.
fn has_node_types(folder: &Path) -> Option<bool> {
    #[derive(Deserialize)]
    struct Keys {
        node_types: Option<IgnoredAny>,
    }
    let keys: Keys = read_manifest(&path_in(folder), 0..=u32::MAX, "").ok()?;
    Some(keys.node_types.is_some())
}

impl Manifest {
    /// Reads the manifest of a folder and checks that it is consistent and lists exactly the files of the format.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = path_in(folder);
        let what = "the manifest of a partition of a heterogeneous set";
        let manifest: Self = read_manifest(&path, 1..=VERSION, what).map_err(|error| {
            // A homogeneous partition has another version or other keys.
            match error {
                kiln_store::Error::Format { .. } | kiln_store::Error::Manifest { .. }
                    if has_node_types(folder) == Some(false) =>
                {
                    Error::WrongKind { path: folder.to_owned(), is_typed: false }
                }
                other => other.into(),
            }
        })?;
        manifest.check_counts(&path)?;
        manifest.schema(&path)?;
        let known = manifest.known(&path)?;
        check_entries(&path, &manifest.files, &known)?;
        for (node_type, _) in manifest.node_types.iter().enumerate().filter(|(_, entry)| entry.dim.is_some())
        {
            FEATURES.of_type(node_type).check(&path, &manifest.files, true)?;
            CACHE.of_type(node_type).check(&path, &manifest.files, manifest.has_cache(node_type))?;
        }
        check_unlisted(&path, &manifest.files, known.iter().map(|known| &*known.name))?;
        Ok(manifest)
    }

    /// Returns the node types and relations of the whole graph.
    pub(super) fn schema(&self, path: &Path) -> Result<GraphSchema> {
        let types = self.node_types.iter().map(|node_type| (node_type.name.as_str(), node_type.n_nodes));
        let expected = "types with different names and fewer than 2^32 nodes in all";
        let types = NodeTypes::new(types).map_err(|error| bad_key(path, "node_types", expected, error))?;
        let of_relation = |relation: &RelationEntry| RelationSchema {
            name: relation.name.clone(),
            src_type: relation.src_type,
            dst_type: relation.dst_type,
            n_edges: relation.n_edges,
        };
        let schema = GraphSchema::new(types, self.relations.iter().map(of_relation).collect());
        let expected = "at most 256 with different names, between node types";
        Ok(schema.map_err(|error| bad_key(path, "relations", expected, error))?)
    }

    /// Returns the hash of the partitioning; see [`TypedPart::partition_hash`](crate::TypedPart::partition_hash).
    pub(super) fn partition_hash(&self) -> String {
        let hash_of = |node_type| {
            let book = self.files.get(&numbered("new_ids.npy", node_type));
            book.map_or("", |entry| &*entry.sha256)
        };
        let books: String = (0..self.node_types.len()).map(hash_of).collect();
        format!("{}-{}-{}", short(&self.hash), self.n_parts(), short(&sha256(books.as_bytes())))
    }

    /// Returns true if the partition has cached rows of a node type.
    pub(super) fn has_cache(&self, node_type: usize) -> bool {
        self.files.contains_key(&numbered("cache_ids.npy", node_type))
    }

    fn n_parts(&self) -> usize {
        self.node_types.first().map_or(0, |node_type| node_type.offsets.len().saturating_sub(1))
    }

    /// Returns the number of nodes of a type that this partition owns. The counts must be valid.
    fn n_owned(&self, node_type: usize) -> usize {
        let offsets = &self.node_types[node_type].offsets;
        offsets[self.part + 1].saturating_sub(offsets[self.part]) as usize
    }

    fn check_counts(&self, path: &Path) -> Result<()> {
        let (n_types, n_parts) = (self.node_types.len(), self.n_parts());
        if MAX_TYPES < n_types {
            let expected = format!("at most {MAX_TYPES} types");
            return Err(bad_key(path, "node_types", expected, format!("{n_types} types")).into());
        }
        if n_parts <= self.part {
            let expected = format!("below {n_parts}, the number of partitions");
            return Err(bad_key(path, "part", expected, self.part).into());
        }
        for (position, TypeEntry { dim, offsets, .. }) in self.node_types.iter().enumerate() {
            let key = |name: &str| format!("node_types[{position}].{name}");
            if offsets.len() != n_parts + 1 {
                let expected = format!("{} offsets, one more than partitions", n_parts + 1);
                return Err(bad_key(path, &key("offsets"), expected, offsets.len()).into());
            }
            if let Some(pair) = offsets.windows(2).find(|pair| pair[1] < pair[0]) {
                let expected = format!("at least {}, the previous one", pair[0]);
                return Err(bad_key(path, &key("offsets"), expected, pair[1]).into());
            }
            if let Some(dim) = dim.filter(|dim| !(1..=MAX_DIM).contains(dim)) {
                return Err(bad_key(path, &key("dim"), format!("1 to {MAX_DIM}, or null"), dim).into());
            }
        }
        if n_types <= self.target_type {
            let expected = format!("below {n_types}, the number of node types");
            return Err(bad_key(path, "target_type", expected, self.target_type).into());
        }
        Ok(check_class_names(path, None, self.n_classes, &self.class_names)?)
    }

    /// Returns the files that a partition may contain. The counts must be valid.
    fn known(&self, path: &Path) -> Result<Vec<Known>> {
        use ElementType::{F32, I32, U8, U32, U64};
        let mut files = Vec::new();
        for (position, &TypeEntry { n_nodes, dim, .. }) in self.node_types.iter().enumerate() {
            let n_owned = self.n_owned(position);
            let name = |file| numbered(file, position);
            files.push(known(name("new_ids.npy"), &[U32], Some(vec![n_nodes]), true));
            files.push(known(name("old_ids.npy"), &[U32], Some(vec![n_owned]), true));
            if let Some(dim) = dim {
                let ids = self.files.get(&name("cache_ids.npy"));
                let n_cached = ids.and_then(|entry| entry.shape.first().copied()).unwrap_or(0);
                let has_cache = self.has_cache(position);
                files.push(known(name("cache_ids.npy"), &[U32], None, false));
                files.push(known(name("cache_counts.npy"), &[U32], Some(vec![n_cached]), has_cache));
                files.extend(FEATURES.of_type(position).known(n_owned, dim));
                files.extend(CACHE.of_type(position).known(n_cached, dim));
            } else {
                files.push(known(name(KEYS), &[U8], Some(vec![n_owned, KEY_BYTES]), false));
            }
        }
        for (position, relation) in self.relations.iter().enumerate() {
            let n_owned = self.n_owned(relation.dst_type);
            let name = |file| numbered(file, position);
            let indices = self.files.get(&name("indices.npy"));
            let n_edges = indices.and_then(|entry| entry.shape.first().copied()).unwrap_or(0);
            if relation.n_edges < n_edges as u64 {
                let expected = format!("at most {}, the edges of the whole relation", relation.n_edges);
                return Err(bad_entry(path, &name("indices.npy"), ".shape", expected, n_edges).into());
            }
            files.push(known(name("indptr.npy"), &[U64], Some(vec![n_owned + 1]), true));
            files.push(known(name("first_edges.npy"), &[U64], Some(vec![n_owned]), true));
            files.push(known(name("indices.npy"), &[U32], None, true));
            files.push(known(name("weights.npy"), &[F32], Some(vec![n_edges]), false));
        }
        let n_labels = self.node_types[self.target_type].n_nodes;
        files.push(known("labels.npy", &[I32], Some(vec![n_labels]), true));
        files.extend(["train.npy", "val.npy", "test.npy"].map(|file| known(file, &[U32], None, true)));
        Ok(files)
    }
}

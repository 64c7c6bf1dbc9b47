//! The manifest `part.json`: metadata of a partition and the list of its files (`docs/formats.md`).

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use kiln_data::graph_folder::{EDGE_FEATURES, FEATURES, RowFiles, check_class_names};
use kiln_feature::{MAX_DIM, Preparation};
use kiln_store::array_folder::{
    ElementType, Entries, Known, bad_key, check_entries, check_unlisted, read_manifest,
};
use serde::{Deserialize, Serialize};

use crate::typed::is_typed;
use crate::{Error, Method, Result};

/// The manifest's file name.
pub(crate) const FILE_NAME: &str = "part.json";

/// The version of the format that is written. Version 1, which has no `preparation`, is read, too.
pub(crate) const VERSION: u32 = 2;

/// The largest number of edge types, which are stored as `u8`.
const MAX_EDGE_TYPES: usize = 256;

/// The files of the cached feature rows of remote nodes.
pub(crate) const CACHE: RowFiles = RowFiles::new([
    "cache_features.npy",
    "cache_features_indptr.npy",
    "cache_features_indices.npy",
    "cache_features_data.npy",
]);

/// The metadata of a partition. All keys except `part` and `files` describe the whole data set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// The version of the format, at most [`VERSION`].
    pub(crate) format: u32,
    pub(crate) name: String,
    /// The hash of the whole data set, which covers all data that training reads.
    pub(crate) hash: String,
    pub(crate) n_nodes: usize,
    pub(crate) n_edges: u64,
    pub(crate) dim: usize,
    pub(crate) n_classes: usize,
    /// The name of each class; empty if classes have no names.
    pub(crate) class_names: Vec<String>,
    /// The name of each edge type; empty if edge types have no names.
    pub(crate) edge_type_names: Vec<String>,
    /// The number of edge types: one more than the largest, or the number of names if it is larger. `None` without edge
    /// types, and in partitions of older versions of kiln.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) n_edge_types: Option<usize>,
    /// The number of columns of the edge features; `None` if edges have no features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) edge_dim: Option<usize>,
    /// The steps that prepared the data set before it was partitioned; `None` in version 1, where they are unknown.
    #[serde(default)]
    pub(crate) preparation: Option<Preparation>,
    pub(crate) method: Method,
    pub(crate) n_cut_edges: u64,
    /// The offsets of the [`PartitionBook`](crate::PartitionBook).
    pub(crate) offsets: Vec<u32>,
    /// The index of this partition, from 0.
    pub(crate) part: usize,
    /// The element type, shape and hash of each file, by file name.
    pub(crate) files: Entries,
}

impl Manifest {
    /// Reads the manifest at `path` and checks that it is consistent and lists exactly the files of the format.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let manifest: Self =
            read_manifest(path, 1..=VERSION, "the manifest of a partition").map_err(|error| {
                match (error, path.parent()) {
                    (kiln_store::Error::Manifest { .. }, Some(folder)) if is_typed(folder) => {
                        Error::WrongKind { path: folder.to_owned(), is_typed: true }
                    }
                    (other, _) => other.into(),
                }
            })?;
        if let Some(Err(error)) = manifest.preparation.as_ref().map(|steps| steps.check(manifest.dim)) {
            let expected = format!("steps for {} feature columns", manifest.dim);
            return Err(bad_key(path, "preparation", expected, error).into());
        }
        if let Some(n_types) = manifest.n_edge_types.filter(|n_types| MAX_EDGE_TYPES < *n_types) {
            let expected = format!("at most {MAX_EDGE_TYPES}");
            return Err(bad_key(path, "n_edge_types", expected, n_types).into());
        }
        if let Some(dim) = manifest.edge_dim.filter(|dim| !(1..=MAX_DIM).contains(dim)) {
            return Err(bad_key(path, "edge_dim", format!("1 to {MAX_DIM} columns"), dim).into());
        }
        check_class_names(path, Some(manifest.dim), manifest.n_classes, &manifest.class_names)?;
        if manifest.edge_dim.is_none() && manifest.files.contains_key(EDGE_FEATURES) {
            let expected = format!("the number of columns of {EDGE_FEATURES}");
            return Err(bad_key(path, "edge_dim", expected, "nothing").into());
        }
        let known = manifest.known(path)?;
        check_entries(path, &manifest.files, &known)?;
        FEATURES.check(path, &manifest.files, true)?;
        CACHE.check(path, &manifest.files, manifest.has_cache())?;
        check_unlisted(path, &manifest.files, known.iter().map(|known| &*known.name))?;
        Ok(manifest)
    }

    /// Returns the hash of the partitioning; see [`Part::partition_hash`](crate::Part::partition_hash).
    pub(crate) fn partition_hash(&self) -> String {
        let book = self.files.get("new_ids.npy").map_or("", |entry| &entry.sha256);
        format!("{}-{}-{}", short(&self.hash), self.offsets.len().saturating_sub(1), short(book))
    }

    /// Returns true if the partition has cached rows.
    pub(crate) fn has_cache(&self) -> bool {
        self.files.contains_key("cache_ids.npy")
    }

    /// Returns the files that a partition may contain, with the shapes that follow from the manifest's counts, or an
    /// error if `part` or `offsets` is invalid.
    fn known(&self, path: &Path) -> Result<Vec<Known>> {
        use ElementType::{BF16, F16, F32, I32, U8, U32, U64};
        let Some(&[start, end]) = self.offsets.get(self.part..).and_then(|rest| rest.first_chunk()) else {
            let n_parts = self.offsets.len().saturating_sub(1);
            let expected = format!("below {n_parts}, the number of partitions");
            return Err(bad_key(path, "part", expected, self.part).into());
        };
        let Some(n_owned) = end.checked_sub(start).map(|n| n as usize) else {
            let expected = format!("at least {start}, the previous one");
            return Err(bad_key(path, "an offset", expected, end).into());
        };
        let length = |name| self.files.get(name)?.shape.first().copied();
        let (n_kept, n_edges) = (length("cache_ids.npy").unwrap_or(0), length("indices.npy").unwrap_or(0));
        let edge_rows = vec![n_edges, self.edge_dim.unwrap_or(1)];
        let of_length = |n: usize| Some(vec![n]);
        let own = [
            known("new_ids.npy", &[U32], of_length(self.n_nodes), true),
            known("labels.npy", &[I32], of_length(self.n_nodes), true),
            known("train.npy", &[U32], None, true),
            known("val.npy", &[U32], None, true),
            known("test.npy", &[U32], None, true),
            known("old_ids.npy", &[U32], of_length(n_owned), true),
            known("indptr.npy", &[U64], of_length(n_owned + 1), true),
            known("first_edges.npy", &[U64], of_length(n_owned), true),
            known("indices.npy", &[U32], None, true),
            known("weights.npy", &[F32], None, false),
            known("edge_types.npy", &[U8], None, false),
            known(EDGE_FEATURES, &[F32, F16, BF16], Some(edge_rows), self.edge_dim.is_some()),
            known("cache_ids.npy", &[U32], None, false),
            known("cache_counts.npy", &[U32], of_length(n_kept), self.has_cache()),
        ];
        let rows = [FEATURES.known(n_owned, self.dim), CACHE.known(n_kept, self.dim)];
        Ok(own.into_iter().chain(rows.into_iter().flatten()).collect())
    }
}

/// Returns 64 bits of a hash in hexadecimal.
pub(crate) fn short(hash: &str) -> String {
    hash.chars().take(16).collect()
}

/// Returns a file that a partition may contain, or must if it is needed.
pub(crate) fn known(
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

//! `part.json`: what a part is and what its files hold (`docs/format.md`).

use std::path::{Path, PathBuf};

use kiln_data::graph_folder::{FEATURES, RowFiles, check_class_names};
use kiln_store::array_folder::{
    ElementType, Entries, Known, bad_key, check_entries, check_unlisted, read_manifest,
};
use serde::{Deserialize, Serialize};

use crate::{Error, Method, Result};

/// The manifest's file name.
pub(crate) const FILE_NAME: &str = "part.json";

/// The version of the form that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;

/// The files of the rows of nodes that other parts own.
pub(crate) const CACHE: RowFiles = RowFiles {
    dense: "cache_features.npy",
    sparse: ["cache_features_indptr.npy", "cache_features_indices.npy", "cache_features_data.npy"],
};

/// Everything about a part but its arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// [`VERSION`].
    pub(crate) format: u32,
    /// Of the whole set, as all keys but `part` and `files`.
    pub(crate) name: String,
    /// What of the whole set training can see.
    pub(crate) hash: String,
    pub(crate) n_nodes: usize,
    pub(crate) n_edges: u64,
    pub(crate) dim: usize,
    pub(crate) n_classes: usize,
    /// By class; empty where they have no names.
    pub(crate) class_names: Vec<String>,
    /// By edge type; empty where they have no names.
    pub(crate) edge_type_names: Vec<String>,
    pub(crate) method: Method,
    pub(crate) n_cut_edges: u64,
    /// The partition book's; see [`PartitionBook`](crate::PartitionBook).
    pub(crate) offsets: Vec<u32>,
    /// Which part this is, from 0.
    pub(crate) part: usize,
    /// By file name.
    pub(crate) files: Entries,
}

impl Manifest {
    /// Reads the manifest of a folder and checks that it contradicts neither itself nor the form.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let manifest: Self = read_manifest(path, VERSION, "the manifest of a part of a graph")?;
        check_class_names(path, Some(manifest.dim), manifest.n_classes, &manifest.class_names)?;
        let known = manifest.known(path)?;
        check_entries(path, &manifest.files, &known)?;
        FEATURES.check(path, &manifest.files, true)?;
        CACHE.check(path, &manifest.files, manifest.has_cache())?;
        check_unlisted(path, &manifest.files, known.iter().map(|known| known.name))?;
        Ok(manifest)
    }

    /// See [`Part::partition_hash`](crate::Part::partition_hash).
    pub(crate) fn partition_hash(&self) -> String {
        let book = self.files.get("new_ids.npy").map_or("", |entry| &entry.sha256);
        let short = |hash: &str| hash.chars().take(16).collect::<String>();
        format!("{}-{}-{}", short(&self.hash), self.offsets.len().saturating_sub(1), short(book))
    }

    /// Whether rows of other parts are kept.
    pub(crate) fn has_cache(&self) -> bool {
        self.files.contains_key("cache_ids.npy")
    }

    /// The files of a part, of the lengths that the counts ask for.
    fn known(&self, path: &Path) -> Result<Vec<Known>> {
        use ElementType::{F32, I32, U8, U32, U64};
        let Some(&[start, end]) = self.offsets.get(self.part..).and_then(|rest| rest.first_chunk()) else {
            let expected = format!("below {}, the number of parts", self.offsets.len().saturating_sub(1));
            return Err(bad_key(path, "part", expected, self.part).into());
        };
        let Some(n_owned) = end.checked_sub(start).map(|n| n as usize) else {
            let expected = format!("at least {start}, as the one before it");
            return Err(bad_key(path, "an offset", expected, end).into());
        };
        let n_kept = self.files.get("cache_ids.npy").and_then(|entry| entry.shape.first()).copied();
        let n_kept = n_kept.unwrap_or(0);
        let known = |name, types, shape, is_needed| Known { name, types, shape, is_needed };
        let of_length = |n: usize| Some(vec![n]);
        let own = [
            known("new_ids.npy", &[U32][..], of_length(self.n_nodes), true),
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
            known("cache_ids.npy", &[U32], None, false),
            known("cache_counts.npy", &[U32], of_length(n_kept), self.has_cache()),
        ];
        let rows = [FEATURES.known(n_owned, self.dim), CACHE.known(n_kept, self.dim)];
        Ok(own.into_iter().chain(rows.into_iter().flatten()).collect())
    }
}

/// Where the manifest of a folder would be.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join(FILE_NAME)
}

/// An error for a value in a file of a part.
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

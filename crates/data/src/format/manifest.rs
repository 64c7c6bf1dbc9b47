//! `kiln.json`: what a set is and what its files hold.

use std::path::{Path, PathBuf};

use kiln_store::Hasher;
use kiln_store::array_folder::{
    ElementType, Entries, Entry, FolderWriter, Known, bad_entry, bad_key, check_entries, check_together,
    check_unlisted, read_manifest,
};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::graph_folder::{FEATURES, check_class_names};

/// The manifest's file name.
pub(crate) const FILE_NAME: &str = "kiln.json";

/// The version of the form that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;

/// Everything about a set but its arrays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// [`VERSION`].
    pub(crate) format: u32,
    pub(crate) name: String,
    pub(crate) n_nodes: usize,
    pub(crate) n_edges: usize,
    /// Columns of the features; `None` for a graph alone, which has neither features nor labels nor a split.
    pub(crate) dim: Option<usize>,
    /// `None` for a graph alone.
    pub(crate) n_classes: Option<usize>,
    /// By class; empty where they have no names.
    pub(crate) class_names: Vec<String>,
    /// By edge type; empty where they have no names.
    pub(crate) edge_type_names: Vec<String>,
    /// By file name.
    pub(crate) files: Entries,
}

/// What a file of the form is for; the files of features are told apart by [`FEATURES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Every set has it.
    Always,
    /// Every set has it but a graph alone.
    ForNodes,
    /// It may be there.
    Optional,
}

/// How long an array is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    NodesAndOne,
    Nodes,
    Edges,
    Any,
}

use ElementType::{F32, I32, U8, U32, U64};

/// The files of the form, but for those of features.
const KNOWN: [(&str, &[ElementType], Length, Need); 10] = [
    ("indptr.npy", &[U64], Length::NodesAndOne, Need::Always),
    ("indices.npy", &[U32], Length::Edges, Need::Always),
    ("weights.npy", &[F32], Length::Edges, Need::Optional),
    ("edge_types.npy", &[U8], Length::Edges, Need::Optional),
    ("labels.npy", &[I32], Length::Nodes, Need::ForNodes),
    ("train.npy", &[U32], Length::Any, Need::ForNodes),
    ("val.npy", &[U32], Length::Any, Need::ForNodes),
    ("test.npy", &[U32], Length::Any, Need::ForNodes),
    ("names_text.npy", &[U8], Length::Any, Need::Optional),
    ("names_ends.npy", &[U32], Length::Nodes, Need::Optional),
];

/// Files that come together or not at all.
const NAMES: [&str; 2] = ["names_text.npy", "names_ends.npy"];

impl Manifest {
    /// Reads the manifest of a folder and checks that it contradicts neither itself nor the form.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = path_in(folder);
        let manifest: Self = read_manifest(&path, VERSION, "the manifest of a set in kiln's own form")?;
        manifest.check(&path)?;
        check_unlisted(&path, &manifest.files, file_names())?;
        Ok(manifest)
    }

    /// Writes the manifest of what was written, and gives the folder its name.
    pub(crate) fn commit(self, folder: FolderWriter) -> Result<()> {
        let manifest = Self { files: folder.entries().clone(), ..self };
        manifest.check(&path_in(folder.folder()))?;
        Ok(folder.commit_with(FILE_NAME, &manifest)?)
    }

    /// See [`format::hash`](super::hash).
    pub(crate) fn hash(&self) -> String {
        let mut hasher = Hasher::default();
        hasher.update("kiln format 1\n");
        for (what, n) in [("dim", self.dim), ("n_classes", self.n_classes)] {
            if let Some(n) = n {
                hasher.update(format!("{what} {n}\n"));
            }
        }
        for (name, Entry { dtype, shape, sha256 }) in &self.files {
            if !NAMES.contains(&name.as_str()) {
                let lengths = shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
                hasher.update(format!("{name} {dtype} {lengths} {sha256}\n"));
            }
        }
        hasher.finish()
    }

    /// Whether there is nothing but the topology.
    pub(crate) fn is_graph_alone(&self) -> bool {
        self.dim.is_none()
    }

    /// Checks the counts, that each entry is one of the form and of the shape that the counts ask for, and
    /// that none is missing.
    fn check(&self, path: &Path) -> Result<()> {
        self.check_counts(path)?;
        let (known, features) = (self.known(), FEATURES.known(self.n_nodes, self.dim.unwrap_or(0)));
        if self.is_graph_alone() {
            let for_nodes = KNOWN.iter().filter(|(.., need)| *need == Need::ForNodes).map(|known| known.0);
            let mut alone = for_nodes.chain(features.iter().map(|known| known.name));
            if let Some(name) = alone.find(|name| self.files.contains_key(*name)) {
                return Err(bad_entry(path, name, "", "absent, as dim is null", "an entry").into());
            }
        }
        check_entries(path, &self.files, &[&known[..], &features[..]].concat())?;
        FEATURES.check(path, &self.files, !self.is_graph_alone())?;
        Ok(check_together(path, &self.files, &NAMES)?)
    }

    /// Checks that the counts and names fit each other.
    pub(crate) fn check_counts(&self, path: &Path) -> Result<()> {
        let n_classes = self.n_classes.unwrap_or(0);
        match (self.dim, self.n_classes) {
            (Some(_), None) => return Err(bad_key(path, "n_classes", "a number, as dim is", "null").into()),
            (None, Some(n)) => return Err(bad_key(path, "n_classes", "null, as dim is", n).into()),
            _ => check_class_names(path, self.dim, n_classes, &self.class_names)?,
        }
        if self.edge_type_names.len() > 256 {
            let found = format!("{} names", self.edge_type_names.len());
            return Err(bad_key(path, "edge_type_names", "at most 256 names", found).into());
        }
        Ok(())
    }

    /// The files of the form, of the lengths that the counts ask for.
    fn known(&self) -> [Known; 10] {
        KNOWN.map(|(name, types, length, need)| Known {
            name,
            types,
            shape: match length {
                Length::NodesAndOne => Some(vec![self.n_nodes.saturating_add(1)]),
                Length::Nodes => Some(vec![self.n_nodes]),
                Length::Edges => Some(vec![self.n_edges]),
                Length::Any => None,
            },
            is_needed: need == Need::Always || need == Need::ForNodes && !self.is_graph_alone(),
        })
    }
}

/// The names of the arrays that a set may have.
pub(super) fn file_names() -> impl Iterator<Item = &'static str> {
    let features = [FEATURES.dense].into_iter().chain(FEATURES.sparse);
    KNOWN.iter().map(|known| known.0).chain(features)
}

/// Where the manifest of a folder would be.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join(FILE_NAME)
}

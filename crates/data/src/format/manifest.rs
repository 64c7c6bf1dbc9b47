//! `kiln.json`: what a set is and what its files hold.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use kiln_feature::MAX_DIM;
use kiln_graph::open_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::folder::{check_n_classes, is_there};
use crate::hash::hex;
use crate::npy::DType;
use crate::{Error, Result};

/// The manifest's file name.
pub(crate) const FILE_NAME: &str = "kiln.json";

/// The version of the form that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;

/// The longest that a manifest may be.
const MAX_BYTES: usize = 16 << 20;

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
    pub(crate) files: BTreeMap<String, Entry>,
}

/// What the manifest says of one array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) dtype: ElementType,
    pub(crate) shape: Vec<usize>,
    /// Of the whole file, in lower-case hexadecimal.
    pub(crate) sha256: String,
}

/// What an array consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ElementType {
    U8,
    U32,
    U64,
    I32,
    F16,
    /// NumPy has no such type: the file says `<u2`, the manifest what the bits mean.
    BF16,
    F32,
}

impl ElementType {
    /// What the file's own header says.
    pub(crate) fn stored_as(self) -> DType {
        match self {
            Self::U8 => DType::U8,
            Self::U32 => DType::U32,
            Self::U64 => DType::U64,
            Self::I32 => DType::I32,
            Self::F16 => DType::F16,
            Self::BF16 => DType::U16,
            Self::F32 => DType::F32,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
        })
    }
}

/// What a file of the form is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Every set has it.
    Always,
    /// Every set has it but a graph alone.
    ForNodes,
    /// It may be there.
    Optional,
    /// Dense or sparse features: one of the two, but for a graph alone.
    Features,
}

/// How long an array is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    NodesAndOne,
    Nodes,
    Edges,
    /// `[n_nodes, dim]`.
    Rows,
    /// One dimension of any length.
    Any,
}

/// One file of the form.
#[derive(Debug)]
struct Known {
    name: &'static str,
    types: &'static [ElementType],
    shape: Shape,
    need: Need,
}

use ElementType::{BF16, F16, F32, I32, U8, U32, U64};

#[rustfmt::skip]
const KNOWN: [Known; 14] = [
    Known { name: "indptr.npy", types: &[U64], shape: Shape::NodesAndOne, need: Need::Always },
    Known { name: "indices.npy", types: &[U32], shape: Shape::Edges, need: Need::Always },
    Known { name: "weights.npy", types: &[F32], shape: Shape::Edges, need: Need::Optional },
    Known { name: "edge_types.npy", types: &[U8], shape: Shape::Edges, need: Need::Optional },
    Known { name: "features.npy", types: &[F32, F16, BF16], shape: Shape::Rows, need: Need::Features },
    Known { name: "features_indptr.npy", types: &[U64], shape: Shape::NodesAndOne, need: Need::Features },
    Known { name: "features_indices.npy", types: &[U32], shape: Shape::Any, need: Need::Features },
    Known { name: "features_data.npy", types: &[F32], shape: Shape::Any, need: Need::Features },
    Known { name: "labels.npy", types: &[I32], shape: Shape::Nodes, need: Need::ForNodes },
    Known { name: "train.npy", types: &[U32], shape: Shape::Any, need: Need::ForNodes },
    Known { name: "val.npy", types: &[U32], shape: Shape::Any, need: Need::ForNodes },
    Known { name: "test.npy", types: &[U32], shape: Shape::Any, need: Need::ForNodes },
    Known { name: "names_text.npy", types: &[U8], shape: Shape::Any, need: Need::Optional },
    Known { name: "names_ends.npy", types: &[U32], shape: Shape::Nodes, need: Need::Optional },
];

/// Files that come together or not at all.
const SPARSE: [&str; 3] = ["features_indptr.npy", "features_indices.npy", "features_data.npy"];
const NAMES: [&str; 2] = ["names_text.npy", "names_ends.npy"];

impl Manifest {
    /// Reads the manifest of a folder and checks that it contradicts neither itself nor the form.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Versioned {
            format: u32,
        }
        let path = folder.join(FILE_NAME);
        let bytes = read_bytes(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if !is_there(&path) => Error::Missing {
                folder: folder.to_owned(),
                expected: format!("{FILE_NAME} (the manifest of a set in kiln's own form)"),
            },
            _ => Error::Io { path: path.clone(), source },
        })?;
        check_length(&path, &bytes)?;
        let bad = |source| Error::Manifest { path: path.clone(), source };
        // Another version may have other keys, so its number is read alone.
        let Versioned { format } = serde_json::from_slice(&bytes).map_err(bad)?;
        if format != VERSION {
            return Err(Error::Format { path, expected: VERSION, got: format });
        }
        let manifest: Self = serde_json::from_slice(&bytes).map_err(bad)?;
        manifest.check(&path)?;
        manifest.check_unlisted(folder, &path)?;
        Ok(manifest)
    }

    /// See [`format::hash`](super::hash).
    pub(crate) fn hash(&self) -> String {
        let mut hasher = Sha256::new_with_prefix("kiln format 1\n");
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
        hex(hasher)
    }

    /// The bytes of the file at `path`.
    pub(crate) fn to_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a manifest should be JSON");
        bytes.push(b'\n');
        check_length(path, &bytes)?;
        Ok(bytes)
    }

    /// Whether there is nothing but the topology.
    pub(crate) fn is_graph_alone(&self) -> bool {
        self.dim.is_none()
    }

    /// Checks the counts, that each entry is one of the form and of the shape that the counts ask for, and
    /// that none is missing.
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        self.check_counts(path)?;
        for (name, entry) in &self.files {
            self.check_entry(path, name, entry)?;
        }
        self.check_groups(path)
    }

    /// Checks that the counts and names fit each other.
    pub(crate) fn check_counts(&self, path: &Path) -> Result<()> {
        let bad = |key: &str, expected: String, found: String| {
            Err(Error::Metadata { path: path.to_owned(), key: key.to_owned(), expected, found })
        };
        match (self.dim, self.n_classes) {
            (Some(dim), _) if !(1..=MAX_DIM).contains(&dim) => {
                return bad("dim", format!("1 to {MAX_DIM}"), dim.to_string());
            }
            (Some(_), None) => return bad("n_classes", "a number, as dim is".into(), "null".into()),
            (None, Some(n)) => return bad("n_classes", "null, as dim is".into(), n.to_string()),
            _ => {}
        }
        let n_classes = self.n_classes.unwrap_or(0);
        check_n_classes(path, n_classes as u64)?;
        let n_names = self.class_names.len();
        if n_names != 0 && n_names != n_classes {
            return bad("class_names", format!("{n_classes} names or none"), format!("{n_names} names"));
        }
        if self.edge_type_names.len() > 256 {
            let found = format!("{} names", self.edge_type_names.len());
            return bad("edge_type_names", "at most 256 names".into(), found);
        }
        Ok(())
    }

    fn check_entry(&self, path: &Path, name: &str, entry: &Entry) -> Result<()> {
        let bad = |key: &str, expected: String, found: String| {
            let key = format!("files.{name}{key}");
            Err(Error::Metadata { path: path.to_owned(), key, expected, found })
        };
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            return bad("", "a file of the form (docs/format.md)".into(), "none".into());
        };
        if self.is_graph_alone() && matches!(known.need, Need::ForNodes | Need::Features) {
            return bad("", "absent, as dim is null".into(), "an entry".into());
        }
        if !known.types.contains(&entry.dtype) {
            let expected: Vec<String> = known.types.iter().map(ToString::to_string).collect();
            return bad(".dtype", expected.join(" or "), entry.dtype.to_string());
        }
        let expected = match known.shape {
            Shape::NodesAndOne => vec![self.n_nodes.saturating_add(1)],
            Shape::Nodes => vec![self.n_nodes],
            Shape::Edges => vec![self.n_edges],
            Shape::Rows => vec![self.n_nodes, self.dim.unwrap_or(0)],
            Shape::Any => match entry.shape[..] {
                [_] => entry.shape.clone(),
                _ => return bad(".shape", "one dimension".into(), format!("{:?}", entry.shape)),
            },
        };
        if entry.shape != expected {
            return bad(".shape", format!("{expected:?}"), format!("{:?}", entry.shape));
        }
        Ok(())
    }

    /// Checks that no file is missing that a set needs, and that features stand in one form only.
    fn check_groups(&self, path: &Path) -> Result<()> {
        let has = |name: &str| self.files.contains_key(name);
        let missing = |name: &str| {
            let (key, expected) = ("files".to_owned(), format!("an entry {name}"));
            Err(Error::Metadata { path: path.to_owned(), key, expected, found: "none".into() })
        };
        let is_needed = |need| need == Need::Always || need == Need::ForNodes && !self.is_graph_alone();
        if let Some(known) = KNOWN.iter().find(|known| is_needed(known.need) && !has(known.name)) {
            return missing(known.name);
        }
        let groups = [(&SPARSE[..], !self.is_graph_alone() && !has("features.npy")), (&NAMES[..], false)];
        for (group, is_needed) in groups {
            let n_there = group.iter().filter(|name| has(name)).count();
            if let Some(name) = group.iter().find(|name| !has(name))
                && (is_needed || n_there > 0)
            {
                return missing(if n_there == 0 { "features.npy" } else { name });
            }
        }
        if has("features.npy") && has(SPARSE[0]) {
            return Err(Error::Metadata {
                path: path.to_owned(),
                key: "files".into(),
                expected: format!("features.npy or {}", SPARSE[0]),
                found: "both".into(),
            });
        }
        Ok(())
    }

    /// An array that is there but not listed would be taken for part of the set by other readers.
    fn check_unlisted(&self, folder: &Path, path: &Path) -> Result<()> {
        let is_unlisted =
            |known: &&Known| !self.files.contains_key(known.name) && is_there(&folder.join(known.name));
        match KNOWN.iter().find(is_unlisted) {
            None => Ok(()),
            Some(Known { name, .. }) => Err(Error::Metadata {
                path: path.to_owned(),
                key: format!("files.{name}"),
                expected: "an entry, since the file is there".into(),
                found: "none".into(),
            }),
        }
    }
}

/// The bytes of a file; of a longer one than a manifest may be, one more than that.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_length(path: &Path, bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::Metadata {
            path: path.to_owned(),
            key: "its length".into(),
            expected: format!("at most {MAX_BYTES} bytes: give classes and edge types shorter names or none"),
            found: "more".into(),
        });
    }
    Ok(())
}

/// The names of the arrays that a set may have.
pub(super) fn file_names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.name)
}

/// Where the manifest of a folder would be.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join(FILE_NAME)
}

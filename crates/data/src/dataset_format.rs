use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use kiln_graph::open_file;
use kiln_store::Error as StoreError;
use kiln_store::paths::find;

use crate::limits::MEMORY_BYTES;
use crate::readers::{name_of, npy};
use crate::{Dataset, Error, Result, debian_packages, format, graphbolt, ogb};

/// The files of which one makes a folder of this kind.
const KILN: [&str; 1] = ["kiln.json"];
const GRAPHBOLT: [&str; 2] = ["metadata.yaml", "preprocessed/metadata.yaml"];
const NPY: [&str; 5] = ["indptr.npy", "edges.npy", "edges.csv", "edges.csv.gz", "src.npy"];

/// What to look for, for messages.
const LOOKED_FOR: &str = "looked for kiln.json (kiln), metadata.yaml (GraphBolt), raw/edge.csv.gz or \
    raw/data.npz (OGB), a file that ends in _A.txt (TU), indptr.npy, edges.npy, edges.csv, edges.csv.gz or \
    src.npy (.npy files), or for a text file that starts with numbers (GIN)";

/// More folders in a folder than this are not looked into for a hint.
const MAX_FOLDERS: usize = 100;

/// A format of data sets that open by path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DatasetFormat {
    /// A folder in kiln's own form: it has `kiln.json`.
    Kiln,
    /// A folder of `.npy` files, or with an edge list: it has `indptr.npy`, `edges.npy`, `edges.csv`,
    /// `edges.csv.gz` or `src.npy`.
    Npy,
    /// A folder for DGL GraphBolt: it has `metadata.yaml`.
    GraphBolt,
    /// A folder that OGB's library downloaded: `raw` in it has `edge.csv.gz` or `data.npz`.
    Ogb,
    /// A folder of the TU collection of graph classification sets: it has a file that ends in `_A.txt`
    /// or `_A.txt.gz`.
    Tu,
    /// A text file with graphs to classify, as the authors of GIN wrote them: it starts with numbers.
    Gin,
}

impl fmt::Display for DatasetFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kiln => "a kiln folder",
            Self::Npy => "a folder of .npy files",
            Self::GraphBolt => "a GraphBolt folder",
            Self::Ogb => "an OGB folder",
            Self::Tu => "a TU folder",
            Self::Gin => "a GIN file",
        })
    }
}

/// Detects a data set's format by the names of the folder's files; a folder that fits several formats is
/// of the first of kiln, GraphBolt, OGB, `.npy` with `indptr.npy`, TU, other `.npy`. Nothing but the start of a text file is read.
///
/// # Errors
/// [`kiln_store::Error::Io`] for a path that cannot be read, [`Error::Unrecognised`] for what is of no known kind; when
/// the folder above it or one in it is, the message says so.
pub fn detect_format(path: impl AsRef<Path>) -> Result<DatasetFormat> {
    let path = path.as_ref();
    let io = |source| StoreError::Io { path: path.to_owned(), source };
    let is_folder = fs::metadata(path).map_err(io)?.is_dir();
    let kind = if is_folder { kind_of_folder(path) } else { kind_of_file(path) }.map_err(io)?;
    kind.ok_or_else(|| {
        let hint = hint(path).map_or_else(String::new, |hint| format!("; {hint}"));
        Error::Unrecognised { path: path.to_owned(), looked_for: format!("{LOOKED_FOR}{hint}") }
    })
}

/// Opens a node classification set of any kind that [`detect_format`] tells, with compressed edge lists of at
/// most 1 GiB ([`open_within`]).
///
/// # Errors
/// Those of [`detect_format`] and of the kind's own reader; [`Error::WrongKind`] for graph classification sets.
pub fn open(path: impl AsRef<Path>) -> Result<Dataset> {
    open_within(path, MEMORY_BYTES)
}

/// Opens a node classification set, whose edges, where they are a compressed list (a name that ends in `.gz`), may take
/// `memory_bytes` as they are read: 8 an edge, and 4 more with a weight and 1 more with a type. Building the graph takes up to
/// twice as much again. [`convert`](crate::convert::convert()) needs no more memory than it is given.
///
/// # Errors
/// As [`open`]; [`Error::EdgeListTooLarge`] for a list that takes more.
pub fn open_within(path: impl AsRef<Path>, memory_bytes: u64) -> Result<Dataset> {
    let path = path.as_ref();
    match detect_format(path)? {
        DatasetFormat::Kiln => format::open(path),
        DatasetFormat::Npy => npy::open_within(path, memory_bytes),
        DatasetFormat::GraphBolt => graphbolt::read(path)?.read_within(memory_bytes),
        DatasetFormat::Ogb => ogb::read(path)?.read_within(memory_bytes),
        kind @ (DatasetFormat::Tu | DatasetFormat::Gin) => Err(kind.of_graphs(path)),
    }
}

impl Dataset {
    /// Opens a node classification set by name or path: `debian-packages`, which is built in, or what [`open`] opens.
    ///
    /// # Errors
    /// As [`open`].
    pub fn open(name_or_path: impl AsRef<Path>) -> Result<Self> {
        let path = name_or_path.as_ref();
        match path == Path::new("debian-packages") && !path.exists() {
            true => debian_packages(),
            false => open(path),
        }
    }
}

impl DatasetFormat {
    /// An error for a graph classification set where one for node classification is needed.
    pub(crate) fn of_graphs(self, path: &Path) -> Error {
        Error::WrongKind {
            path: path.to_owned(),
            kind: format!("{self} (graph classification)"),
            expected: "a node classification set",
        }
    }
}

fn kind_of_folder(folder: &Path) -> io::Result<Option<DatasetFormat>> {
    Ok(match () {
        () if find(folder, &KILN).is_some() => Some(DatasetFormat::Kiln),
        () if find(folder, &GRAPHBOLT).is_some() => Some(DatasetFormat::GraphBolt),
        () if ogb::is_one(folder) => Some(DatasetFormat::Ogb),
        // Any text file's name may end as those of TU do; no TU folder has this file.
        () if find(folder, &NPY[..1]).is_some() => Some(DatasetFormat::Npy),
        () if has_tu_edges(folder)? => Some(DatasetFormat::Tu),
        () if find(folder, &NPY).is_some() => Some(DatasetFormat::Npy),
        () => None,
    })
}

fn has_tu_edges(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with("_A.txt") || name.ends_with("_A.txt.gz") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A GIN file's first line is the number of graphs; the second, the first graph's number of nodes and class.
fn kind_of_file(path: &Path) -> io::Result<Option<DatasetFormat>> {
    const LONGEST: u64 = 4096;
    let mut start = BufReader::new(open_file(path)?.take(LONGEST));
    let mut numbers = || -> io::Result<Option<usize>> {
        let mut line = Vec::new();
        start.read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line);
        let n_words = line.split_whitespace().count();
        Ok(line.split_whitespace().all(|word| word.parse::<i64>().is_ok()).then_some(n_words))
    };
    Ok((numbers()? == Some(1) && numbers()? == Some(2)).then_some(DatasetFormat::Gin))
}

/// Whether a path is a folder whose files can be asked for: in others any file might be there.
fn can_enter(path: &Path) -> bool {
    path.join(".").is_dir()
}

/// Which folder near this path is a data set, if one is.
fn hint(path: &Path) -> Option<String> {
    let resolved = path.canonicalize().ok()?;
    let mut above = resolved.ancestors().skip(1).take(2);
    if let Some((folder, kind)) = above.find_map(|folder| Some((folder, kind_of_folder(folder).ok()??))) {
        return Some(format!("but it lies in {}, which is {kind}: open that", folder.display()));
    }
    let entries = fs::read_dir(path).ok()?.flatten().take(MAX_FOLDERS);
    let folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| can_enter(path)).collect();
    let kinds = folders.iter().map(|folder| Some((folder, kind_of_folder(folder).ok()??)));
    let mut found: Vec<(String, DatasetFormat)> =
        kinds.flatten().map(|(folder, kind)| (name_of(folder), kind)).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    match &found[..] {
        [] => None,
        [(name, kind)] => Some(format!("but {name} in it is {kind}: open that")),
        _ => {
            let all: Vec<String> = found.iter().map(|(name, kind)| format!("{name} ({kind})")).collect();
            Some(format!("but there are several sets in it, open one: {}", all.join(", ")))
        }
    }
}

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use kiln_graph::open_file;
use kiln_store::Error as StoreError;
use kiln_store::paths::{find, similar_path};

use crate::limits::MEMORY_BYTES;
use crate::readers::{name_of, npy};
use crate::{Dataset, DatasetLocation, DatasetName, Error, Result, format, graphbolt, ogb};
use crate::{GraphDataset, gin, locate, mutag, note_on_name, suggest_location, tu};

/// The file that identifies a folder in the kiln format. Any one of the files in the next two lists identifies a
/// GraphBolt folder or a folder of `.npy` files.
const KILN: [&str; 1] = ["kiln.json"];
const GRAPHBOLT: [&str; 2] = ["metadata.yaml", "preprocessed/metadata.yaml"];
const NPY: [&str; 5] = ["indptr.npy", "edges.npy", "edges.csv", "edges.csv.gz", "src.npy"];

/// The files that identify each format, as an error message lists them.
const LOOKED_FOR: &str = "looked for kiln.json (kiln), metadata.yaml (GraphBolt), raw/edge.csv.gz or \
    raw/data.npz (OGB), a file that ends in _A.txt (TU), indptr.npy, edges.npy, edges.csv, edges.csv.gz or \
    src.npy (.npy files), and for a text file that starts with numbers (GIN)";

/// The maximum number of subfolders that are searched for a data set to suggest in an error message.
const MAX_FOLDERS: usize = 100;

/// The format of a data set on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DatasetFormat {
    /// A folder in the kiln format: it contains `kiln.json`.
    Kiln,
    /// A folder of `.npy` files or with an edge list: it contains `indptr.npy`, `edges.npy`, `edges.csv`,
    /// `edges.csv.gz` or `src.npy`.
    Npy,
    /// A folder in the format of DGL GraphBolt: it contains `metadata.yaml`.
    GraphBolt,
    /// A folder that OGB's library downloaded: its folder `raw` contains, for example, `edge.csv.gz` or `data.npz`.
    Ogb,
    /// A folder of many graphs that OGB's library downloaded: its folder `raw` contains `graph-label.csv.gz`.
    OgbGraphs,
    /// A folder of the TU collection of graph classification sets: it contains a file whose name ends in `_A.txt` or
    /// `_A.txt.gz`.
    Tu,
    /// A text file of graphs for classification, in the format of the GIN paper: it starts with numbers.
    Gin,
}

impl fmt::Display for DatasetFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kiln => "a kiln folder",
            Self::Npy => "a folder of .npy files",
            Self::GraphBolt => "a GraphBolt folder",
            Self::Ogb => "an OGB folder",
            Self::OgbGraphs => "an OGB folder of graphs",
            Self::Tu => "a TU folder",
            Self::Gin => "a GIN file",
        })
    }
}

/// Detects the format of a data set from the names of the files in a folder, or from the beginning of a single file. If
/// a folder fits several formats, the first of these is returned: kiln, GraphBolt, OGB, `.npy` with `indptr.npy`, TU,
/// other `.npy`.
///
/// # Errors
/// Returns [`kiln_store::Error::Io`] if the path cannot be read and [`Error::Unrecognised`] if its format is not
/// known. The message names a data set in a parent folder or a subfolder, if there is one.
pub fn detect_format(path: impl AsRef<Path>) -> Result<DatasetFormat> {
    let path = path.as_ref();
    let io = |source| StoreError::Io { path: path.to_owned(), source };
    let is_folder = fs::metadata(path).map_err(|error| io(suggest_name(path, error)))?.is_dir();
    let kind = if is_folder { kind_of_folder(path) } else { kind_of_file(path) }.map_err(io)?;
    kind.ok_or_else(|| {
        let note = note_on_name(path).map(|note| note.to_string());
        let hints = hint(path).into_iter().chain(note).map(|hint| format!("; {hint}")).collect::<String>();
        Error::Unrecognised { path: path.to_owned(), looked_for: format!("{LOOKED_FOR}{hints}") }
    })
}

/// Adds the name of a dataset to the error of a path that does not exist, if it is similar and no path is.
fn suggest_name(path: &Path, error: io::Error) -> io::Error {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    match is_missing && similar_path(path).is_none() {
        true => io::Error::new(error.kind(), format!("{error}{}", suggest_location(path))),
        false => error,
    }
}

/// Opens a set for tasks on nodes and links, homogeneous or heterogeneous, of any format that [`detect_format`] knows. A
/// compressed edge list may take at most 1 GiB of memory; [`open_within`] sets another limit.
///
/// # Errors
/// Returns the errors of [`detect_format`] and of the format's reader, and [`Error::WrongKind`] for a graph
/// classification set.
pub fn open(path: impl AsRef<Path>) -> Result<Dataset> {
    open_within(path, MEMORY_BYTES)
}

/// Opens a set as [`open`] does, with a memory limit for compressed edge lists (files whose names end in `.gz`), and for the
/// nodes of heterogeneous sets whose number no file confirms.
/// While such a list is read, an edge takes 8 bytes, 4 more with a weight and 1 more with a type. Building the graph
/// then takes up to twice as much memory as the list, beside the list. [`convert`](crate::convert::convert()) takes no
/// more memory than its limit.
///
/// # Errors
/// Returns the errors of [`open`], and [`Error::EdgeListTooLarge`] if a compressed list exceeds `memory_bytes`.
pub fn open_within(path: impl AsRef<Path>, memory_bytes: u64) -> Result<Dataset> {
    let path = path.as_ref();
    match detect_format(path)? {
        DatasetFormat::Kiln => format::open(path),
        DatasetFormat::Npy => npy::open_within(path, memory_bytes),
        DatasetFormat::GraphBolt => graphbolt::open_within(path, memory_bytes),
        DatasetFormat::Ogb => ogb::open_within(path, memory_bytes),
        kind @ (DatasetFormat::Tu | DatasetFormat::Gin | DatasetFormat::OgbGraphs) => {
            Err(kind.of_graphs(path))
        }
    }
}

/// Returns true if a name or path is a heterogeneous set: a kiln folder whose manifest has node types, or a GraphBolt or OGB
/// folder with several node types or edge types. Only the manifest or the metadata is read. Of the names of
/// [`DatasetName`], `debian-archive` is one; see [`locate`].
///
/// # Errors
/// Returns the errors of [`detect_format`], and those of reading the metadata of a GraphBolt folder.
pub fn is_heterogeneous(name_or_path: impl AsRef<Path>) -> Result<bool> {
    let path = name_or_path.as_ref();
    if let DatasetLocation::Name(name) = locate(path) {
        return Ok(name == DatasetName::DebianArchive);
    }
    match detect_format(path)? {
        DatasetFormat::Kiln => Ok(format::is_heterogeneous(path)),
        DatasetFormat::GraphBolt => graphbolt::has_types(path),
        DatasetFormat::Ogb => Ok(ogb::has_types(path)),
        _ => Ok(false),
    }
}

impl Dataset {
    /// Opens a set for tasks on nodes and links, homogeneous or heterogeneous, by name or path: a set of [`DatasetName`],
    /// synthetic ones with the seed 0, or a path that [`open`] opens. A file or folder with the name of a set takes
    /// precedence, with a note; see [`locate`].
    ///
    /// ```
    /// use kiln_data::Dataset;
    /// assert!(!Dataset::open("sbm")?.is_heterogeneous());
    /// assert!(Dataset::open("debian-archive")?.is_heterogeneous());
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`open`] and [`DatasetName::open`].
    pub fn open(name_or_path: impl AsRef<Path>) -> Result<Self> {
        open_location(name_or_path.as_ref(), MEMORY_BYTES)
    }
}

/// Opens a set as [`Dataset::open`] does, with another memory limit.
pub(crate) fn open_location(name_or_path: &Path, memory_bytes: u64) -> Result<Dataset> {
    match locate(name_or_path) {
        DatasetLocation::Name(name) => name.open(0),
        DatasetLocation::Path(path) => {
            let mut data = open_within(&path, memory_bytes)?;
            data.notes.extend(note_on_name(&path));
            Ok(data)
        }
    }
}

impl GraphDataset {
    /// Opens a graph classification set by name or path: the built-in set `mutag`, a GIN file, a folder of the TU
    /// collection, or an OGB folder of graphs, without its split. A file or folder with the name of a set takes precedence,
    /// with a note; see [`locate`].
    ///
    /// ```
    /// # use kiln_data::GraphDataset;
    /// let graphs = GraphDataset::open("mutag")?;
    /// assert_eq!((graphs.n_graphs(), graphs.class_names.len()), (188, 2));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`detect_format`] and of the format's reader, and [`Error::WrongKind`] for a node
    /// classification set.
    pub fn open(name_or_path: impl AsRef<Path>) -> Result<Self> {
        let expected = "a graph classification set";
        let path = match locate(name_or_path) {
            DatasetLocation::Name(DatasetName::Mutag) => return mutag(),
            DatasetLocation::Name(name) => return Err(name.wrong_kind(expected)),
            DatasetLocation::Path(path) => path,
        };
        let mut data = match detect_format(&path)? {
            DatasetFormat::Gin => gin::read(&path)?,
            DatasetFormat::Tu => tu::read(&path)?,
            DatasetFormat::OgbGraphs => ogb::open_graphs(&path)?.0,
            kind => {
                let kind = format!("{kind} (node classification)");
                return Err(Error::WrongKind { path, kind, expected });
            }
        };
        data.notes.extend(note_on_name(&path));
        Ok(data)
    }
}

impl DatasetFormat {
    /// Returns the error for a graph classification set where a node classification set is needed.
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
        () if ogb::has_graphs(folder) => Some(DatasetFormat::OgbGraphs),
        () if ogb::is_one(folder) => Some(DatasetFormat::Ogb),
        // The name of any text file may end in `_A.txt`, but no TU folder contains `indptr.npy`.
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

/// Detects a GIN file: its first line is the number of graphs, its second the first graph's number of nodes and class.
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

/// Returns true if the path is a folder in which this process may look up files. In other folders, a failed look-up
/// does not prove that a file is absent.
fn can_enter(path: &Path) -> bool {
    path.join(".").is_dir()
}

/// Returns advice for the error message if the parent folder, its parent, or a subfolder is a data set.
fn hint(path: &Path) -> Option<String> {
    if ["part.json", "part0/part.json"].into_iter().any(|file| path.join(file).is_file()) {
        return Some(
            "but it has partitions: give their folder to --parts of `kiln train` and `kiln predict` \
            (`PartitionedGraph::open`), or the set that was partitioned to --data"
                .to_owned(),
        );
    }
    let resolved = path.canonicalize().ok()?;
    let mut above = resolved.ancestors().skip(1).take(2);
    if let Some((folder, kind)) = above.find_map(|folder| Some((folder, kind_of_folder(folder).ok()??))) {
        return Some(format!("but it is inside {}, which is {kind}: open that", folder.display()));
    }
    let entries = fs::read_dir(path).ok()?.flatten().take(MAX_FOLDERS);
    let folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| can_enter(path)).collect();
    let kinds = folders.iter().map(|folder| Some((folder, kind_of_folder(folder).ok()??)));
    let mut found: Vec<(String, DatasetFormat)> =
        kinds.flatten().map(|(folder, kind)| (name_of(folder), kind)).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    match &found[..] {
        [] => None,
        [(name, kind)] => Some(format!("but its subfolder {name} is {kind}: open that")),
        _ => {
            let all: Vec<String> = found.iter().map(|(name, kind)| format!("{name} ({kind})")).collect();
            Some(format!("but it contains several data sets, open one: {}", all.join(", ")))
        }
    }
}

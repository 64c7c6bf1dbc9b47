use std::path::{Path, PathBuf};

use kiln_graph::{Csc, CscBuilder, EdgeColumns, Links};
use kiln_store::Error as StoreError;
use kiln_store::paths::{find, is_there, required};
use kiln_store::progress::{Progress, ProgressUnit};
use kiln_store::text::is_gz;
use kiln_store::{ArrayFile, check_count};

use super::arrays::EdgeArrays;
use super::columns::ColumnArray;
use super::source::{ColumnFormat, EdgeChunk, EdgeSource};
use super::table::EdgeTable;
use crate::{Error, Note, Result};

/// The files that may contain an edge list, for error messages.
const EDGE_FILES: &str = "edges.npy, src.npy and dst.npy, edges.csv or edges.csv.gz";

/// An edge list in files, with the columns in arrays beside it.
pub(crate) struct EdgeList {
    /// The file with the node ids.
    path: PathBuf,
    edges: Box<dyn EdgeSource>,
    /// The columns in arrays beside the list.
    arrays: Vec<ColumnArray>,
    /// The number of edges, if it is known without reading the list.
    n_edges: Option<usize>,
    /// The expected number of edges, and the file that states it.
    n_stated: Option<(PathBuf, u64)>,
    heap_bytes: u64,
    pub(crate) notes: Vec<Note>,
}

impl EdgeList {
    /// Opens the edge list of a folder with the columns in arrays beside it. Returns `None` if the folder has no edge list.
    pub(crate) fn in_folder(folder: &Path) -> Result<Option<Self>> {
        let there: Vec<PathBuf> = ["edges.npy", "src.npy", "dst.npy", "edges.csv", "edges.csv.gz"]
            .iter()
            .filter_map(|name| find(folder, &[name]))
            .collect();
        let Some(first) = there.first() else {
            return Ok(None);
        };
        let is_pair = |path: &Path| path.ends_with("src.npy") || path.ends_with("dst.npy");
        let mut list = match is_pair(first) {
            true => Self::of_pair(folder)?,
            false => Self::of_file(first)?,
        };
        let is_aside = |path: &&PathBuf| *path != first && !(is_pair(first) && is_pair(path));
        for aside in there.iter().filter(is_aside) {
            let (aside, first) = (aside.display(), first.display());
            list.notes.push(Note::Other(format!("{aside} is ignored: the edges are read from {first}")));
        }
        list.arrays = ColumnArray::open_all(folder, &mut list.notes)?;
        let has_weights = list.edges.columns().contains(&ColumnFormat::weights());
        let weights = list.arrays.iter().find(|array| array.format == ColumnFormat::weights());
        if let Some(weights) = weights.filter(|_| has_weights) {
            return Err(StoreError::Metadata {
                path: list.path.clone(),
                key: "a further column".into(),
                expected: format!("none, since {} has the weights", weights.path().display()),
                found: "a weight".into(),
            }
            .into());
        }
        Ok(Some(list))
    }

    /// Opens the edge list in a single file, whose format is determined by the end of its name.
    pub(crate) fn of_file(path: &Path) -> Result<Self> {
        let mut notes = Vec::new();
        let name = path.to_string_lossy();
        let list = if name.ends_with(".npy") {
            Self::of_arrays(path, EdgeArrays::of_matrix(ArrayFile::open_in_any_order(path)?, &mut notes)?)
        } else if name.ends_with(".csv") || name.ends_with(".csv.gz") {
            let table = EdgeTable::open(path, &mut notes)?;
            if table.has_unnamed_weights() {
                let path = path.display();
                notes.push(Note::Other(format!(
                    "{path} has no header: its third column is read as the weights of the edges"
                )));
            }
            Self::new(path, Box::new(table))
        } else {
            let looked_for =
                "expected a folder, or an edge list whose name ends in .npy, .csv or .csv.gz".into();
            return Err(Error::Unrecognised { path: path.to_owned(), looked_for });
        };
        Ok(Self { notes, ..list })
    }

    /// Opens the edge list in an array `[2, n_edges]`, row-major or column-major.
    pub(crate) fn of_rows(array: ArrayFile) -> Result<Self> {
        let (path, heap_bytes) = (array.path().to_owned(), array.heap_bytes());
        Ok(Self { heap_bytes, ..Self::of_arrays(&path, EdgeArrays::of_rows(array)?) })
    }

    /// Opens the edge list in a text file of two columns without a header. If the number of edges differs from
    /// `n_stated`, reading fails at the end of the list.
    pub(crate) fn of_pairs(path: &Path, n_stated: Option<(PathBuf, u64)>) -> Result<Self> {
        Ok(Self { n_stated, ..Self::new(path, Box::new(EdgeTable::of_pairs(path)?)) })
    }

    /// Returns the list with these columns of its edges.
    pub(crate) fn with_columns(self, arrays: Vec<ColumnArray>) -> Self {
        Self { arrays, ..self }
    }

    fn of_arrays(path: &Path, arrays: EdgeArrays) -> Self {
        Self { n_edges: Some(arrays.n_edges()), ..Self::new(path, Box::new(arrays)) }
    }

    fn new(path: &Path, edges: Box<dyn EdgeSource>) -> Self {
        Self {
            path: path.to_owned(),
            edges,
            arrays: Vec::new(),
            n_edges: None,
            n_stated: None,
            heap_bytes: 0,
            notes: Vec::new(),
        }
    }

    fn of_pair(folder: &Path) -> Result<Self> {
        let array = |name: &str, what: &str| ArrayFile::open(required(folder, &[name], what)?);
        let srcs = array("src.npy", "the source of each edge")?;
        let dsts = array("dst.npy", "the destination of each edge")?;
        let path = srcs.path().to_owned();
        Ok(Self::of_arrays(&path, EdgeArrays::of_pair(srcs, dsts)?))
    }

    /// Returns the number of edges, if it is known without reading the list.
    pub(crate) fn n_edges(&self) -> Option<usize> {
        self.n_edges
    }

    /// Returns the number of bytes that the list holds on the heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// Reads the list and returns the largest id plus 1. This is the number of nodes if no option or file states it.
    pub(crate) fn count_nodes(&self) -> Result<usize> {
        let mut n_nodes = 0;
        let progress = self.start("counting nodes");
        self.edges.for_each_chunk(u32::MAX as usize, &mut |chunk| {
            let largest = chunk.srcs.iter().chain(&chunk.dsts).max();
            n_nodes = n_nodes.max(largest.map_or(0, |&id| id as usize + 1));
            progress.advance(chunk.len() as u64);
            Ok(())
        })?;
        Ok(n_nodes)
    }

    /// Builds the graph in memory and adds a note that recommends a conversion. `memory_bytes` is the limit of
    /// [`Self::read`].
    pub(crate) fn build_noted(self, n_nodes: usize, memory_bytes: u64, notes: &mut Vec<Note>) -> Result<Csc> {
        let graph = self.build(CscBuilder::new(n_nodes), n_nodes, memory_bytes, notes)?;
        notes.extend(self.notes);
        let to = "a graph in memory: convert the folder once (kiln data convert) to have it mapped";
        let from = format!("{} edges of a list", graph.n_edges());
        notes.push(Note::Converted { path: self.path, from, to: to.into() });
        Ok(graph)
    }

    /// Builds the graph of the edges with `builder`, which must be for `n_nodes` nodes. `memory_bytes` is the limit of
    /// [`Self::read`]. Notes on the arrays of columns are added to `notes`.
    pub(crate) fn build(
        &self,
        builder: CscBuilder<'_>,
        n_nodes: usize,
        memory_bytes: u64,
        notes: &mut Vec<Note>,
    ) -> Result<Csc> {
        let all = self.read(n_nodes, memory_bytes)?;
        let columns = self.columns_of(&all, notes)?;
        let progress = Progress::start("sorting edges", ProgressUnit::Edges, all.len() as u64);
        let graph = builder.columns(columns).build(&all.srcs, &all.dsts)?;
        progress.advance(all.len() as u64);
        Ok(graph)
    }

    /// Returns the columns of all edges, in the order of the list, with those of the arrays beside it.
    pub(crate) fn columns_of(&self, all: &EdgeChunk, notes: &mut Vec<Note>) -> Result<EdgeColumns> {
        let mut columns = EdgeColumns::default();
        for (format, bytes) in self.edges.columns().iter().zip(&all.columns) {
            columns = columns.with(&format.name, format.column_of(bytes)?)?;
        }
        for array in &self.arrays {
            columns = columns.with(&array.format.name, array.column(notes)?)?;
        }
        Ok(columns)
    }

    /// Begins a stage of progress in which all edges are read.
    fn start(&self, stage: &str) -> Progress {
        Progress::start(stage, ProgressUnit::Edges, self.n_edges.map(|n_edges| n_edges as u64))
    }

    /// Returns the path of the file with the node ids.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all edges into memory, with the columns of the list, without those of the arrays beside it, whose lengths are
    /// checked. The edges of a compressed list may take at most `memory_bytes` while they are read, since a few compressed
    /// bytes can contain any number of edges.
    pub(crate) fn read(&self, n_nodes: usize, memory_bytes: u64) -> Result<EdgeChunk> {
        let formats = self.edges.columns();
        let edge_bytes = 8 + formats.iter().map(ColumnFormat::row_bytes).sum::<usize>() as u64;
        let most_edges = if is_gz(&self.path) { memory_bytes / edge_bytes } else { u64::MAX };
        let n_edges = self.n_edges.unwrap_or(0);
        let mut all = EdgeChunk::of_columns(formats.len());
        for ends in [&mut all.srcs, &mut all.dsts] {
            ends.try_reserve_exact(n_edges).map_err(|_| StoreError::OutOfMemory {
                what: format!("the {n_edges} edges of {}", self.path.display()),
            })?;
        }
        let progress = self.start("reading edges");
        self.edges.for_each_chunk(n_nodes, &mut |chunk| {
            progress.advance(chunk.len() as u64);
            if most_edges < (all.len() + chunk.len()) as u64 {
                let (path, n_edges) = (self.path.clone(), most_edges);
                return Err(Error::EdgeListTooLarge { path, n_edges, budget_bytes: memory_bytes });
            }
            all.srcs.append(&mut chunk.srcs);
            all.dsts.append(&mut chunk.dsts);
            for (column, rows) in all.columns.iter_mut().zip(&mut chunk.columns) {
                column.append(rows);
            }
            Ok(())
        })?;
        self.check_lengths(all.len())?;
        Ok(all)
    }

    /// Checks that the arrays and the stated number of edges agree with the number of edges of the list.
    fn check_lengths(&self, n_edges: usize) -> Result<()> {
        for array in &self.arrays {
            check_count(array.path(), array.count(), n_edges, array.n_rows())?;
        }
        if let Some((path, n_stated)) = &self.n_stated {
            check_count(path, "the number of edges", n_edges, *n_stated as usize)?;
        }
        Ok(())
    }
}

impl EdgeSource for EdgeList {
    fn columns(&self) -> Vec<ColumnFormat> {
        let mut columns = self.edges.columns();
        columns.extend(self.arrays.iter().map(|array| array.format.clone()));
        columns
    }

    fn for_each_chunk(
        &self,
        n_nodes: usize,
        visit: &mut dyn FnMut(&mut EdgeChunk) -> Result<()>,
    ) -> Result<()> {
        let n_columns = self.edges.columns().len();
        let mut n_before = 0;
        self.edges.for_each_chunk(n_nodes, &mut |chunk| {
            let edges = n_before..n_before + chunk.len();
            n_before = edges.end;
            // The number of edges of a text file is known only at its end. If an array is too short, the remaining edges are
            // only counted, because the error message states the number of all edges.
            if self.arrays.iter().any(|array| array.n_rows() < edges.end) {
                return Ok(());
            }
            chunk.columns.resize_with(n_columns + self.arrays.len(), Vec::new);
            for (array, rows) in self.arrays.iter().zip(&mut chunk.columns[n_columns..]) {
                rows.clear();
                array.push_rows(edges.clone(), rows)?;
            }
            visit(chunk)
        })?;
        self.check_lengths(n_before)
    }

    fn check_unchanged(&self) -> Result<()> {
        self.edges.check_unchanged()?;
        self.arrays.iter().try_for_each(ColumnArray::check_unchanged)
    }
}

/// Reads links from an array `[n_links, 2]` or `[2, n_links]` of integers, row-major or column-major.
pub(crate) fn read_links(array: ArrayFile, n_nodes: usize, notes: &mut Vec<Note>) -> Result<Links> {
    let path = array.path().to_owned();
    collect_links(&EdgeArrays::of_links(array, notes)?, &path, n_nodes)
}

/// Reads pairs of nodes, as links, from a `.npy` array `[n, 2]` or `[2, n]` of integers (`[2, 2]` is read as the first),
/// or from a text file with a source and a destination per line, separated by a comma, which may begin with a header that
/// names them (in any order, such as `dst,src`). All ids must be below `n_nodes`. Pairs may repeat. Notes on the reading, such
/// as the columns that a header names, are added to `notes`.
///
/// # Errors
/// Returns [`Error::Unsupported`] for a third column, [`kiln_store::Error::BadLine`] or [`kiln_store::Error::BadValue`]
/// for an id that is no whole number below `n_nodes`, and the errors of reading the file.
pub fn read_pairs(path: impl AsRef<Path>, n_nodes: usize, notes: &mut Vec<Note>) -> Result<Links> {
    let path = path.as_ref();
    if path.extension().is_some_and(|extension| extension == "npy") {
        return read_links(ArrayFile::open_in_any_order(path)?, n_nodes, notes);
    }
    let table = EdgeTable::open(path, notes)?;
    if !table.columns().is_empty() {
        let what = "a third column".into();
        let instead = "keep the columns of the sources and the destinations".into();
        return Err(Error::Unsupported { path: path.to_owned(), what, instead });
    }
    collect_links(&table, path, n_nodes)
}

fn collect_links(edges: &dyn EdgeSource, path: &Path, n_nodes: usize) -> Result<Links> {
    let (mut srcs, mut dsts) = (Vec::new(), Vec::new());
    edges.for_each_chunk(n_nodes, &mut |chunk| {
        for (all, nodes) in [(&mut srcs, &chunk.srcs), (&mut dsts, &chunk.dsts)] {
            all.try_reserve(nodes.len())
                .map_err(|_| StoreError::OutOfMemory { what: format!("the links of {}", path.display()) })?;
            all.extend_from_slice(nodes);
        }
        Ok(())
    })?;
    Ok(Links::new(srcs, dsts)?)
}

/// Opens the edge list of a folder. Returns `None` if the folder has a graph in CSC order.
pub(crate) fn edge_list_of(folder: &Path) -> Result<Option<EdgeList>> {
    if is_there(&folder.join("indptr.npy")) {
        return Ok(None);
    }
    match EdgeList::in_folder(folder)? {
        Some(list) => Ok(Some(list)),
        None => {
            let expected = format!("indptr.npy (where each node's in-edges start) and no {EDGE_FILES}");
            Err(StoreError::Missing { folder: folder.to_owned(), expected }.into())
        }
    }
}

//! From edge lists and folders of arrays to [kiln's own form](crate::format), within a given memory.
//!
//! [`convert()`] takes a folder or a file; [`write_graph`] takes the edges of any [`EdgeSource`]. Neither
//! needs the edges to fit the memory. The graph is the one that [`CscBuilder`] builds of the same list, to
//! the byte.
//!
//! # Memory
//! The heap holds at most [`ConvertOptions::memory_bytes`]:
//!
//! | what | bytes |
//! |---|---|
//! | where each node's edges end | 8 a node |
//! | before that, labels and split of GraphBolt and OGB folders | 16 a node |
//! | edges, and then features, of an OGB folder of archives | all of the array |
//! | one bucket of edges, or the buffers of the buckets' files | what is left |
//! | chunks and buffers | 499,712 |
//!
//! What is left must be 4096 bytes, and hold the edges into the node that has most: 4 bytes each, with
//! weights or types 8, and 4 more for weights and 1 more for types.
//!
//! Files that are read are mapped: their pages belong to the system, which takes them back when it needs
//! them. On the disk, next to the finished set, the buckets take up to 8 bytes an edge and its data.
//!
//! [`CscBuilder`]: kiln_graph::CscBuilder

mod buckets;
mod rest;
mod sorting;

use std::path::Path;

use kiln_graph::{Duplicates, SelfLoops};
use kiln_store::array_folder::{Entries, FolderWriter};
use kiln_store::paths::is_there;
use kiln_store::{check_count, io_error};

use self::buckets::{FIXED_BYTES, LEAST_ROOM, Written, write_csc};
use self::rest::{Sizes, check_memory, copy_graph, copy_rest, copy_stored, n_nodes_of, refuse_options};
use crate::edges::{EdgeList, edge_list_of};
use crate::format::manifest::{self, Manifest};
use crate::limits::{MEMORY_BYTES, check_node_count};
use crate::readers::name_of;
use crate::readers::npy::note_left_aside;
use crate::readers::stored::Stored;
use crate::{DatasetFormat, Error, Note, Result, detect_format, format, graphbolt, ogb};

pub use kiln_store::parse_bytes;

pub use crate::edges::{EdgeChunk, EdgeData, EdgeSource};

/// Most bucket files that are open at a time.
const MOST_OPEN_FILES: u64 = 256;

/// The options of a conversion: the graph to make of an edge list, and the memory that it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvertOptions {
    /// The most bytes of heap; see [the table](self).
    pub memory_bytes: u64,
    /// Number of nodes; `None` for the number of labels or feature rows, and where there are none, one more
    /// than the largest id.
    pub n_nodes: Option<usize>,
    /// Whether to add the reverse of each edge, with its weight and type; self loops are not doubled.
    pub symmetrize: bool,
    /// What to do with parallel edges.
    pub duplicates: Duplicates,
    /// What to do with self loops.
    pub self_loops: SelfLoops,
}

impl Default for ConvertOptions {
    /// 1 GiB, and the edges as they are.
    fn default() -> Self {
        Self {
            memory_bytes: MEMORY_BYTES,
            n_nodes: None,
            symmetrize: false,
            duplicates: Duplicates::Keep,
            self_loops: SelfLoops::Keep,
        }
    }
}

/// The report of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertReport {
    /// Number of nodes.
    pub n_nodes: usize,
    /// Number of edges that were read.
    pub n_coo_edges: u64,
    /// Number of edges of the graph.
    pub n_edges: usize,
    /// How many buckets the edges were sorted in; 0 for edges that were in CSC order.
    pub n_buckets: usize,
    /// How often the edge list was read, once it was known how many nodes there are: once to count, then
    /// once for each 256 buckets, or fewer where the memory holds no buffers for as many files, or the system
    /// lets fewer be open.
    pub n_readings: usize,
    /// What the user should know.
    pub notes: Vec<Note>,
}

/// Converts a folder or an edge list to a new folder in kiln's form, as [`format::write`] writes it.
///
/// `input` may be
///
/// - a folder that [`npy::open`](crate::npy::open) opens. With `edges.npy`, `src.npy` and `dst.npy`,
///   `edges.csv` or `edges.csv.gz` in place of `indptr.npy` and `indices.npy`, the edges are sorted;
///   otherwise they are copied in their order;
/// - such a folder with edges alone, without features, labels and split: the set is then a graph alone,
///   which [`format::open_graph`] opens;
/// - an edge list alone: a file that ends in `.npy`, `.csv` or `.csv.gz`;
/// - a folder that [`graphbolt::open`] or [`ogb::open`] opens. Its edges are sorted, with the reverse of each
///   where OGB's library adds it; text is read line by line, and the arrays of OGB's archives are read whole;
/// - a folder in kiln's form, which is copied once each file was found to have the SHA-256 of its manifest.
///
/// Without options the bytes are those of [`format::write`] for the set that [`open`](crate::open) gives.
///
/// `edges.npy` is `[2, n_edges]` or `[n_edges, 2]` in any order, `src.npy` and `dst.npy` are `[n_edges]`, all
/// of integers. A text file has a source, a destination and perhaps a weight in each line; a first line
/// of names, which start with a letter or `_`, is skipped. `weights.npy` (`f32`) and `edge_types.npy` (`u8`)
/// beside an edge list are in its order.
///
/// # Errors
/// [`kiln_store::Error::NotEmpty`] for an output that exists and is not an empty folder, before any work;
/// [`Error::Memory`] for a memory that is too small, with the least that would do;
/// [`kiln_store::Error::Missing`] and [`Error::Unrecognised`] for an input that is no data set, [`Error::WrongKind`] for
/// graphs to classify; [`kiln_store::Error::BadValue`], [`kiln_store::Error::BadLine`], [`kiln_store::Error::Npy`], [`kiln_store::Error::Inconsistent`],
/// [`kiln_store::Error::Metadata`], [`Error::Unsupported`], [`kiln_store::Error::HashMismatch`] and [`kiln_store::Error::Io`] for what is wrong in
/// it. Nothing is left behind.
pub fn convert(
    input: impl AsRef<Path>,
    out: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    let (input, out) = (input.as_ref(), out.as_ref());
    match detect_format(input) {
        Ok(DatasetFormat::GraphBolt) => return convert_stored(input, graphbolt::read, out, options),
        Ok(DatasetFormat::Ogb) => return convert_stored(input, ogb::read, out, options),
        Ok(kind @ (DatasetFormat::Tu | DatasetFormat::Gin)) => return Err(kind.of_graphs(input)),
        // What is no data set may be edges alone.
        Ok(DatasetFormat::Kiln | DatasetFormat::Npy) | Err(_) => {}
    }
    let about = std::fs::metadata(input).map_err(io_error(input))?;
    if !about.is_dir() {
        let list = EdgeList::of_file(input)?;
        let mut set = FolderWriter::create(out)?;
        let n_nodes = count_nodes(&list, None, options)?;
        let written = write_csc(&list, 0, n_nodes, options, &mut set)?;
        let notes = list.notes;
        return commit(set, name_of_file(input), n_nodes, written, Sizes::default(), notes);
    }
    if is_there(&manifest::path_in(input)) {
        refuse_options(options.keeps_edges())?;
        let [n_nodes, n_edges] = format::copy(input, out)?;
        let written = Written { n_coo_edges: n_edges as u64, n_edges, ..Written::default() };
        return Ok(converted(n_nodes, written, Vec::new()));
    }
    let mut set = FolderWriter::create(out)?;
    let mut notes = Vec::new();
    note_left_aside(input, &mut notes);
    let Some(list) = edge_list_of(input)? else {
        refuse_options(options.keeps_edges())?;
        let [n_nodes, n_edges] = copy_graph(input, &mut set)?;
        let sizes = copy_rest(input, n_nodes, &mut set, &mut notes)?;
        let written = Written { n_coo_edges: n_edges as u64, n_edges, ..Written::default() };
        return commit(set, name_of(input), n_nodes, written, sizes, notes);
    };
    notes.extend(list.notes.iter().cloned());
    let n_nodes = count_nodes(&list, n_nodes_of(input)?, options)?;
    let sizes = copy_rest(input, n_nodes, &mut set, &mut notes)?;
    let written = write_csc(&list, 0, n_nodes, options, &mut set)?;
    commit(set, name_of(input), n_nodes, written, sizes, notes)
}

/// Converts a folder of another library: what is small first, which is then forgotten, then the edges, then
/// the features.
fn convert_stored(
    folder: &Path,
    read: impl Fn(&Path) -> Result<Stored>,
    out: &Path,
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    let mut set = FolderWriter::create(out)?;
    let Stored { name, labels, split, features, edges, mut notes } = read(folder)?;
    // That an array is converted on the way to the disk is no news.
    notes.retain(|note| !matches!(note, Note::Converted { .. }));
    if options.symmetrize {
        notes.retain(|note| !matches!(note, Note::ReverseEdgesNotAdded { .. }));
    }
    let (n_nodes, n_classes, budget_bytes) = (labels.len(), labels.n_classes(), options.memory_bytes);
    check_count(folder, "the number of nodes", options.n_nodes.unwrap_or(n_nodes), n_nodes)?;
    let needed_bytes = FIXED_BYTES + 16 * n_nodes as u64 + LEAST_ROOM;
    if budget_bytes < needed_bytes {
        let what = format!("reading labels and split of {n_nodes} nodes");
        return Err(Error::Memory { what, needed_bytes, budget_bytes });
    }
    check_memory(&features, budget_bytes)?;
    check_memory(&edges.source, budget_bytes)?;
    format::write_labels(&mut set, &labels, &split)?;
    drop((labels, split));
    let options = ConvertOptions { symmetrize: options.symmetrize || edges.is_symmetrized, ..*options };
    let list = edges.open()?;
    let written = write_csc(&list, list.heap_bytes(), n_nodes, &options, &mut set)?;
    drop(list);
    let dim = copy_stored(&features, n_nodes, &mut set)?;
    commit(set, name, n_nodes, written, Sizes { dim: Some(dim), n_classes: Some(n_classes) }, notes)
}

/// Writes the edges of any source as a graph alone in kiln's form, for [`format::open_graph`]. It has
/// `n_nodes` nodes, whatever the options say.
///
/// # Errors
/// As [`convert()`], and those of the source.
pub fn write_graph(
    source: &dyn EdgeSource,
    n_nodes: usize,
    name: &str,
    out: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    let mut set = FolderWriter::create(out.as_ref())?;
    check_node_count(n_nodes)?;
    let written = write_csc(source, 0, n_nodes, options, &mut set)?;
    commit(set, name.to_owned(), n_nodes, written, Sizes::default(), Vec::new())
}

impl ConvertOptions {
    /// Whether nothing is asked of the edges.
    fn keeps_edges(&self) -> bool {
        *self == Self { memory_bytes: self.memory_bytes, ..Self::default() }
    }
}

/// The number of nodes of an edge list, of which `n_rows` have labels or features.
fn count_nodes(list: &EdgeList, n_rows: Option<usize>, options: &ConvertOptions) -> Result<usize> {
    let n_nodes = match options.n_nodes.or(n_rows) {
        Some(n_nodes) => n_nodes,
        None => list.count_nodes()?,
    };
    check_node_count(n_nodes)?;
    Ok(n_nodes)
}

/// `edges` for `edges.csv.gz`.
fn name_of_file(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let ends = [".npy", ".csv.gz", ".csv"];
    ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned()
}

fn commit(
    set: FolderWriter,
    name: String,
    n_nodes: usize,
    written: Written,
    sizes: Sizes,
    notes: Vec<Note>,
) -> Result<ConvertReport> {
    let manifest = Manifest {
        format: manifest::VERSION,
        name,
        n_nodes,
        n_edges: written.n_edges,
        dim: sizes.dim,
        n_classes: sizes.n_classes,
        // Classes that are numbered need no names: a single label must not take all memory.
        class_names: Vec::new(),
        edge_type_names: Vec::new(),
        files: Entries::new(),
    };
    manifest.commit(set)?;
    Ok(converted(n_nodes, written, notes))
}

fn converted(n_nodes: usize, written: Written, notes: Vec<Note>) -> ConvertReport {
    let Written { n_coo_edges, n_edges, n_buckets, n_readings } = written;
    ConvertReport { n_nodes, n_coo_edges, n_edges, n_buckets, n_readings, notes }
}

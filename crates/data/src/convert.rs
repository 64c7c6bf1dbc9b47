//! Conversion of edge lists and of folders in other formats to [the kiln format](crate::format), within a memory limit.
//!
//! [`convert()`] converts a folder or a file; [`write_graph`] writes the edges of any [`EdgeSource`]. The edges need
//! not fit in memory. The graph is identical to the one that [`CscBuilder`] builds from the same list.
//!
//! # Memory
//! The written bytes do not depend on the limit. The heap usage is at most [`ConvertOptions::memory_bytes`]:
//!
//! | data | bytes |
//! |---|---|
//! | the offsets of each node's edges | 8 per node |
//! | before that, labels and split of GraphBolt and OGB folders | 16 per node |
//! | or target values and split | 4 per node, and 5 per value |
//! | edges, and later features, of an OGB folder of archives | the size of the array |
//! | columns of edges with more than 5 bytes per edge | 8,192 times the bytes above 5 |
//! | features of an OGB folder that are means of edge features | 12 per value, and 8 per node |
//! | one bucket of edges, or the buffers of the buckets' files | the remainder |
//! | chunks and buffers | 499,712 |
//!
//! The remainder must be at least 4096 bytes and fit the in-edges of the node with the highest degree: 4 bytes per
//! edge, or with columns 8 bytes and those of the edge's rows (4 for a weight, 1 for a type).
//!
//! Files that are read are mapped; the kernel can reclaim their pages at any time. On disk, the buckets take up to 8
//! bytes per edge, plus its data, beside the finished set.
//!
//! [`CscBuilder`]: kiln_graph::CscBuilder

mod buckets;
mod csc_rows;
mod heterogeneous;
mod options;
mod rest;
mod sorting;

use std::fmt;
use std::path::Path;

use kiln_feature::Targets;
use kiln_graph::LinkNegatives;
use kiln_store::array_folder::{Entries, FolderWriter};
use kiln_store::paths::is_there;
use kiln_store::{check_count, io_error};

use self::buckets::{FIXED_BYTES, LEAST_ROOM, Written};
use self::rest::{Sizes, check_memory, copy_graph, copy_rest, copy_stored, n_nodes_of, refuse_options};
use crate::edges::{EdgeList, edge_list_of};
use crate::error::require;
use crate::format::plain_manifest::{self, PlainManifest};
use crate::format::{VerifyReport, path_in};
use crate::graph_folder::{write_link_targets, write_targets};
use crate::limits::check_node_count;
use crate::readers::edge_targets::add_edge_task;
use crate::readers::name_of;
use crate::readers::npy::{note_left_aside, note_unknown_arrays};
use crate::readers::stored::Stored;
use crate::{DatasetFormat, Error, LinkTargets, Note, Result, detect_format, format, graphbolt, ogb};

pub(crate) use self::buckets::write_csc;
pub(crate) use self::csc_rows::CscRows;
pub use kiln_store::parse_bytes;

pub use self::heterogeneous::{HeterogeneousReport, convert_heterogeneous, convert_to_homogeneous};
pub use self::options::ConvertOptions;
pub use crate::edges::{ColumnFormat, EdgeChunk, EdgeSource};

/// The report of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertReport {
    /// The number of nodes.
    pub n_nodes: usize,
    /// The number of edges in the input.
    pub n_coo_edges: u64,
    /// The number of edges of the graph.
    pub n_edges: usize,
    /// The number of edges in the input that repeat an earlier one and were removed
    /// ([`Duplicates::Remove`](kiln_graph::Duplicates::Remove)). If reverse edges were added, an edge repeats its reverse, too.
    pub n_duplicates: u64,
    /// The number of buckets in which the edges were sorted; 0 if the input was in CSC order.
    pub n_buckets: usize,
    /// The number of times the edge list was read after the number of nodes was known: once to count the edges, then
    /// once for each group of at most 256 buckets. A group has fewer buckets if the memory limit is too low for the
    /// buffers of 256 files, or if the operating system allows fewer open files. 0 if the input was in CSC order.
    pub n_readings: usize,
    /// Notes about the input.
    pub notes: Vec<Note>,
}

/// Formats one line with the number of nodes and edges, and with how the edges were sorted.
impl fmt::Display for ConvertReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_nodes, n_coo_edges, n_edges, n_buckets, n_readings, .. } = self;
        write!(f, "{n_nodes} nodes, {n_edges} edges")?;
        match (n_readings, n_buckets) {
            (0, _) => write!(f, ", copied unchanged"),
            (_, 0) => write!(f, ": the list is empty"),
            (_, n) => {
                let buckets = if *n == 1 { "bucket" } else { "buckets" };
                write!(f, " from a list of {n_coo_edges}, sorted in {n} {buckets}, read {n_readings} times")
            }
        }
    }
}

/// Converts a folder or an edge list to a new folder in the kiln format.
///
/// `input` may be
///
/// - a folder that [`npy::open`](crate::npy::open) opens. If it has an edge list (`edges.npy`, `edges.csv`,
///   `edges.csv.gz`, or both `src.npy` and `dst.npy`) instead of `indptr.npy` and `indices.npy`, the edges are sorted;
///   otherwise they are copied in their order;
/// - such a folder with edges only, without features, labels and split: the result is then a graph without node data,
///   which [`format::open_graph`] opens;
/// - an edge list: a file whose name ends in `.npy`, `.csv` or `.csv.gz`;
/// - a folder that [`graphbolt::open`] or [`ogb::open`] opens. Its edges are sorted, and the reverse of each is added
///   if OGB's library adds it; text is read line by line, and the arrays of OGB's archives are read into memory, as is the
///   graph of a folder with labels of edges, for which options for edge lists are an error;
/// - a folder in the kiln format, which is copied after the SHA-256 of each file was verified.
///
/// With the default options, the output is identical to the one of [`format::write`] for the set that
/// [`open`](crate::open) returns.
///
/// `edges.npy` has the shape `[2, n_edges]` or `[n_edges, 2]`, row-major or column-major; `src.npy` and `dst.npy`
/// have the shape `[n_edges]`. All of them contain integers. A text file has a source, a destination and optionally a
/// weight in each line, separated by commas, possibly in double quotes. Its first line may be a header. The columns are then
/// found by name, in any case and order: sources are `src`, `source`, `from` or `u`; destinations `dst`, `target`,
/// `destination`, `to` or `v`; weights `weight`, `weights` or `w`. If no name of an end is known, the first two columns
/// besides the weight are the sources and the destinations. Any further column is an error. `weights.npy` (`f32`),
/// `edge_types.npy` (`u8`) and the other columns `edge_NAME.npy` (`[n_edges, dim]`) beside an edge list have the order of
/// the list, and need not fit in memory.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`] if the output exists and is not an empty folder, before any work;
/// [`Error::Memory`] if the memory limit is too small, with the smallest sufficient limit;
/// [`kiln_store::Error::Missing`] or [`Error::Unrecognised`] if the input is not a data set; [`Error::WrongKind`] if
/// the input is a graph classification set; [`Error::BadParameter`] if an option for edge lists is set but the edges of
/// the input are in CSC order, if self loops should be added to edges with other columns than weights and types, or if the edge list
/// changes during the conversion; and [`kiln_store::Error::BadValue`],
/// [`kiln_store::Error::BadLine`], [`kiln_store::Error::Npy`], [`kiln_store::Error::Inconsistent`],
/// [`kiln_store::Error::Metadata`], [`Error::Unsupported`], [`kiln_store::Error::HashMismatch`] or
/// [`kiln_store::Error::Io`] if the input is invalid or cannot be read. An error leaves no output behind.
pub fn convert(
    input: impl AsRef<Path>,
    out: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    let (input, out) = (input.as_ref(), out.as_ref());
    match detect_format(input) {
        Ok(DatasetFormat::GraphBolt) => return convert_stored(input, graphbolt::read, out, options),
        Ok(DatasetFormat::Ogb) => return convert_stored(input, ogb::read, out, options),
        Ok(kind @ (DatasetFormat::Tu | DatasetFormat::Gin | DatasetFormat::OgbGraphs)) => {
            return Err(kind.of_graphs(input));
        }
        // An input whose format is not recognised may be a file with an edge list.
        Ok(DatasetFormat::Kiln | DatasetFormat::Npy) | Err(_) => {}
    }
    let about = std::fs::metadata(input).map_err(io_error(input))?;
    if !about.is_dir() {
        let list = EdgeList::of_file(input)?;
        let mut set = FolderWriter::create(out)?;
        let n_nodes = count_nodes(&list, None, options)?;
        let written = write_csc(&list, 0, CscRows::of_nodes(n_nodes), options, &mut set)?;
        let notes = list.notes;
        return commit(set, name_of_file(input), n_nodes, written, Sizes::default(), notes);
    }
    if is_there(&path_in(input)) {
        refuse_options(options.keeps_edges())?;
        let VerifyReport { n_nodes, n_edges, notes, .. } = format::copy_verified(input, out)?;
        let written = Written { n_coo_edges: n_edges, n_edges: n_edges as usize, ..Written::default() };
        return Ok(converted(n_nodes, written, notes));
    }
    let mut set = FolderWriter::create(out)?;
    let mut notes = Vec::new();
    note_left_aside(input, &mut notes);
    note_unknown_arrays(input, &mut notes)?;
    let Some(list) = edge_list_of(input)? else {
        refuse_options(options.keeps_edges())?;
        let [n_nodes, n_edges] = copy_graph(input, &mut set, &mut notes)?;
        let sizes = copy_rest(input, n_nodes, &mut set, &mut notes)?;
        let written = Written { n_coo_edges: n_edges as u64, n_edges, ..Written::default() };
        return commit(set, name_of(input), n_nodes, written, sizes, notes);
    };
    notes.extend(list.notes.iter().cloned());
    let n_nodes = count_nodes(&list, n_nodes_of(input)?, options)?;
    let sizes = copy_rest(input, n_nodes, &mut set, &mut notes)?;
    let written = write_csc(&list, 0, CscRows::of_nodes(n_nodes), options, &mut set)?;
    commit(set, name_of(input), n_nodes, written, sizes, notes)
}

/// Converts a folder in the format of another library. Labels and split are written and freed first, then the edges are
/// sorted, then the features are copied, so that the memory of the three is not needed at the same time.
fn convert_stored(
    folder: &Path,
    read: impl Fn(&Path) -> Result<Stored>,
    out: &Path,
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    let mut set = FolderWriter::create(out)?;
    let mut stored = read(folder)?;
    if let Some(task) = stored.take_edge_task() {
        drop(set);
        return convert_edge_task(stored, task, out, options);
    }
    let Stored { name, targets, split, links, features, edges, mut notes } = stored;
    // Notes about converted arrays are redundant: a conversion writes every array with its type in the kiln format.
    notes.retain(|note| !matches!(note, Note::Converted { .. }));
    if options.symmetrize {
        notes.retain(|note| !matches!(note, Note::ReverseEdgesNotAdded { .. }));
    }
    let (n_nodes, n_outputs, budget_bytes) = (targets.len(), targets.n_outputs(), options.memory_bytes);
    check_count(folder, "the number of nodes", options.n_nodes.unwrap_or(n_nodes), n_nodes)?;
    let link_bytes = links.as_ref().map_or(0, |links| bytes_of_links(links));
    let read_bytes = (16 * n_nodes as u64).max(bytes_while_read(&targets)) + link_bytes;
    let needed_bytes = FIXED_BYTES + read_bytes + LEAST_ROOM;
    if budget_bytes < needed_bytes {
        let what = format!("reading the labels and the split of {n_nodes} nodes");
        return Err(Error::Memory { what, needed_bytes, budget_bytes });
    }
    check_memory(&features, n_nodes, budget_bytes)?;
    check_memory(&edges.source, n_nodes, budget_bytes)?;
    write_targets(&mut set, &targets, &split)?;
    if let Some(links) = &links {
        write_link_targets(&mut set, links)?;
    }
    drop((targets, split, links));
    let options = ConvertOptions { symmetrize: options.symmetrize || edges.is_symmetrized, ..*options };
    let list = edges.open()?;
    let written = write_csc(&list, list.heap_bytes(), CscRows::of_nodes(n_nodes), &options, &mut set)?;
    drop(list);
    let dim = copy_stored(&features, n_nodes, &mut set)?;
    commit(set, name, n_nodes, written, Sizes { dim: Some(dim), n_classes: Some(n_outputs) }, notes)
}

/// Converts a set with targets of edges, of which those for validation and test leave the graph. The graph is in memory.
fn convert_edge_task(
    stored: Stored,
    task: LinkTargets,
    out: &Path,
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    require(
        options.keeps_edges(),
        "an option for edge lists (number of nodes, symmetrize, duplicates or self loops)",
        "none: the folder has labels of edges, which must be edges of its list",
        "set",
    )?;
    let data = stored.read_within(options.memory_bytes)?;
    let n_coo_edges = data.graph.n_edges();
    let mut data = add_edge_task(data, 0, task)?;
    // A note about a copy in memory recommends a conversion.
    data.notes.retain(|note| !matches!(note, Note::Converted { .. }));
    format::write(&data, out)?;
    let n_edges = data.graph.n_edges() as usize;
    let written = Written { n_coo_edges, n_edges, n_duplicates: 0, n_buckets: 1, n_readings: 1 };
    Ok(converted(data.graph.n_nodes(), written, data.notes))
}

/// Returns the heap memory that reading target values and the split takes; 0 for classes.
fn bytes_while_read(targets: &Targets) -> u64 {
    match targets {
        Targets::Classes(_) => 0,
        Targets::Values(values) => {
            let n_values = values.len() as u64 * values.n_columns() as u64;
            4 * values.len() as u64 + 5 * n_values
        }
    }
}

/// Returns the heap memory of links, their split and their negatives.
fn bytes_of_links(targets: &LinkTargets) -> u64 {
    let negatives = [targets.val_negatives(), targets.test_negatives()].into_iter().flatten();
    let n_nodes =
        |negatives: &LinkNegatives| negatives.dsts().len() + negatives.srcs().map_or(0, |srcs| srcs.len());
    12 * targets.links().len() as u64 + 4 * negatives.map(n_nodes).sum::<usize>() as u64
}

/// Writes the edges of any source as a graph without node data in the kiln format, for [`format::open_graph`]. The
/// graph has `n_nodes` nodes; [`ConvertOptions::n_nodes`] is ignored.
///
/// # Errors
/// Returns the errors of [`convert()`] and those of the source.
pub fn write_graph(
    source: &dyn EdgeSource,
    n_nodes: usize,
    name: &str,
    out: impl AsRef<Path>,
    options: &ConvertOptions,
) -> Result<ConvertReport> {
    let mut set = FolderWriter::create(out.as_ref())?;
    check_node_count(n_nodes)?;
    let written = write_csc(source, 0, CscRows::of_nodes(n_nodes), options, &mut set)?;
    commit(set, name.to_owned(), n_nodes, written, Sizes::default(), Vec::new())
}

/// Returns the number of nodes of an edge list: the number in the options, else `n_rows` (the number of labels or
/// feature rows), else the largest id plus 1.
fn count_nodes(list: &EdgeList, n_rows: Option<usize>, options: &ConvertOptions) -> Result<usize> {
    let n_nodes = match options.n_nodes.or(n_rows) {
        Some(n_nodes) => n_nodes,
        None => list.count_nodes()?,
    };
    check_node_count(n_nodes)?;
    Ok(n_nodes)
}

/// Returns the name of an edge list without its extension: `edges` for `edges.csv.gz`.
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
    let manifest = PlainManifest {
        format: plain_manifest::VERSION,
        name,
        n_nodes,
        n_edges: written.n_edges,
        dim: sizes.dim,
        feature_columns: Vec::new(),
        n_classes: sizes.n_classes,
        // Classes that are named by their numbers get no names in the manifest. Otherwise a single large label could
        // make the manifest huge.
        class_names: Vec::new(),
        edge_type_names: Vec::new(),
        first_new: None,
        times: Default::default(),
        preparation: kiln_feature::Preparation::default(),
        link_targets: None,
        orders: Default::default(),
        files: Entries::new(),
    };
    manifest.commit(set)?;
    Ok(converted(n_nodes, written, notes))
}

fn converted(n_nodes: usize, written: Written, notes: Vec<Note>) -> ConvertReport {
    let Written { n_coo_edges, n_edges, n_duplicates, n_buckets, n_readings } = written;
    ConvertReport { n_nodes, n_coo_edges, n_edges, n_duplicates, n_buckets, n_readings, notes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_states_how_the_edges_were_sorted() {
        let (n_nodes, n_coo_edges, n_edges, n_buckets, n_readings) = (4, 5, 10, 3, 2);
        let converted = ConvertReport {
            n_nodes,
            n_coo_edges,
            n_edges,
            n_duplicates: 0,
            n_buckets,
            n_readings,
            notes: Vec::new(),
        };
        let sorted = "4 nodes, 10 edges from a list of 5, sorted in 3 buckets, read 2 times";
        assert_eq!(converted.to_string(), sorted);
        let copied = ConvertReport { n_buckets: 0, n_readings: 0, ..converted };
        assert_eq!(copied.to_string(), "4 nodes, 10 edges, copied unchanged");
        let empty = ConvertReport { n_nodes: 0, n_edges: 0, n_readings: 1, ..copied };
        assert_eq!(empty.to_string(), "0 nodes, 0 edges: the list is empty");
    }
}

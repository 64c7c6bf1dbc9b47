//! A reader of folders of `.npy` files and edge lists.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_feature::{FeatureStore, Labels, SparseFeatures, Targets};
use kiln_graph::{Csc, NodeId, SharedArray};
use kiln_store::npy::DType;
use kiln_store::paths::{find, required};
use kiln_store::{ArrayFile, check_count};

use crate::arrays::{RowsOf, nodes_of, offsets_of, row_shape, rows_of};
use crate::check::{Place, check_split};
use crate::edges::{ColumnArray, edge_list_of};
use crate::graph_folder::{NODE_TIMES, csc_with_columns};
use crate::ignored_files::{is_data, note_others, note_unread_files};
use crate::limits::MEMORY_BYTES;
use crate::readers::ids::listed_nodes;
use crate::readers::{links, name_of, target_arrays};
use crate::{Dataset, DatasetTargets, Note, Result, Split};

/// Opens a folder of `.npy` files as a data set. Topology and features are mapped, not read, if their element types
/// allow it:
///
/// | file | content | element types |
/// |---|---|---|
/// | `indptr.npy` | the offsets of each node's in-edges, `[n_nodes + 1]` | i64, u64 mapped; i32, u32 copied |
/// | `indices.npy` | the source of each edge, `[n_edges]` | i32, u32 mapped; i64, u64 copied |
/// | `weights.npy` | the weight of each edge, `[n_edges]` (optional) | f32 |
/// | `edge_types.npy` | the type of each edge, `[n_edges]` (optional) | u8 |
/// | `edge_times.npy` | the time of each edge, `[n_edges]` (optional) | i64 |
/// | `node_times.npy` | the time of each node, `[n_nodes]` (optional) | i64 |
/// | `edge_features.npy`, `edge_NAME.npy` | a row per edge, `[n_edges, dim]` (optional) | as `features.npy` |
/// | `features.npy` | a row per node, `[n_nodes, dim]` | f32, f16 mapped; f64 copied |
/// | `features_{indptr,indices,data}.npy` | instead: the rows as a CSR matrix | as `indptr`; i32, u32; f32 |
/// | `labels.npy` | the class of each node, negative for none, `[n_nodes]` | i32 mapped; other integers copied |
/// | | or several labels per node: 1, 0, negative (u8: 255) if missing, `[n_nodes, k]` | u8 mapped; others copied |
/// | | or regression targets: numbers, NaN if missing, `[n_nodes, k]` | f32 mapped; f16, f64 copied |
/// | `{train,val,test}.npy` | the nodes of each part (or `*_idx.npy`) | i32, u32 mapped; i64, u64 copied |
/// | | or a mask of them, `[n_nodes]` | bool, copied |
/// | `{train,val,test}_edges.npy` | the links of each part, `[n_links, 2]` or `[2, n_links]` (optional) | integers, copied |
/// | `{val,test}_negatives.npy` | their fixed negatives: destinations, `[n_links, k]` (optional) | i32, u32 mapped; others copied |
/// | `{val,test}_negative_srcs.npy` | the sources of the negatives, if not those of the links | the same |
///
/// Instead of `indptr.npy` and `indices.npy`, the folder may contain an edge list in one of the forms that
/// [`convert`](crate::convert::convert()) describes. The graph is then built in memory, and weights, types and edge
/// features are in the order of the list; edge features are copied to memory. A compressed list may take at most 1 GiB; [`open_within`](crate::open_within) sets another
/// limit.
///
/// The graph of a set with links is the message graph. A set may lack both labels and the split of nodes, for link
/// prediction: no node then has a label.
///
/// [`Dataset::notes`] lists copied arrays, splits that overlap, and files that are ignored in favour of others.
/// Labels and splits are read and checked. Edges and features are not: samplers check each id that they use, and
/// [`Dataset::validate`] checks everything.
///
/// # Errors
/// Returns [`kiln_store::Error::Missing`] if the folder lacks a file, [`kiln_store::Error::Npy`] if a file is not an
/// array of a listed type, [`kiln_store::Error::Inconsistent`] if arrays contradict each other,
/// [`kiln_store::Error::BadValue`] or [`kiln_store::Error::BadLine`] if an id or a label is invalid, and
/// [`Error::EdgeListTooLarge`](crate::Error::EdgeListTooLarge) if a compressed edge list has too many edges.
pub fn open(folder: impl AsRef<Path>) -> Result<Dataset> {
    open_within(folder.as_ref(), MEMORY_BYTES)
}

/// Opens a folder of `.npy` files with the limit `memory_bytes` for a compressed edge list.
pub(crate) fn open_within(folder: &Path, memory_bytes: u64) -> Result<Dataset> {
    let mut notes = Vec::new();
    note_left_aside(folder, &mut notes);
    let graph = match edge_list_of(folder)? {
        None => open_graph(folder, Place::Folder(folder), &mut notes)?,
        Some(list) => {
            // The number of nodes is the number of labels or feature rows, which is limited by the length of their file.
            // The largest id in an edge list could be any number.
            let n_nodes = n_rows_of(&file_of_nodes(folder)?)?;
            list.build_noted(n_nodes, memory_bytes, &mut notes)?
        }
    };
    let n_nodes = graph.n_nodes();
    let features = open_features(folder, Place::Folder(folder), n_nodes, None, &mut notes)?;
    let (targets, split) = match has_no_labels(folder) {
        true => (Labels::new(vec![-1; n_nodes], 0).into(), Split::default()),
        false => open_targets(folder, n_nodes, &mut notes)?,
    };
    let links = links::read_folder(folder, n_nodes, &mut notes)?;
    note_unknown_arrays(folder, &mut notes)?;
    let targets = DatasetTargets::new(0, targets, split);
    let data = Dataset::homogeneous(name_of(folder), graph, features, targets);
    let data = Dataset { links: links.map(Into::into), notes, ..data };
    match open_node_times(folder, n_nodes)? {
        Some(times) => data.with_node_times(0, times.elements::<i64>()?),
        None => Ok(data),
    }
}

/// Opens the times of the nodes; `None` if the folder has none.
pub(crate) fn open_node_times(folder: &Path, n_nodes: usize) -> Result<Option<ArrayFile>> {
    let Some(path) = find(folder, &[NODE_TIMES]) else { return Ok(None) };
    let array = ArrayFile::open(path)?;
    array.check_vector_of(DType::I64)?;
    check_count(array.path(), "the number of node times", n_nodes, array.n_values())?;
    Ok(Some(array))
}

/// Returns true if a folder has neither labels nor a split of nodes.
pub(crate) fn has_no_labels(folder: &Path) -> bool {
    let of_nodes = [&["labels.npy"][..], PARTS.as_flattened()].concat();
    find(folder, &of_nodes).is_none()
}

/// Returns the file whose number of rows is the number of nodes.
fn file_of_nodes(folder: &Path) -> Result<PathBuf> {
    Ok(match has_no_labels(folder) {
        true => required(folder, &FEATURES, FEATURES_OF_NODES)?,
        false => required(folder, &["labels.npy"], "the class of each node")?,
    })
}

/// Returns the number of rows of an array of labels or features.
fn n_rows_of(path: &Path) -> Result<usize> {
    let array = ArrayFile::open(path)?;
    if path.ends_with("features.npy") {
        return Ok(row_shape(&array)?.0);
    }
    let n = array.shape().first().copied().unwrap_or(0);
    Ok(if path.ends_with("features_indptr.npy") { n.saturating_sub(1) } else { n })
}

/// Opens the targets and the split of the nodes.
fn open_targets(folder: &Path, n_nodes: usize, notes: &mut Vec<Note>) -> Result<(Targets, Split)> {
    let path = required(folder, &["labels.npy"], "the class of each node")?;
    // Counts are checked before anything is converted: a sparse file on disk may have a header with any count.
    let array = ArrayFile::open(&path)?;
    let n_rows = array.shape().first().copied().unwrap_or(0);
    check_count(&path, "the number of labels", n_nodes, n_rows)?;
    let targets = target_arrays::of_array(&array, notes)?;
    let split = open_split(folder, n_nodes, notes)?;
    check_split(Place::Folder(folder), &split, &targets, notes)?;
    Ok((targets, split))
}

/// Groups of files with the same data, of which only the first that exists is read (`src.npy` together with `dst.npy`).
/// If that file is an edge list, [`EdgeList`](crate::edges::EdgeList) adds the notes about other edge lists.
const ALTERNATIVES: [&[&str]; 5] = [
    &["indptr.npy", "edges.npy", "src.npy", "dst.npy", "edges.csv", "edges.csv.gz"],
    &FEATURES,
    &PARTS[0],
    &PARTS[1],
    &PARTS[2],
];

/// The files that determine the number of feature rows: dense features, or the offsets of a CSR matrix.
pub(crate) const FEATURES: [&str; 2] = ["features.npy", "features_indptr.npy"];

/// The purpose of those files, for the message that both are missing.
pub(crate) const FEATURES_OF_NODES: &str =
    "the features of each node: save an array [n_nodes, n_columns] beside the edges";

/// The files of the training, validation and test split. The first name of each file is its name in the kiln format.
pub(crate) const PARTS: [[&str; 2]; 3] =
    [["train.npy", "train_idx.npy"], ["val.npy", "val_idx.npy"], ["test.npy", "test_idx.npy"]];

/// Adds a note for each file that is ignored because the folder has another file with the same data.
pub(crate) fn note_left_aside(folder: &Path, notes: &mut Vec<Note>) {
    for names in ALTERNATIVES {
        if let Some(taken) = find(folder, &names[..1]) {
            note_others(folder, &taken, &names[1..], notes);
        }
    }
}

/// The other files of a folder, besides columns of edges, links and negatives.
const OTHERS: [&str; 6] =
    ["indices.npy", "features_indices.npy", "features_data.npy", "labels.npy", "weights.npy", NODE_TIMES];

/// Adds a note about the arrays and tables of a folder that are not read because of their names.
pub(crate) fn note_unknown_arrays(folder: &Path, notes: &mut Vec<Note>) -> Result<()> {
    let known = [&ALTERNATIVES.concat()[..], &OTHERS, &links::file_names()].concat();
    note_unread_files(folder, |name| is_data(name) && !is_edge_column(name) && !known.contains(&name), notes)
}

/// Returns true for the form of the name of a column of edges, whose reader adds notes of its own.
fn is_edge_column(name: &str) -> bool {
    name.starts_with("edge_") && name.ends_with(".npy")
}

/// Opens the graph of a folder in CSC order. `place` is the location of its arrays in error messages.
pub(crate) fn open_graph(folder: &Path, place: Place<'_>, notes: &mut Vec<Note>) -> Result<Csc> {
    let path = required(folder, &["indptr.npy"], "where each node's in-edges start")?;
    let indptr = offsets_of(&ArrayFile::open(&path)?, notes)?;
    if indptr.is_empty() {
        check_count(&path, "the number of entries", 1, 0)?;
    }
    let n_nodes = indptr.len() - 1;
    let path = required(folder, &["indices.npy"], "the source of each edge")?;
    let indices = nodes_of(&ArrayFile::open(path)?, "edge", n_nodes, notes)?;
    let arrays = ColumnArray::open_all(folder, notes)?;
    let mut columns = Vec::with_capacity(arrays.len());
    for array in &arrays {
        check_count(array.path(), array.count(), indices.len(), array.n_rows())?;
        columns.push((array.format.name.as_str(), array.column(notes)?));
    }
    csc_with_columns(place, indptr, indices, columns)
}

/// Opens the features of all nodes. `dim` is the number of columns if it is known. With `None`, the number of columns
/// of a CSR matrix is its largest column index plus 1.
pub(crate) fn open_features(
    folder: &Path,
    place: Place<'_>,
    n_nodes: usize,
    dim: Option<usize>,
    notes: &mut Vec<Note>,
) -> Result<Arc<dyn FeatureStore>> {
    let path = required(folder, &FEATURES, FEATURES_OF_NODES)?;
    let array = ArrayFile::open(&path)?;
    let is_dense = path.ends_with("features.npy");
    let n_rows = if is_dense { row_shape(&array)?.0 } else { array.n_values().saturating_sub(1) };
    check_count(&path, RowsOf::Nodes.count(), n_nodes, n_rows)?;
    Ok(if is_dense {
        Arc::new(rows_of(&array, RowsOf::Nodes, notes)?)
    } else {
        let indptr = offsets_of(&array, notes)?;
        let columns_path = required(folder, &["features_indices.npy"], "the column of each feature")?;
        let columns = ArrayFile::open(columns_path)?;
        columns.check_vector()?;
        // Any 32-bit column index is accepted here, because gathering a row checks its columns.
        let columns: SharedArray<u32> = match columns.dtype() {
            DType::I32 | DType::U32 => columns.elements()?,
            _ => {
                nodes_of(&columns, "entry", u32::MAX as usize, notes)?.iter().map(|column| column.0).collect()
            }
        };
        let values_path = required(folder, &["features_data.npy"], "the value of each feature")?;
        let values = ArrayFile::open(values_path)?.values::<f32>()?;
        let dim = dim.unwrap_or_else(|| columns.iter().max().map_or(1, |&column| column as usize + 1));
        let sparse = SparseFeatures::new(indptr, columns, values, dim);
        Arc::new(sparse.map_err(|error| place.located(error.into()))?)
    })
}

pub(crate) fn open_split(folder: &Path, n_nodes: usize, notes: &mut Vec<Note>) -> Result<Split> {
    let mut part = |names: [&str; 2]| -> Result<SharedArray<NodeId>> {
        let path = required(folder, &names, "the nodes of one part of the split")?;
        listed_nodes(&ArrayFile::open(path)?, n_nodes, notes)
    };
    let [train, val, test] = PARTS;
    Ok(Split { train: part(train)?, val: part(val)?, test: part(test)? })
}

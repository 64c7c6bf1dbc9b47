//! Copies the arrays of a folder, converted to the element types of the kiln format. Only buffers are held in memory.

use std::path::Path;

use kiln_feature::MAX_DIM;
use kiln_graph::NodeId;
use kiln_store::array_folder::{ArrayWriter, ElementType, FolderWriter};
use kiln_store::npy::DType;
use kiln_store::paths::{find, is_there, required};
use kiln_store::progress::{Progress, ProgressUnit};
use kiln_store::{ArrayFile, Npz, check_count};

use super::buckets::FIXED_BYTES;
use crate::arrays::{RowsOf, check_finite, label_of, node_of, row_shape, written_type};
use crate::check::{Place, VALUES_AT_ONCE, check_split};
use crate::edges::{ColumnArray, ColumnFormat};
use crate::graph_folder::{NODE_TIMES, TARGETS, start_column, write_link_targets};
use crate::layout::Layout;
use crate::limits::{bad_dim, check_n_classes};
use crate::readers::edge_means::MeanRows;
use crate::readers::ids::for_each_listed;
use crate::readers::links;
use crate::readers::npy::{
    FEATURES, FEATURES_OF_NODES, PARTS, has_no_labels, open_features, open_graph, open_node_times, open_split,
};
use crate::readers::stored::{Source, for_each_row};
use crate::readers::target_arrays;
use crate::{Error, Note, Result};

/// The number of feature columns and of classes, for the manifest; `None` for a graph without node data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) dim: Option<usize>,
    pub(super) n_classes: Option<usize>,
}

/// Returns the number of labels or feature rows of a folder, if it has any.
pub(super) fn n_nodes_of(folder: &Path) -> Result<Option<usize>> {
    let Some(path) = find(folder, &["labels.npy", "features.npy", "features_indptr.npy"]) else {
        return Ok(None);
    };
    let array = ArrayFile::open(&path)?;
    let n = array.shape().first().copied().unwrap_or(0);
    if array.n_values() == 0 && n != 0 {
        return Err(bad_dim(&path, 0).into());
    }
    Ok(Some(if path.ends_with("features_indptr.npy") { n.saturating_sub(1) } else { n }))
}

/// Copies features, labels and split. A folder without any of them is a graph without node data.
pub(super) fn copy_rest(
    folder: &Path,
    n_nodes: usize,
    set: &mut FolderWriter,
    notes: &mut Vec<Note>,
) -> Result<Sizes> {
    let names = FEATURES.iter().chain(&["labels.npy"]).chain(PARTS.as_flattened());
    if !names.into_iter().any(|name| is_there(&folder.join(name))) && !links::has_links(folder) {
        return Ok(Sizes::default());
    }
    let dim = copy_features(folder, n_nodes, set)?;
    if let Some(times) = open_node_times(folder, n_nodes)? {
        copy_values(&times, set.vector(NODE_TIMES, ElementType::I64)?, set)?;
    }
    if let Some(targets) = links::read_folder(folder, n_nodes, notes)? {
        write_link_targets(set, &targets)?;
    }
    if has_no_labels(folder) {
        set.put("labels.npy", ElementType::I32, &vec![-1_i32; n_nodes])?;
        for [name, _] in PARTS {
            set.put::<u32>(name, ElementType::U32, &[])?;
        }
        return Ok(Sizes { dim: Some(dim), n_classes: Some(0) });
    }
    let n_classes = copy_labels(folder, n_nodes, set)?;
    for names in PARTS {
        let array = ArrayFile::open(required(folder, &names, "the nodes of one part of the split")?)?;
        let mut nodes = set.vector(names[0], ElementType::U32)?;
        for_each_listed(&array, n_nodes, |node: NodeId| Ok(nodes.push(&[node.0])?))?;
        add_copy(&array, nodes, set)?;
    }
    // The written arrays are mapped for the check, so that the check takes no heap memory.
    let name = if is_there(&set.folder().join(TARGETS)) { TARGETS } else { "labels.npy" };
    let targets = target_arrays::of_array(&ArrayFile::open(set.folder().join(name))?, &mut Vec::new())?;
    let split = open_split(set.folder(), n_nodes, &mut Vec::new())?;
    check_split(Place::Folder(folder), &split, &targets, notes)?;
    Ok(Sizes { dim: Some(dim), n_classes: Some(n_classes) })
}

/// Copies a topology in CSC order and returns its number of nodes and edges.
pub(super) fn copy_graph(folder: &Path, set: &mut FolderWriter, notes: &mut Vec<Note>) -> Result<[usize; 2]> {
    let indptr = ArrayFile::open(required(folder, &["indptr.npy"], "where each node's in-edges start")?)?;
    let Some(n_nodes) = indptr.n_values().checked_sub(1) else {
        check_count(indptr.path(), "the number of entries", 1, 0)?;
        return Ok([0, 0]);
    };
    copy_offsets(&indptr, "indptr.npy", set)?;
    let srcs = ArrayFile::open(required(folder, &["indices.npy"], "the source of each edge")?)?;
    srcs.check_vector()?;
    let mut indices = set.vector("indices.npy", ElementType::U32)?;
    copy_integers(&srcs, &mut indices, |edge, id| Ok(node_of(&srcs, "edge", edge, id, n_nodes)?.0))?;
    add_copy(&srcs, indices, set)?;
    for column in ColumnArray::open_all(folder, notes)? {
        copy_column(&column, srcs.n_values(), set)?;
    }
    let graph = open_graph(set.folder(), Place::Folder(folder), &mut Vec::new())?;
    Ok([graph.n_nodes(), graph.n_edges() as usize])
}

/// Copies a column of edges.
fn copy_column(column: &ColumnArray, n_edges: usize, set: &mut FolderWriter) -> Result<()> {
    check_count(column.path(), column.count(), n_edges, column.n_rows())?;
    let ColumnFormat { name, element, width } = &column.format;
    let mut array = start_column(set, Layout::Plain, 0, name, *element, *width)?;
    let edges_at_once = (VALUES_AT_ONCE / width).max(1);
    let progress = Progress::start("copying edge columns", ProgressUnit::Edges, n_edges as u64);
    let mut rows = Vec::new();
    for start in (0..n_edges).step_by(edges_at_once) {
        rows.clear();
        column.push_rows(start..n_edges.min(start + edges_at_once), &mut rows)?;
        array.push_bytes(&rows)?;
        progress.set_done(n_edges.min(start + edges_at_once) as u64);
    }
    column.check_unchanged()?;
    Ok(set.add(array)?)
}

/// Copies dense or sparse features and returns the number of columns.
fn copy_features(folder: &Path, n_nodes: usize, set: &mut FolderWriter) -> Result<usize> {
    let path = required(folder, &FEATURES, FEATURES_OF_NODES)?;
    let array = ArrayFile::open(&path)?;
    if !path.ends_with("features.npy") {
        return copy_sparse(folder, &array, n_nodes, set);
    }
    copy_dense(&array, RowsOf::Nodes, n_nodes, set)
}

/// Copies the rows of a dense array and returns the number of columns.
fn copy_dense(array: &ArrayFile, of: RowsOf, n_expected: usize, set: &mut FolderWriter) -> Result<usize> {
    let (n_rows, dim) = row_shape(array)?;
    check_count(array.path(), of.count(), n_expected, n_rows)?;
    let mut rows = set.rows(of.file(), written_type(array)?, dim)?;
    let size = array.dtype().bytes();
    let progress = Progress::start("copying features", ProgressUnit::Bytes, array.value_bytes().len() as u64);
    for (chunk, bytes) in array.value_bytes().chunks(size * VALUES_AT_ONCE).enumerate() {
        let first = chunk * VALUES_AT_ONCE;
        check_finite(array, first..first + bytes.len() / size, dim, of.value())?;
        match array.dtype() {
            DType::F64 => {
                let values = bytes.chunks_exact(size).map(bytemuck::pod_read_unaligned::<f64>);
                rows.push(&values.map(|value| value as f32).collect::<Vec<f32>>())?;
            }
            _ => rows.push_bytes(bytes)?,
        }
        progress.advance(bytes.len() as u64);
    }
    add_copy(array, rows, set)?;
    Ok(dim)
}

/// Checks that an array of an archive and a conversion's buffers together fit the memory limit, since such an array is
/// read into memory. Other sources need no check.
pub(super) fn check_memory(source: &Source, n_nodes: usize, memory_bytes: u64) -> Result<()> {
    let (archive, name) = match source {
        Source::Member { archive, name } => (archive, name),
        Source::EdgeMeans(means) => {
            let needed_bytes = means.heap_bytes(n_nodes)?.saturating_add(FIXED_BYTES);
            let what = format!("the means of the edge features of {n_nodes} nodes");
            return match needed_bytes <= memory_bytes {
                true => Ok(()),
                false => Err(Error::Memory { what, needed_bytes, budget_bytes: memory_bytes }),
            };
        }
        Source::Mapped(_) | Source::Table(_) => return Ok(()),
    };
    let mut archive = Npz::open(archive)?;
    let needed_bytes = archive.array_bytes(name).saturating_add(FIXED_BYTES);
    match needed_bytes <= memory_bytes {
        true => Ok(()),
        false => Err(Error::Memory {
            what: format!("reading {name} of {} into memory", archive.path().display()),
            needed_bytes,
            budget_bytes: memory_bytes,
        }),
    }
}

/// Copies the feature rows of a set in the format of another library and returns the number of columns.
pub(super) fn copy_stored(features: &Source, n_nodes: usize, set: &mut FolderWriter) -> Result<usize> {
    match features {
        Source::Mapped(array) => copy_dense(array, RowsOf::Nodes, n_nodes, set),
        Source::Member { archive, name } => {
            copy_dense(&Npz::open(archive)?.array(name)?, RowsOf::Nodes, n_nodes, set)
        }
        Source::Table(path) => copy_lines(path, n_nodes, set),
        Source::EdgeMeans(means) => {
            let MeanRows { values, dim } = means.read(n_nodes)?;
            let mut rows = set.rows("features.npy", ElementType::F32, dim)?;
            rows.push(&values)?;
            set.add(rows)?;
            Ok(dim)
        }
    }
}

/// Copies the rows of a text file one at a time and returns the number of columns.
fn copy_lines(path: &Path, n_nodes: usize, set: &mut FolderWriter) -> Result<usize> {
    let start = |dim| set.rows("features.npy", ElementType::F32, dim);
    // The first row determines the number of columns.
    let mut rows = None;
    let dim = for_each_row(path, n_nodes, |row| {
        let rows = match &mut rows {
            Some(rows) => rows,
            None => rows.insert(start(row.len())?),
        };
        Ok(rows.push(row)?)
    })?;
    let rows = rows.map_or_else(|| start(dim), Ok)?;
    set.add(rows)?;
    Ok(dim)
}

fn copy_sparse(folder: &Path, indptr: &ArrayFile, n_nodes: usize, set: &mut FolderWriter) -> Result<usize> {
    let n_rows = indptr.n_values().saturating_sub(1);
    check_count(indptr.path(), "the number of feature rows", n_nodes, n_rows)?;
    copy_offsets(indptr, "features_indptr.npy", set)?;
    let path = required(folder, &["features_indices.npy"], "the column of each feature")?;
    let array = ArrayFile::open(path)?;
    array.check_vector()?;
    let mut columns = set.vector("features_indices.npy", ElementType::U32)?;
    let mut dim = 1;
    copy_integers(&array, &mut columns, |position, column| {
        let column = node_of(&array, "entry", position, column, u32::MAX as usize)?.0;
        dim = dim.max(column as usize + 1);
        Ok(column)
    })?;
    add_copy(&array, columns, set)?;
    let path = required(folder, &["features_data.npy"], "the value of each feature")?;
    let values = ArrayFile::open(path)?;
    copy_vector(&values, "features_data.npy", ElementType::F32, set)?;
    check_finite(&values, 0..values.n_values(), 1, "value")?;
    // Opening the written arrays checks that both arrays, column indices and values, have as many elements as the last
    // offset states.
    open_features(set.folder(), Place::Folder(folder), n_nodes, Some(dim), &mut Vec::new())?;
    Ok(dim)
}

/// Copies the labels or target values and returns the number of classes or columns.
fn copy_labels(folder: &Path, n_nodes: usize, set: &mut FolderWriter) -> Result<usize> {
    let array = ArrayFile::open(required(folder, &["labels.npy"], "the class of each node")?)?;
    let is_float = matches!(array.dtype(), DType::F16 | DType::F32 | DType::F64);
    if let [n_rows, n_columns] = *array.shape()
        && (is_float || n_columns != 1)
    {
        check_count(array.path(), "the number of labels", n_nodes, n_rows)?;
        copy_target_values(&array, is_float, n_columns, set)?;
        return Ok(n_columns);
    }
    array.check_vector()?;
    check_count(array.path(), "the number of labels", n_nodes, array.n_values())?;
    if matches!(array.dtype(), DType::F16 | DType::F32 | DType::F64) {
        return Err(array.wrong_type(ArrayFile::INTEGERS).into());
    }
    let mut labels = set.vector("labels.npy", ElementType::I32)?;
    let mut largest = -1;
    array.for_each_integer_or_bool(|position, label| -> Result<()> {
        let label = label_of(&array, position, label)?;
        largest = largest.max(label);
        Ok(labels.push(&[label])?)
    })?;
    add_copy(&array, labels, set)?;
    check_n_classes(array.path(), (i64::from(largest) + 1).max(0) as u64)
}

/// Copies several labels per node, or regression targets.
fn copy_target_values(
    array: &ArrayFile,
    is_float: bool,
    n_columns: usize,
    set: &mut FolderWriter,
) -> Result<()> {
    if !(1..=MAX_DIM).contains(&n_columns) {
        return Err(bad_dim(array.path(), n_columns).into());
    }
    let dtype = if is_float { ElementType::F32 } else { ElementType::U8 };
    let mut rows = set.rows(TARGETS, dtype, n_columns)?;
    match array.dtype() {
        DType::U8 => rows.push_bytes(array.value_bytes())?,
        _ if is_float => {
            target_arrays::for_each_number(array, n_columns, |numbers| Ok(rows.push(numbers)?))?;
        }
        _ => array.for_each_integer_or_bool(|position, value| -> Result<()> {
            Ok(rows.push(&[target_arrays::label_bit(array, n_columns, position, value)?])?)
        })?,
    }
    add_copy(array, rows, set)
}

fn copy_offsets(array: &ArrayFile, name: &'static str, set: &mut FolderWriter) -> Result<()> {
    array.check_vector()?;
    if !matches!(array.dtype(), DType::I32 | DType::U32 | DType::I64 | DType::U64) {
        return Err(array.wrong_type("<i8 or <u8").into());
    }
    let mut offsets = set.vector(name, ElementType::U64)?;
    // A negative offset becomes a very large one, which fails the check of the finished graph or features.
    copy_integers(array, &mut offsets, |_, offset| Ok(offset as u64))?;
    add_copy(array, offsets, set)
}

/// Adds a copy of an array, after a check that the array has not changed while it was copied.
fn add_copy(array: &ArrayFile, copy: ArrayWriter, set: &mut FolderWriter) -> Result<()> {
    array.check_unchanged()?;
    Ok(set.add(copy)?)
}

/// Copies an array of integers, each converted by `convert`.
fn copy_integers<T: bytemuck::Pod>(
    array: &ArrayFile,
    to: &mut ArrayWriter,
    mut convert: impl FnMut(usize, i128) -> Result<T>,
) -> Result<()> {
    array.for_each_integer(|position, value| Ok(to.push(&[convert(position, value)?])?))
}

/// Copies an array of one dimension whose element type must be `dtype`.
fn copy_vector(
    array: &ArrayFile,
    name: &'static str,
    dtype: ElementType,
    set: &mut FolderWriter,
) -> Result<()> {
    array.check_vector()?;
    copy_values(array, set.vector(name, dtype)?, set)
}

/// Copies an array whose element type must be the one of `to`.
fn copy_values(array: &ArrayFile, mut to: ArrayWriter, set: &mut FolderWriter) -> Result<()> {
    if array.dtype() != to.dtype().stored_as() {
        return Err(array.wrong_type(to.dtype().stored_as().descr()).into());
    }
    to.push_bytes(array.value_bytes())?;
    add_copy(array, to, set)
}

/// Returns an error unless all options for edge lists have their defaults: these options do not apply to a graph that
/// is already in CSC order.
pub(super) fn refuse_options(is_default: bool) -> Result<()> {
    match is_default {
        true => Ok(()),
        false => Err(Error::BadParameter {
            what: "an option for edge lists (number of nodes, symmetrize, duplicates or self loops)",
            expected: "none: the edges are in CSC order already",
            got: "set".into(),
        }),
    }
}

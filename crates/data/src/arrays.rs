//! Conversion of array files to the types of a data set: ids, offsets, labels and feature rows. An array whose element
//! type can be used directly stays mapped; any other is copied, with a note.

use std::fmt;
use std::ops::Range;

use bytemuck::AnyBitPattern;
use half::f16;
use kiln_feature::{DenseFeatures, FeatureArray, MAX_DIM};
use kiln_graph::{EdgeColumns, NodeId, SharedArray};
use kiln_store::array_folder::ElementType;
use kiln_store::npy::DType;
use kiln_store::{ArrayFile, Error as StoreError};

use crate::limits::{bad_dim, check_node_count};
use crate::{Note, Result};

/// Returns the offsets of an `indptr` array. Order and range are not checked here: a negative offset becomes a very
/// large one, which fails the checks where offsets are used.
pub(crate) fn offsets_of(array: &ArrayFile, notes: &mut Vec<Note>) -> Result<SharedArray<u64>> {
    array.check_vector()?;
    check_node_count(array.n_values().saturating_sub(1))?;
    match array.dtype() {
        DType::I64 | DType::U64 => Ok(array.elements()?),
        DType::I32 | DType::U32 => {
            let mut offsets = array.room()?;
            array.for_each_integer(|_, offset| -> Result<()> {
                offsets.push(offset as u64);
                Ok(())
            })?;
            notes.push(converted(array, "64-bit offsets: save them as <i8"));
            Ok(offsets.into())
        }
        _ => Err(array.wrong_type("<i8 or <u8").into()),
    }
}

/// Returns an array of node ids. 32-bit ids are not copied and are checked where they are used; those of other widths are copied
/// and checked to be below `n_nodes`. `what` is the noun for an element in error messages: `edge` or `entry`.
pub(crate) fn nodes_of(
    array: &ArrayFile,
    what: &'static str,
    n_nodes: usize,
    notes: &mut Vec<Note>,
) -> Result<SharedArray<NodeId>> {
    array.check_vector()?;
    match array.dtype() {
        DType::I32 | DType::U32 => Ok(array.elements()?),
        DType::I64 | DType::U64 => {
            // A negative id, read as unsigned, is larger than every valid id. Checking all ids before converting them
            // keeps both loops simple enough to run at memory speed.
            let ids = array.elements::<u64>()?;
            let mut nodes = array.room()?;
            if let Some(position) = ids.iter().position(|&id| id >= n_nodes as u64) {
                let id = match array.dtype() {
                    DType::I64 => i128::from(ids[position] as i64),
                    _ => i128::from(ids[position]),
                };
                return Err(node_error(array, what, position, id, n_nodes).into());
            }
            notes.push(converted(array, "32-bit ids: save them as <u4 to have them mapped"));
            nodes.extend(ids.iter().map(|&id| NodeId(id as u32)));
            Ok(nodes.into())
        }
        _ => {
            let mut nodes = array.room()?;
            array.for_each_integer(|position, id| -> Result<()> {
                nodes.push(node_of(array, what, position, id, n_nodes)?);
                Ok(())
            })?;
            notes.push(converted(array, "32-bit ids: save them as <u4 to have them mapped"));
            Ok(nodes.into())
        }
    }
}

/// Converts an id to a [`NodeId`], or returns an error if the id is not below `n_nodes`.
pub(crate) fn node_of(
    array: &ArrayFile,
    what: &'static str,
    position: usize,
    id: i128,
    n_nodes: usize,
) -> Result<NodeId> {
    match u32::try_from(id) {
        Ok(id) if (id as usize) < n_nodes => Ok(NodeId(id)),
        _ => Err(node_error(array, what, position, id, n_nodes).into()),
    }
}

/// Returns the error for an id that is negative or not below `n_nodes`.
pub(crate) fn node_error(
    array: &ArrayFile,
    what: &'static str,
    position: usize,
    id: i128,
    n_nodes: usize,
) -> StoreError {
    array.bad_value(what, position, format!("a node id below {n_nodes}"), id)
}

/// Returns the class of each node; a negative number stands for no class. 32-bit classes are not copied.
pub(crate) fn labels_of(array: &ArrayFile, notes: &mut Vec<Note>) -> Result<SharedArray<i32>> {
    const TO: &str = "32-bit classes: save them as <i4 to have them mapped";
    array.check_vector()?;
    match array.dtype() {
        DType::I32 => Ok(array.elements()?),
        DType::I64 => {
            let labels = array.elements::<i64>()?;
            let mut classes = array.room()?;
            if let Some(position) = labels.iter().position(|&label| label > i64::from(i32::MAX)) {
                return Err(label_error(array, position, labels[position].into()).into());
            }
            notes.push(converted(array, TO));
            classes.extend(labels.iter().map(|&label| label.max(-1) as i32));
            Ok(classes.into())
        }
        _ => {
            let mut labels = array.room()?;
            array.for_each_integer_or_bool(|position, value| -> Result<()> {
                labels.push(label_of(array, position, value)?);
                Ok(())
            })?;
            notes.push(converted(array, TO));
            Ok(labels.into())
        }
    }
}

/// Returns a class as a 32-bit integer. A negative number stands for no class; it becomes -1, except in 32-bit arrays,
/// where it is kept.
pub(crate) fn label_of(array: &ArrayFile, position: usize, label: i128) -> Result<i32> {
    let least = if array.dtype() == DType::I32 { i128::from(i32::MIN) } else { -1 };
    i32::try_from(label.max(least)).map_err(|_| label_error(array, position, label).into())
}

/// Returns the error for a class of 2^31 or above.
fn label_error(array: &ArrayFile, position: usize, label: i128) -> StoreError {
    array.bad_value("the label of node", position, "below 2^31", label)
}

/// Returns the name of a file of the node type or the relation at a position in the folder of a heterogeneous set or of its
/// partitions: `indptr.2.npy` for `indptr.npy` and 2.
pub fn numbered(name: &str, position: usize) -> String {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, "npy"));
    format!("{stem}.{position}.{extension}")
}

/// What a value of features and of columns of edges should be.
pub(crate) const FINITE: &str = "finite numbers: replace NaN and infinite values before saving";

/// Returns the noun for a value of a column of edges in error messages.
pub(crate) fn column_value(column: &str) -> &'static str {
    match column {
        EdgeColumns::WEIGHTS => "the weight of edge",
        EdgeColumns::FEATURES => RowsOf::Edges.value(),
        _ => "a value of edge",
    }
}

/// The items that the feature rows of an array belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowsOf {
    /// A row per node.
    Nodes,
    /// A row per edge.
    Edges,
}

impl RowsOf {
    /// Returns the file of these rows in a folder of arrays.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Nodes => "features.npy",
            Self::Edges => "edge_features.npy",
        }
    }

    /// Returns the noun for the number of rows in error messages.
    pub(crate) fn count(self) -> &'static str {
        match self {
            Self::Nodes => "the number of feature rows",
            Self::Edges => "the number of edge feature rows",
        }
    }

    /// Returns the noun for a value in error messages.
    pub(crate) fn value(self) -> &'static str {
        match self {
            Self::Nodes => "a feature of node",
            Self::Edges => "a feature of edge",
        }
    }
}

/// Returns the feature rows of an array `[n_rows, dim]`, or `[n_rows]` for one column.
pub(crate) fn rows_of(array: &ArrayFile, of: RowsOf, notes: &mut Vec<Note>) -> Result<DenseFeatures> {
    let (_, dim) = row_shape(array)?;
    match array.dtype() {
        DType::F32 => Ok(DenseFeatures::from_f32(array.elements::<f32>()?, dim)?),
        DType::F16 => Ok(DenseFeatures::new(FeatureArray::F16(array.elements::<f16>()?), dim)?),
        DType::F64 => {
            let mut values = array.room()?;
            values.extend(array.elements::<f64>()?.iter().map(|&value| value as f32));
            check_finite(array, 0..values.len(), dim, of.value())?;
            notes.push(converted(array, "32-bit floats: save them as <f4 to have them mapped"));
            Ok(DenseFeatures::from_f32(values, dim)?)
        }
        _ => Err(array.wrong_type("<f4 or <f2").into()),
    }
}

/// Returns the element type in which the feature rows of an array are written.
pub(crate) fn written_type(array: &ArrayFile) -> Result<ElementType> {
    match array.dtype() {
        DType::F16 => Ok(ElementType::F16),
        DType::F32 | DType::F64 => Ok(ElementType::F32),
        _ => Err(array.wrong_type("<f4 or <f2").into()),
    }
}

/// Returns the number of rows and the number of columns. An array of one dimension has one column.
pub(crate) fn row_shape(array: &ArrayFile) -> Result<(usize, usize)> {
    match *array.shape() {
        [_, dim] if !(1..=MAX_DIM).contains(&dim) => Err(bad_dim(array.path(), dim).into()),
        [n_rows, dim] => Ok((n_rows, dim)),
        [n_rows] => Ok((n_rows, 1)),
        _ => Err(array.bad_shape("(n, dim)").into()),
    }
}

/// Checks that elements of an array are finite as numbers of 32 bits: the values of `<f8` that are too large would become
/// infinite. The array has `dim` elements per row, and `what` is the noun for an element of a row. Elements that are not floats
/// pass.
pub(crate) fn check_finite(
    array: &ArrayFile,
    elements: Range<usize>,
    dim: usize,
    what: &'static str,
) -> Result<()> {
    let dtype = array.dtype();
    let size = dtype.bytes();
    let bytes = &array.value_bytes()[elements.start * size..elements.end * size];
    let found = match dtype {
        DType::F16 => first_not_finite::<f16>(bytes, |value| value.is_finite()),
        DType::F32 => first_not_finite::<f32>(bytes, |value| value.is_finite()),
        DType::F64 => first_not_finite::<f64>(bytes, |value| (value as f32).is_finite()),
        _ => None,
    };
    let Some((position, found)) = found else { return Ok(()) };
    let expected = match dtype {
        DType::F64 => "finite numbers of 32 bits: replace NaN, infinite and larger values before saving",
        _ => FINITE,
    };
    Err(array.bad_value(what, (elements.start + position) / dim, expected, found).into())
}

/// Returns the position and the text of the first value that is not finite.
fn first_not_finite<T: AnyBitPattern + fmt::Debug>(
    bytes: &[u8],
    is_finite: impl Fn(T) -> bool,
) -> Option<(usize, String)> {
    let values = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
    values
        .enumerate()
        .find(|(_, value)| !is_finite(*value))
        .map(|(position, value)| (position, format!("{value:?}")))
}

fn converted(array: &ArrayFile, to: &str) -> Note {
    let from = format!("{} elements of {}", array.n_values(), array.dtype());
    Note::Converted { path: array.path().to_owned(), from, to: to.to_owned() }
}

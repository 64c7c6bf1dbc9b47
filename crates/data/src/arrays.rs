//! Arrays as data sets use them: ids, offsets, labels, rows, each from the element types that it may be
//! stored in. What can be used as it is stays mapped; what cannot is copied, with a note.

use half::f16;
use kiln_feature::{DenseFeatures, FeatureArray, MAX_DIM};
use kiln_graph::{NodeId, SharedArray};
use kiln_store::npy::DType;
use kiln_store::{ArrayFile, Error as StoreError};

use crate::limits::{bad_dim, check_node_count};
use crate::{Note, Result};

/// Offsets, as an `indptr` has them. Neither order nor range is checked: a negative one becomes a number
/// beyond all others.
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

/// Node ids. 32-bit ones stay as they are stored, and are checked where they are used; 64-bit ones are
/// copied and checked to be below `n_nodes`. `what` is one of them: `edge`, `entry`.
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
            // Read unsigned, a negative id is beyond every node. Finding a bad one first and converting
            // after lets both loops run at the speed of memory.
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
        _ => Err(array.wrong_type("<i4, <u4, <i8 or <u8").into()),
    }
}

/// An id as a node; an error for one that is none.
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

/// An error for an id that is no node.
pub(crate) fn node_error(
    array: &ArrayFile,
    what: &'static str,
    position: usize,
    id: i128,
    n_nodes: usize,
) -> StoreError {
    array.bad_value(what, position, format!("a node, 0 to {n_nodes} - 1"), id)
}

/// Classes, one a node; negative means that there is none. 32-bit ones stay as they are stored.
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
            array.for_each_integer(|position, value| -> Result<()> {
                labels.push(label_of(array, position, value)?);
                Ok(())
            })?;
            notes.push(converted(array, TO));
            Ok(labels.into())
        }
    }
}

/// A class as it is kept: negative ones stand for none, and become -1 where they were not 32-bit
/// integers.
pub(crate) fn label_of(array: &ArrayFile, position: usize, label: i128) -> Result<i32> {
    let least = if array.dtype() == DType::I32 { i128::from(i32::MIN) } else { -1 };
    i32::try_from(label.max(least)).map_err(|_| label_error(array, position, label).into())
}

/// An error for a class that is too large to be one.
fn label_error(array: &ArrayFile, position: usize, label: i128) -> StoreError {
    array.bad_value("the label of node", position, "below 2^31", label)
}

/// Rows of features, `[n_rows, dim]` or `[n_rows]` for one column.
pub(crate) fn rows_of(array: &ArrayFile, notes: &mut Vec<Note>) -> Result<DenseFeatures> {
    let (_, dim) = row_shape(array)?;
    match array.dtype() {
        DType::F32 => Ok(DenseFeatures::from_f32(array.elements::<f32>()?, dim)?),
        DType::F16 => Ok(DenseFeatures::new(FeatureArray::F16(array.elements::<f16>()?), dim)?),
        DType::F64 => {
            let mut values = array.room()?;
            values.extend(array.elements::<f64>()?.iter().map(|&value| value as f32));
            check_converted(array, &values, 0, dim)?;
            notes.push(converted(array, "32-bit floats: save them as <f4 to have them mapped"));
            Ok(DenseFeatures::from_f32(values, dim)?)
        }
        _ => Err(array.wrong_type("<f4 or <f2").into()),
    }
}

/// Number of rows and of columns; one dimension is one column.
pub(crate) fn row_shape(array: &ArrayFile) -> Result<(usize, usize)> {
    match *array.shape() {
        [_, dim] if !(1..=MAX_DIM).contains(&dim) => Err(bad_dim(array.path(), dim).into()),
        [n_rows, dim] => Ok((n_rows, dim)),
        [n_rows] => Ok((n_rows, 1)),
        ref shape => {
            let found = format!("{shape:?}");
            Err(array.bad_value("the shape, of dimension", 0, "(n, dim)", found).into())
        }
    }
}

/// Checks features that were made of the `<f8` elements from `first` on, `dim` a node: what is too large
/// for 32 bits became infinite.
pub(crate) fn check_converted(array: &ArrayFile, values: &[f32], first: usize, dim: usize) -> Result<()> {
    let Some(position) = values.iter().position(|value| !value.is_finite()) else {
        return Ok(());
    };
    let element = first + position;
    let bytes = &array.value_bytes()[8 * element..8 * (element + 1)];
    let found = format!("{:?}", bytemuck::pod_read_unaligned::<f64>(bytes));
    let expected = "finite numbers of 32 bits: replace the others before saving";
    Err(array.bad_value("a feature of node", element / dim, expected, found).into())
}

fn converted(array: &ArrayFile, to: &str) -> Note {
    let from = format!("{} elements of {}", array.n_values(), array.dtype());
    Note::Converted { path: array.path().to_owned(), from, to: to.to_owned() }
}

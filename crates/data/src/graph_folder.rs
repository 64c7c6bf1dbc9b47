//! The arrays that two folder formats share: the kiln format ([`format`](crate::format)) and the partitions of a graph.
//! Both are [`array_folder`](kiln_store::array_folder)s with the same file names for topology, targets and split; a
//! [`RowFiles`] contains the file names of feature rows.

mod class_names;
mod links;
mod row_files;
mod rows;
mod targets;

use kiln_graph::{Csc, NodeId, SharedArray};
use kiln_store::array_folder::ArrayFolder;

use crate::check::{Place, check_edge_data};
use crate::{Result, Split};

pub use self::class_names::{check_class_names, class_names_of, class_names_to_write};
pub(crate) use self::links::{
    LINK_FILES, NEGATIVES, check_negative_entries, link_entries, read_link_targets, shape_of_negatives,
    write_link_targets,
};
pub(crate) use self::row_files::FEATURE_FILES;
pub use self::row_files::{FEATURES, RowFiles};
pub use self::rows::{
    push_rows, read_edge_features, read_rows, row_element_type, verify_edge_features, verify_rows,
};
pub use self::targets::{
    LABELS, TARGETS, check_target_files, read_targets, target_files, verify_targets, write_targets,
};
pub use crate::arrays::{EDGE_FEATURES, numbered};

/// Returns the topology in `indptr.npy` and `indices.npy`, with `weights.npy` and `edge_types.npy` if they exist.
///
/// # Errors
/// Returns [`kiln_store::Error::Inconsistent`] or [`kiln_store::Error::BadValue`] if the offsets do not start at 0 or
/// do not end at the number of edges.
pub fn read_graph(arrays: &ArrayFolder) -> Result<Csc> {
    let weights = arrays.optional("weights.npy")?;
    let types = arrays.optional("edge_types.npy")?;
    let (indptr, indices) = (arrays.values("indptr.npy")?, arrays.values("indices.npy")?);
    graph_of(Place::Folder(arrays.folder()), indptr, indices, weights, types)
}

/// Returns the adjacency of the relation at a position, in `indptr.2.npy`, `indices.2.npy` and, if it exists,
/// `weights.2.npy` for position 2.
///
/// # Errors
/// Returns the errors of [`read_graph`].
pub fn read_relation(arrays: &ArrayFolder, position: usize) -> Result<Csc> {
    let name = |file| numbered(file, position);
    let weights = arrays.optional(&name("weights.npy"))?;
    let (indptr, indices) = (arrays.values(&name("indptr.npy"))?, arrays.values(&name("indices.npy"))?);
    graph_of(Place::Numbered(arrays.folder(), position), indptr, indices, weights, None)
}

/// Returns the graph of the given arrays. `place` is the location of the arrays for error messages.
pub(crate) fn graph_of(
    place: Place<'_>,
    indptr: SharedArray<u64>,
    indices: SharedArray<NodeId>,
    weights: Option<SharedArray<f32>>,
    types: Option<SharedArray<u8>>,
) -> Result<Csc> {
    let located = |error: kiln_graph::Error| place.located(error.into());
    let mut graph = Csc::new(indptr, indices).map_err(located)?;
    if let Some(weights) = weights {
        graph = graph.with_weights(weights).map_err(located)?;
    }
    if let Some(types) = types {
        graph = graph.with_edge_types(types).map_err(located)?;
    }
    Ok(graph)
}

/// Returns the split in `train.npy`, `val.npy` and `test.npy`.
///
/// # Errors
/// Returns the errors of [`ArrayFolder::values`].
pub fn read_split(arrays: &ArrayFolder) -> Result<Split> {
    Ok(Split {
        train: arrays.values("train.npy")?,
        val: arrays.values("val.npy")?,
        test: arrays.values("test.npy")?,
    })
}

/// Reads all weights and edge types, and checks that weights are finite and that all types have names if any type has a
/// name.
///
/// # Errors
/// Returns [`kiln_store::Error::BadValue`] with the first invalid value.
pub fn verify_edge_data(arrays: &ArrayFolder, edge_type_names: &[String]) -> Result<()> {
    check_edge_data(&read_graph(arrays)?, edge_type_names, Place::Folder(arrays.folder()))
}

/// Reads all weights of the relation at a position and checks that they are finite.
///
/// # Errors
/// Returns [`kiln_store::Error::BadValue`] with the first invalid value.
pub fn verify_relation_weights(arrays: &ArrayFolder, position: usize) -> Result<()> {
    check_edge_data(&read_relation(arrays, position)?, &[], Place::Numbered(arrays.folder(), position))
}

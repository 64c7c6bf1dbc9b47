//! What folders of arrays that hold a graph have alike ([`array_folder`](kiln_store::array_folder)): the kiln format
//! ([`format`](crate::format)), and the parts of a graph. Topology, labels and split stand under the same names in
//! each; feature rows under the names of [`RowFiles`].

mod class_names;
mod rows;

use kiln_feature::Labels;
use kiln_graph::{Csc, NodeId, SharedArray};
use kiln_store::array_folder::ArrayFolder;

use crate::check::{Place, check_edge_data, check_split};
use crate::{Note, Result, Split};

pub use self::class_names::{check_class_names, class_names_of, class_names_to_write};
pub use self::rows::{FEATURES, RowFiles, push_rows, read_rows, row_element_type, verify_rows};

/// Returns the topology in `indptr.npy` and `indices.npy`, with `weights.npy` and `edge_types.npy` where they are there.
///
/// # Errors
/// [`kiln_store::Error::Inconsistent`] and [`kiln_store::Error::BadValue`] for offsets that do not end where the edges do.
pub fn read_graph(arrays: &ArrayFolder) -> Result<Csc> {
    let weights = arrays.optional("weights.npy")?;
    let types = arrays.optional("edge_types.npy")?;
    let (indptr, indices) = (arrays.values("indptr.npy")?, arrays.values("indices.npy")?);
    graph_of(Place::Folder(arrays.folder()), indptr, indices, weights, types)
}

/// The graph of these arrays; `place` is where they are.
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

/// Returns the classes in `labels.npy`.
///
/// # Errors
/// As [`ArrayFolder::values`].
pub fn read_labels(arrays: &ArrayFolder, n_classes: usize) -> Result<Labels> {
    Ok(Labels::new(arrays.values::<i32>("labels.npy")?, n_classes))
}

/// Returns the split in `train.npy`, `val.npy` and `test.npy`.
///
/// # Errors
/// As [`ArrayFolder::values`].
pub fn read_split(arrays: &ArrayFolder) -> Result<Split> {
    Ok(Split {
        train: arrays.values("train.npy")?,
        val: arrays.values("val.npy")?,
        test: arrays.values("test.npy")?,
    })
}

/// Reads all weights and edge types and checks that they are finite, and have names where there are any.
///
/// # Errors
/// [`kiln_store::Error::BadValue`] with the first that is not.
pub fn verify_edge_data(arrays: &ArrayFolder, edge_type_names: &[String]) -> Result<()> {
    check_edge_data(&read_graph(arrays)?, edge_type_names, Place::Folder(arrays.folder()))
}

/// Reads labels and split and checks that classes exist, and that the nodes of the split have one. Notes parts of the
/// split that overlap.
///
/// # Errors
/// [`kiln_store::Error::BadValue`] with the first that is not, [`Error::Feature`](crate::Error::Feature).
pub fn verify_labels(arrays: &ArrayFolder, n_classes: usize, notes: &mut Vec<Note>) -> Result<()> {
    let (place, labels) = (Place::Folder(arrays.folder()), read_labels(arrays, n_classes)?);
    labels.validate().map_err(|error| place.located(error.into()))?;
    check_split(place, &read_split(arrays)?, &labels, notes)
}

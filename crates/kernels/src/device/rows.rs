//! Feature rows that the host sends to a device for one batch.

use burn::tensor::{Device, Tensor, TensorData};
use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;

#[cfg(feature = "cube")]
use crate::cube::{launch::anchor, staging};
use crate::device::row_source::{NodeRows, RowSource};

/// Gathers the rows of nodes from a store in the host's memory, and sends them to a device as f32, `[n, dim]`.
///
/// On CUDA, the store writes the rows directly to pinned memory, from which the device copies asynchronously. Rows of
/// half precision are sent as they are stored, and the device widens them.
///
/// # Errors
/// Returns the errors of [`FeatureStore::gather`].
pub fn gather_features<F: FeatureStore + ?Sized>(
    source: &F,
    nodes: &[NodeId],
    device: &Device,
) -> kiln_feature::Result<Tensor<2>> {
    gather_rows(&NodeRows(source), nodes, device)
}

/// Implements [`gather_features`] for rows of nodes or edges.
pub(crate) fn gather_rows<S: RowSource>(
    source: &S,
    ids: &[S::Id],
    device: &Device,
) -> kiln_feature::Result<Tensor<2>> {
    #[cfg(feature = "cube")]
    if let Some(anchor) = anchor(device) {
        let rows = staging::gather(&anchor, source, ids)?;
        return Ok(staging::widened(&anchor, rows, source.dim(), source.dtype()));
    }
    let mut rows = FeatureBuffer::empty(source.dtype());
    source.gather(ids, &mut rows)?;
    Ok(on_cpu(rows, source.dim(), device))
}

/// Sends gathered rows of `dim` columns to a device as f32, `[n, dim]`. For rows that are not gathered yet, use
/// [`gather_features`], which copies them once less.
///
/// On CUDA, the calling thread copies the rows to pinned memory, from which the device copies asynchronously. Rows of
/// half precision are sent as they are stored, and the device widens them. On the CPU, f32 rows are moved.
///
/// # Panics
/// Panics if the number of values is not a multiple of `dim`.
pub fn upload_features(rows: FeatureBuffer, dim: usize, device: &Device) -> Tensor<2> {
    let n_values = rows.n_values();
    assert!(
        n_values.is_multiple_of(dim),
        "{n_values} values are not a whole number of rows of {dim} columns"
    );
    #[cfg(feature = "cube")]
    if let Some(anchor) = anchor(device) {
        let row_type = rows.dtype();
        return staging::widened(&anchor, staging::stage(&anchor, rows), dim, row_type);
    }
    on_cpu(rows, dim, device)
}

fn on_cpu(rows: FeatureBuffer, dim: usize, device: &Device) -> Tensor<2> {
    let n_rows = rows.n_values() / dim;
    Tensor::from_data(TensorData::new(rows.into_f32(), [n_rows, dim]), &device.clone().inner())
}

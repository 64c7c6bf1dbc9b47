//! Feature rows that the host sends to a device for one batch.

use burn::tensor::{Device, Tensor, TensorData};
use kiln_feature::{FeatureBuffer, FeatureStore};
use kiln_graph::NodeId;

#[cfg(feature = "cube")]
use crate::cube::{launch::anchor, staging};
use crate::device::row_source::{NodeRows, RowSource};

/// Gathers the rows of nodes from a store in the host's memory, and sends them to a device, `[n, dim]`.
///
/// On the CPU, the tensor has the element type of the store: f32, f16 or bf16. Ops of layers that read features widen the
/// rows as they read them ([`ops::aggregate_f32`](crate::ops::aggregate_f32), [`ops::linear`](crate::ops::linear));
/// for other ops, [`ops::widen`](crate::ops::widen) returns f32 rows. On other devices, the tensor is f32: rows of half
/// precision are sent as they are stored, and the device widens them. On CUDA, the store writes the rows directly to
/// pinned memory, from which the device copies asynchronously.
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
        let sent = staging::sent_type(&anchor, source.dtype());
        let rows = staging::gather(&anchor, source, ids, sent)?;
        return Ok(staging::widened(&anchor, rows, source.dim(), source.dtype()));
    }
    let mut rows = FeatureBuffer::empty(source.dtype());
    source.gather(ids, &mut rows)?;
    Ok(on_cpu(rows, source.dim(), device))
}

/// Sends gathered rows of `dim` columns to a device, `[n, dim]`. For rows that are not gathered yet, use
/// [`gather_features`], which copies them once less. The tensor has the same element type as there.
///
/// On the CPU, the rows are moved. On CUDA, the calling thread copies them to pinned memory, from which the device copies
/// asynchronously.
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
    let shape = [rows.n_values() / dim, dim];
    let data = match rows {
        FeatureBuffer::F16(values) => TensorData::new(values, shape),
        FeatureBuffer::BF16(values) => TensorData::new(values, shape),
        rows => TensorData::new(rows.into_f32(), shape),
    };
    let dtype = data.dtype();
    Tensor::from_data(data, (&device.clone().inner(), dtype))
}

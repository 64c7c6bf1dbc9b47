//! Gathers feature rows from a table in the device's memory, which contains all rows or some of them.
//!
//! ```text
//! out[i] = rows[slots[nodes[i]]]    if that row is on the device, otherwise the row that the host sent for it
//! ```
//!
//! * *Contract.* `out` is f32 and overwritten; half-precision rows are widened exactly. The values are exactly those of
//!   the source, whether a row was on the device or not.
//! * *Work distribution.* If the table has only some rows, running sums number the nodes whose row is missing, and their
//!   ids are listed in the order of the nodes and read back with one wait. (The
//!   list has room for all nodes and is read as a whole, because its length is not known before.) Then each unit copies
//!   one vector of one row.
//! * *Cost.* Memory-bound: `F b` bytes read and `4 F` written per row of `F` columns of `b` bytes; each missing row is
//!   transferred from the host.

use burn::tensor::{Bytes, DType, Device, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use kiln_feature::{FeatureBuffer, FeatureDType, FeatureStore};
use kiln_graph::NodeId;

use crate::cube::launch::{self, Rows, launch_units};
use crate::cube::scan::{Values, running_sums_of};
use crate::device::error::UploadError;

/// The slot of a node whose row is not in the table.
const MISSING: u32 = u32::MAX;

/// 1 for each node whose row is not in the table, and 0 for the others.
struct IsMissing;

#[derive(CubeType, CubeLaunch)]
struct IsMissingInputs {
    nodes: Box<[u32]>,
    slots: Box<[u32]>,
}

#[cube]
impl Values for IsMissing {
    type Inputs = IsMissingInputs;

    fn value(inputs: &IsMissingInputs, position: usize) -> u32 {
        u32::cast_from(inputs.slots[inputs.nodes[position] as usize] == MISSING)
    }
}

#[cube(launch, address_type = "dynamic")]
fn list_missing(nodes: &[u32], n_missing_before: &[u32], list: &mut [u32]) {
    if ABSOLUTE_POS >= nodes.len() {
        terminate!();
    }
    let place = n_missing_before[ABSOLUTE_POS];
    if n_missing_before[ABSOLUTE_POS + 1] != place {
        list[place as usize] = nodes[ABSOLUTE_POS];
    }
}

#[cube(launch, address_type = "dynamic")]
fn gather<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    sent: &[Vector<F, N>],
    nodes: &[u32],
    slots: &[u32],
    n_missing_before: &[u32],
    out: &mut [Vector<f32, N>],
    width: usize,
    #[comptime] has_all: bool,
    #[define(F)] _dtype: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let node = nodes[row] as usize;
    if comptime!(has_all) {
        out[ABSOLUTE_POS] = Vector::cast_from(rows[node * width + column]);
    } else {
        let slot = slots[node];
        if slot == MISSING {
            out[ABSOLUTE_POS] = Vector::cast_from(sent[n_missing_before[row] as usize * width + column]);
        } else {
            out[ABSOLUTE_POS] = Vector::cast_from(rows[slot as usize * width + column]);
        }
    }
}

/// A table of rows, `[n_rows, dim]`, and the slot of each node in it.
#[derive(Debug)]
pub(crate) struct FeatureRows {
    rows: CubeTensor,
    /// For each node, the row of the table that has its features, or [`MISSING`], `[n_nodes]`. `None` if row `v` of the
    /// table belongs to node `v`.
    slots: Option<CubeTensor>,
    row_type: FeatureDType,
}

/// Gathered rows, and the number of them that the host had to send.
pub(crate) struct Gathered {
    pub(crate) rows: CubeTensor,
    pub(crate) n_sent: usize,
}

impl FeatureRows {
    /// Copies all rows to the device of a tensor.
    ///
    /// # Errors
    /// Returns [`UploadError::Features`] if the source fails, [`UploadError::TooLarge`] if the device cannot allocate
    /// the table, and [`UploadError::Device`] if it fails.
    pub(crate) fn all(anchor: &CubeTensor, source: &dyn FeatureStore) -> Result<Self, UploadError> {
        let row_type = stored_type(anchor, source);
        let rows = upload_rows(anchor, source, row_type, source.n_rows(), |range| {
            range.map(|row| NodeId(row as u32)).collect()
        })?;
        Ok(Self { rows, slots: None, row_type })
    }

    /// Copies the rows of some nodes to the device of a tensor.
    ///
    /// # Errors
    /// Same as [`FeatureRows::all`].
    pub(crate) fn some(
        anchor: &CubeTensor,
        source: &dyn FeatureStore,
        nodes: &[NodeId],
    ) -> Result<Self, UploadError> {
        let row_type = stored_type(anchor, source);
        let rows = upload_rows(anchor, source, row_type, nodes.len(), |range| nodes[range].to_vec())?;
        let mut slots = vec![MISSING; source.n_rows()];
        for (slot, node) in nodes.iter().enumerate() {
            slots[node.index()] = slot as u32;
        }
        let slots = launch::upload_large(anchor, "the slots of the feature rows", &slots, DType::U32)?;
        Ok(Self { rows, slots: Some(slots), row_type })
    }

    /// The number of rows in the table.
    pub(crate) fn n_rows(&self) -> usize {
        self.rows.meta.shape()[0]
    }

    /// Gathers the rows of nodes, `[n] -> [n, dim]`. Rows that are not in the table come from the source.
    ///
    /// # Errors
    /// Returns an error of the source if it cannot gather the missing rows.
    pub(crate) fn gather(
        &self,
        nodes: &CubeTensor,
        source: &dyn FeatureStore,
    ) -> kiln_feature::Result<Gathered> {
        let n_nodes = launch::length(nodes);
        let Some(slots) = self.slots.as_ref().filter(|_| 0 < n_nodes) else {
            return Ok(Gathered { rows: self.launch(nodes, &self.rows, nodes, nodes), n_sent: 0 });
        };
        let address = launch::address(&[slots, nodes]);
        let n_missing_before = running_sums_of::<IsMissing>(nodes, n_nodes, address, || {
            let [nodes, slots] = [nodes, slots].map(launch::buffer);
            IsMissingInputsLaunch::new(nodes, slots)
        });
        let list = launch::new_array(nodes, n_nodes);
        let [of_nodes, before, to] = [nodes, &n_missing_before, &list].map(launch::buffer);
        launch_units!(list_missing, nodes, n_nodes, address, of_nodes, before, to);
        let [n_sent, list] = launch::read([&launch::values_from(&n_missing_before, n_nodes, 1), &list]);
        let n_sent = n_sent[0] as usize;
        let mut rows = FeatureBuffer::empty(self.row_type);
        source.gather(bytemuck::cast_slice(&list[..n_sent]), &mut rows)?;
        let handle = nodes.client.create(bytes_of(rows, self.row_type));
        let (client, device) = (nodes.client.clone(), nodes.device.clone());
        let shape = Shape::new([n_sent, source.dim()]);
        let sent = CubeTensor::new_contiguous(client, device, shape, handle, self.rows.dtype);
        Ok(Gathered { rows: self.launch(nodes, &sent, slots, &n_missing_before), n_sent })
    }

    fn launch(
        &self,
        nodes: &CubeTensor,
        sent: &CubeTensor,
        slots: &CubeTensor,
        n_missing_before: &CubeTensor,
    ) -> CubeTensor {
        let rows = Rows::of(self.rows.clone());
        let (n_nodes, width) = (launch::length(nodes), rows.width());
        let out = Rows::new(nodes, n_nodes, width, DType::F32);
        if n_nodes == 0 {
            return out.into_tensor();
        }
        let vector_size = rows.vector_size(&[width]).min(out.vector_size(&[width]));
        launch_units!(
            gather,
            nodes,
            n_nodes * width / vector_size,
            launch::address(&[rows.tensor(), sent, out.tensor()]),
            vector_size,
            rows.buffer(vector_size),
            launch::vectors(sent, vector_size),
            launch::buffer(nodes),
            launch::buffer(slots),
            launch::buffer(n_missing_before),
            out.buffer(vector_size),
            width / vector_size,
            self.slots.is_none(),
            launch::element(rows.tensor())
        );
        out.into_tensor()
    }
}

/// Returns the number of bytes that a row occupies on the device.
pub(crate) fn row_bytes(anchor: &CubeTensor, source: &dyn FeatureStore) -> usize {
    source.dim() * stored_type(anchor, source).bytes()
}

/// Returns the element type of rows on the device: that of the source, or f32 if the device does not support it.
fn stored_type(anchor: &CubeTensor, source: &dyn FeatureStore) -> FeatureDType {
    let device = Device::new(anchor.device.clone());
    let row_type = source.dtype();
    if device.supports_dtype(dtype(row_type)) { row_type } else { FeatureDType::F32 }
}

fn dtype(row_type: FeatureDType) -> DType {
    match row_type {
        FeatureDType::F16 => DType::F16,
        FeatureDType::BF16 => DType::BF16,
        _ => DType::F32,
    }
}

/// Returns the bytes of the rows in the element type `row_type`, which must be f32 or the rows' own type. The rows are
/// copied only if they are converted.
fn bytes_of(rows: FeatureBuffer, row_type: FeatureDType) -> Bytes {
    match rows {
        FeatureBuffer::F16(values) if row_type == FeatureDType::F16 => Bytes::from_elems(values),
        FeatureBuffer::BF16(values) if row_type == FeatureDType::BF16 => Bytes::from_elems(values),
        rows => Bytes::from_elems(rows.into_f32()),
    }
}

/// Gathers and copies rows in pieces, so that the host holds at most one piece. `nodes` returns the nodes of a range of
/// rows.
fn upload_rows(
    anchor: &CubeTensor,
    source: &dyn FeatureStore,
    row_type: FeatureDType,
    n_rows: usize,
    nodes: impl Fn(std::ops::Range<usize>) -> Vec<NodeId>,
) -> Result<CubeTensor, UploadError> {
    let dim = source.dim();
    // Each piece has an even number of rows, so that pieces of half precision begin at multiples of 4 bytes.
    let rows_a_piece = (launch::PIECE_BYTES / (dim * row_type.bytes())).next_multiple_of(2);
    let pieces = (0..n_rows).step_by(rows_a_piece).map(|first| {
        let mut rows = FeatureBuffer::empty(source.dtype());
        source.gather(&nodes(first..(first + rows_a_piece).min(n_rows)), &mut rows)?;
        Ok(bytes_of(rows, row_type))
    });
    launch::upload_pieces(anchor, "the feature rows", Shape::new([n_rows, dim]), dtype(row_type), pieces)
}

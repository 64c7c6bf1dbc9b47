//! Gathers feature rows from a table in the device's memory, which contains all rows or, for nodes, some of them.
//!
//! ```text
//! out[i] = rows[ids[i]]             if all rows are on the device
//! out[i] = rows[slots[ids[i]]]      if that row is on the device, otherwise the row that the host sent for it
//! ```
//!
//! * *Ids.* Nodes have ids of 32 bits, edges of 64. Positions have 64 bits where a table has more rows than 32 bits count.
//! * *Contract.* `out` is f32 and overwritten; half-precision rows are widened exactly. The values are exactly those of
//!   the source, whether a row was on the device or not. With [`MatmulPrecision::Bf16`](crate::ops::MatmulPrecision::Bf16) on
//!   CUDA, the rows of nodes are rounded to bf16 before they are sent, and `out` is bf16.
//! * *Layout.* A table that exceeds the device's largest allocation consists of parts of equally many rows, of which the
//!   last may have fewer.
//! * *Work distribution.* If the table has only some rows, running sums number the nodes whose row is missing, and their
//!   ids are listed in the order of the nodes and read back with one wait. (The
//!   list has room for all nodes and is read as a whole, because its length is not known before.) Then each unit copies
//!   one vector of one row. There is a launch for each part, which writes the rows that the part contains; the first
//!   also writes the rows that the host sent.
//! * *Cost.* Memory-bound: `F b` bytes read and `4 F` written per row of `F` columns of `b` bytes; each missing row is
//!   transferred from the host. A further part costs 8 bytes read per vector of a row, mostly from the caches.

use std::ops::Range;

use burn::tensor::{DType, Device, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use kiln_feature::{FeatureDType, FeatureStore};
use kiln_graph::NodeId;

use crate::cube::launch::{self, Rows, launch_units};
use crate::cube::scan::{Values, running_sums_of};
use crate::cube::staging;
use crate::device::error::UploadError;
use crate::device::row_source::{NodeRows, RowSource};
use crate::ops::half::reads_bf16;

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
fn gather<F: Float, O: Float, I: Int, N: Size>(
    rows: &[Vector<F, N>],
    sent: &[Vector<F, N>],
    ids: &[I],
    slots: &[u32],
    n_missing_before: &[u32],
    out: &mut [Vector<O, N>],
    width: usize,
    first: usize,
    n_rows: usize,
    #[comptime] has_all: bool,
    #[comptime] is_part: bool,
    #[define(F)] _dtype: ElemType,
    #[define(O)] _out_type: ElemType,
    #[define(I)] _id_type: ElemType,
) {
    if ABSOLUTE_POS >= out.len() {
        terminate!();
    }
    let row = ABSOLUTE_POS / width;
    let column = ABSOLUTE_POS % width;
    let id = usize::cast_from(ids[row]);
    if comptime!(has_all) {
        if comptime!(is_part) {
            if first <= id && id - first < n_rows {
                out[ABSOLUTE_POS] = Vector::cast_from(rows[(id - first) * width + column]);
            }
        } else {
            out[ABSOLUTE_POS] = Vector::cast_from(rows[id * width + column]);
        }
    } else {
        let slot = slots[id];
        if comptime!(is_part) {
            let slot = slot as usize;
            if slot == MISSING as usize {
                if first == 0 {
                    out[ABSOLUTE_POS] =
                        Vector::cast_from(sent[n_missing_before[row] as usize * width + column]);
                }
            } else if first <= slot && slot - first < n_rows {
                out[ABSOLUTE_POS] = Vector::cast_from(rows[(slot - first) * width + column]);
            }
        } else if slot == MISSING {
            out[ABSOLUTE_POS] = Vector::cast_from(sent[n_missing_before[row] as usize * width + column]);
        } else {
            out[ABSOLUTE_POS] = Vector::cast_from(rows[slot as usize * width + column]);
        }
    }
}

/// A table of rows of nodes or edges, `[n_rows, dim]`, and the slot of each node in it.
#[derive(Debug)]
pub(crate) struct FeatureRows {
    /// The rows, in one or more parts, and the range of each part's rows in the table. All parts except the last have the
    /// same number of rows.
    parts: Vec<(Range<usize>, CubeTensor)>,
    /// For each node, the row of the table that has its features, or [`MISSING`], `[n_nodes]`. `None` if row `v` of the
    /// table belongs to the node or edge `v`.
    slots: Option<CubeTensor>,
    types: RowTypes,
}

/// The element types of the rows of nodes or edges in a table, and of gathered rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowTypes {
    stored: FeatureDType,
    gathered: DType,
}

impl RowTypes {
    /// Returns the types of the rows of a source on the device of a tensor.
    pub(crate) fn of<S: RowSource>(anchor: &CubeTensor, source: &S) -> Self {
        match S::ARE_INPUTS && reads_bf16(&Device::new(anchor.device.clone())) {
            true => Self { stored: FeatureDType::BF16, gathered: DType::BF16 },
            false => Self { stored: staging::sent_type(anchor, source.dtype()), gathered: DType::F32 },
        }
    }

    /// Returns the number of bytes that a row of this many columns occupies on the device.
    pub(crate) fn row_bytes(self, dim: usize) -> usize {
        dim * self.stored.bytes()
    }
}

/// Gathered rows, and the number of them that the host had to send.
pub(crate) struct Gathered {
    pub(crate) rows: CubeTensor,
    pub(crate) n_sent: usize,
}

impl FeatureRows {
    /// Copies all rows to the device of a tensor. A part has at most `part_bytes` bytes, or as many as the device
    /// allocates at once.
    ///
    /// # Errors
    /// Returns [`UploadError::Features`] if the source fails, [`UploadError::OutOfMemory`] if the device cannot allocate
    /// the table, [`UploadError::TooLarge`] if it cannot allocate one row, and [`UploadError::Device`] if it fails.
    pub(crate) fn all<S: RowSource>(
        anchor: &CubeTensor,
        source: &S,
        part_bytes: u64,
    ) -> Result<Self, UploadError> {
        let types = RowTypes::of(anchor, source);
        let parts =
            upload_rows(anchor, source, types, part_bytes, source.n_rows(), |range: Range<usize>| {
                range.map(S::id).collect()
            })?;
        Ok(Self { parts, slots: None, types })
    }

    /// Copies the rows of some nodes to the device of a tensor.
    ///
    /// # Errors
    /// Same as [`FeatureRows::all`]. Also returns [`UploadError::TooLarge`] if the device cannot allocate the slots.
    pub(crate) fn some(
        anchor: &CubeTensor,
        source: &dyn FeatureStore,
        part_bytes: u64,
        nodes: &[NodeId],
    ) -> Result<Self, UploadError> {
        let source = NodeRows(source);
        let types = RowTypes::of(anchor, &source);
        let parts = upload_rows(anchor, &source, types, part_bytes, nodes.len(), |range: Range<usize>| {
            nodes[range].to_vec()
        })?;
        let mut slots = vec![MISSING; source.n_rows()];
        for (slot, node) in nodes.iter().enumerate() {
            slots[node.index()] = slot as u32;
        }
        let slots = launch::upload_large(anchor, "the slots of the feature rows", &slots, DType::U32)?;
        Ok(Self { parts, slots: Some(slots), types })
    }

    /// The number of rows in the table.
    pub(crate) fn n_rows(&self) -> usize {
        self.parts.iter().map(|(range, _)| range.len()).sum()
    }

    /// The number of parts of the table.
    pub(crate) fn n_parts(&self) -> usize {
        self.parts.len()
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
            return Ok(Gathered { rows: self.gather_all(nodes), n_sent: 0 });
        };
        let n_missing_before = running_sums_of::<IsMissing>(nodes, n_nodes, || {
            let [nodes, slots] = [nodes, slots].map(launch::buffer);
            IsMissingInputsLaunch::new(nodes, slots)
        });
        let list = launch::new_array(nodes, n_nodes);
        let [of_nodes, before, to] = [nodes, &n_missing_before, &list].map(launch::buffer);
        launch_units!(list_missing, nodes, n_nodes, of_nodes, before, to);
        let [n_sent, list] = launch::read([&launch::values_from(&n_missing_before, n_nodes, 1), &list]);
        let n_sent = n_sent[0] as usize;
        let missing = bytemuck::cast_slice(&list[..n_sent]);
        let sent = staging::gather(nodes, &NodeRows(source), missing, self.types.stored)?;
        let sent = staging::upload(nodes, sent, source.dim(), self.types.stored);
        Ok(Gathered { rows: self.launch(nodes, &sent, slots, &n_missing_before), n_sent })
    }

    /// Gathers the rows of ids from a table with all rows, `[n] -> [n, dim]`.
    pub(crate) fn gather_all(&self, ids: &CubeTensor) -> CubeTensor {
        // The kernel reads no other row and no slot.
        self.launch(ids, &self.parts[0].1, ids, ids)
    }

    fn launch(
        &self,
        ids: &CubeTensor,
        sent: &CubeTensor,
        slots: &CubeTensor,
        n_missing_before: &CubeTensor,
    ) -> CubeTensor {
        let n_ids = launch::length(ids);
        let width = self.parts[0].1.meta.shape()[1];
        let out = Rows::new(ids, n_ids, width, self.types.gathered);
        if n_ids == 0 {
            return out.into_tensor();
        }
        // Positions in the table are compared with the ranges of its parts, whatever the size of a part.
        let n_positions = self.parts.iter().map(|(range, _)| range.end).max().unwrap_or(0);
        for (range, part) in &self.parts {
            let rows = Rows::of(part.clone());
            let vector_size = rows.vector_size(&[width]).min(out.vector_size(&[width]));
            launch::reach(n_positions);
            launch_units!(
                gather,
                ids,
                n_ids * width / vector_size,
                vector_size,
                rows.buffer(vector_size),
                launch::vectors(sent, vector_size),
                launch::buffer(ids),
                launch::buffer(slots),
                launch::buffer(n_missing_before),
                out.buffer(vector_size),
                width / vector_size,
                range.start,
                range.len(),
                self.slots.is_none(),
                1 < self.parts.len(),
                launch::element(rows.tensor()),
                launch::element(out.tensor()),
                launch::id_type(ids)
            );
        }
        out.into_tensor()
    }
}

/// Allocates a table and copies rows to it. `ids` returns the ids of a range of rows. A part has at most `part_bytes`
/// bytes.
fn upload_rows<S: RowSource>(
    anchor: &CubeTensor,
    source: &S,
    types: RowTypes,
    part_bytes: u64,
    n_rows: usize,
    ids: impl Fn(Range<usize>) -> Vec<S::Id>,
) -> Result<Vec<(Range<usize>, CubeTensor)>, UploadError> {
    let row_bytes = types.row_bytes(source.dim());
    let memory = &anchor.client.properties().memory;
    // The device rounds the size of an allocation up to the alignment.
    let most = (memory.max_page_size - memory.max_page_size % memory.alignment).min(part_bytes);
    let rows_per_part = (most / row_bytes as u64) as usize;
    if rows_per_part == 0 && 0 < n_rows {
        return Err(UploadError::TooLarge { what: S::TABLE, n_bytes: row_bytes as u64, most });
    }
    let parts = allocate(anchor, source, types, part_ranges(n_rows, rows_per_part))?;
    // The host holds at most one piece of the rows. Each piece has an even number of rows, so that pieces of half
    // precision begin at multiples of 4 bytes. The ids of a piece are not larger than a piece.
    let rows_a_piece = (launch::PIECE_BYTES / row_bytes.max(size_of::<S::Id>())).next_multiple_of(2);
    for (range, part) in &parts {
        let pieces = range.clone().step_by(rows_a_piece).map(|first| {
            let ids = ids(first..(first + rows_a_piece).min(range.end));
            Ok(staging::gather(anchor, source, &ids, types.stored)?)
        });
        launch::fill(part, S::TABLE, pieces)?;
    }
    Ok(parts)
}

/// Returns the rows of each part: one part at least, all with the same number of rows except the last, and as few as
/// possible.
fn part_ranges(n_rows: usize, most_rows: usize) -> Vec<Range<usize>> {
    let n_parts = n_rows.div_ceil(most_rows.max(1)).max(1);
    // Parts of one size leave less memory unused than a small part after large ones.
    let n_each = n_rows.div_ceil(n_parts);
    (0..n_parts).map(|part| part * n_each..((part + 1) * n_each).min(n_rows)).collect()
}

/// Allocates the parts of a table before any row is gathered, so that a device without the memory for it is detected at
/// once.
///
/// # Errors
/// Returns [`UploadError::OutOfMemory`] if the device has less memory, or if an allocation fails.
fn allocate<S: RowSource>(
    anchor: &CubeTensor,
    source: &S,
    types: RowTypes,
    ranges: Vec<Range<usize>>,
) -> Result<Vec<(Range<usize>, CubeTensor)>, UploadError> {
    let n_rows: usize = ranges.iter().map(ExactSizeIterator::len).sum();
    let n_bytes = n_rows as u64 * types.row_bytes(source.dim()) as u64;
    let out_of_memory =
        |reason| UploadError::OutOfMemory { what: S::TABLE, n_bytes, reason, instead: S::INSTEAD };
    if let Some(most) = anchor.client.properties().memory.max_memory()
        && most < n_bytes
    {
        return Err(out_of_memory(format!("the device has {most} bytes")));
    }
    let dtype = staging::dtype(types.stored);
    let dim = source.dim();
    // Each part is an allocation of its own. In a shared pool, it would set the size of all later pages, so that the
    // next small allocation would take as much memory as a part.
    let parts: Vec<_> = anchor.client.memory_dedicated_allocation(ranges, |ranges| {
        ranges
            .into_iter()
            .map(|range: Range<usize>| {
                let shape = Shape::new([range.len(), dim]);
                (range, launch::new_tensor(anchor, shape, dtype))
            })
            .collect()
    });
    for (_, part) in &parts {
        launch::wait(part)
            .map_err(|error| out_of_memory(format!("the device cannot allocate them ({error})")))?;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_contain_each_row_once_and_have_equal_sizes() {
        let starts = |n_rows, most_rows| -> Vec<usize> {
            part_ranges(n_rows, most_rows).into_iter().map(|part| part.start).collect()
        };
        assert_eq!(starts(10, 10), [0]);
        assert_eq!(starts(10, 9), [0, 5]);
        assert_eq!(starts(11, 4), [0, 4, 8]);
        // A table without rows has one part, because kernels need one.
        assert_eq!((starts(0, 4), starts(0, 0)), (vec![0], vec![0]));
        for (n_rows, most_rows) in [(9, 4), (17, 5), (100, 33), (7, 6), (10, 4)] {
            let parts = part_ranges(n_rows, most_rows);
            let rows: Vec<usize> = parts.iter().cloned().flatten().collect();
            assert_eq!(rows, (0..n_rows).collect::<Vec<_>>());
            assert!(parts.iter().all(|part| !part.is_empty() && part.len() <= most_rows), "{parts:?}");
        }
    }

    /// The ids of edges have 64 bits. The parts of the table have nine rows in all, at positions on both sides of 2^32.
    #[cfg(feature = "cube-cpu")]
    #[test]
    fn gathers_rows_behind_the_range_of_32_bits() {
        let anchor =
            launch::anchor(&burn::tensor::Device::cpu()).expect("the device should run CubeCL kernels");
        let wide = 1_usize << 32;
        let part = |range: Range<usize>| {
            let rows: Vec<f32> =
                range.clone().flat_map(|row| [row as u8, (row >> 30) as u8]).map(f32::from).collect();
            let CubeTensor { handle, client, device, .. } = launch::upload_as(&anchor, &rows, DType::F32);
            let shape = Shape::new([range.len(), 2]);
            (range, CubeTensor::new_contiguous(client, device, shape, handle, DType::F32))
        };
        let parts = vec![part(0..3), part(wide - 2..wide + 1), part(wide + 1..wide + 4)];
        let types = RowTypes { stored: FeatureDType::F32, gathered: DType::F32 };
        let table = FeatureRows { parts, slots: None, types };
        let ids = [wide + 3, 1, wide - 1, wide, wide + 1, 2, wide - 2].map(|id| id as i64);
        let rows = table.gather_all(&launch::upload_as(&anchor, &ids, DType::I64));
        let expected: Vec<f32> =
            ids.iter().flat_map(|&id| [id as u8, (id >> 30) as u8]).map(f32::from).collect();
        let [got] = launch::read([&rows]);
        assert_eq!(got.into_iter().map(f32::from_bits).collect::<Vec<_>>(), expected);
    }
}

use std::fmt;

use bytemuck::{Pod, Zeroable};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kiln_graph::{NodeId, SharedArray};
use kiln_mem::{RowId, copy_rows, copy_rows_to};

use crate::{Error, MAX_DIM, Result};

/// The element type of feature rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FeatureDType {
    /// 32-bit IEEE 754 floats.
    F32,
    /// 16-bit IEEE 754 floats.
    F16,
    /// The upper halves of 32-bit floats (bfloat16).
    BF16,
}

impl FeatureDType {
    /// Returns the size of one element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// Returns the type's short name: `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        }
    }
}

impl fmt::Display for FeatureDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A reusable buffer of gathered rows, in their stored element type.
///
/// The rows are contiguous; the store has the number of columns ([`FeatureStore::dim`](crate::FeatureStore::dim)).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FeatureBuffer {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 16-bit IEEE 754 floats.
    F16(Vec<f16>),
    /// The upper halves of 32-bit floats (bfloat16).
    BF16(Vec<bf16>),
}

impl Default for FeatureBuffer {
    /// Returns an empty buffer of 32-bit floats.
    fn default() -> Self {
        Self::F32(Vec::new())
    }
}

impl FeatureBuffer {
    /// Returns an empty buffer of the given element type.
    pub fn empty(row_type: FeatureDType) -> Self {
        match row_type {
            FeatureDType::F32 => Self::F32(Vec::new()),
            FeatureDType::F16 => Self::F16(Vec::new()),
            FeatureDType::BF16 => Self::BF16(Vec::new()),
        }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> FeatureDType {
        match self {
            Self::F32(_) => FeatureDType::F32,
            Self::F16(_) => FeatureDType::F16,
            Self::BF16(_) => FeatureDType::BF16,
        }
    }

    /// Returns the number of elements: rows times columns.
    pub fn n_values(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::BF16(values) => values.len(),
        }
    }

    /// Returns the size of the elements in bytes.
    pub fn n_bytes(&self) -> usize {
        self.n_values() * self.dtype().bytes()
    }

    /// Returns the elements as bytes, in the byte order of this machine.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::F32(values) => bytemuck::cast_slice(values),
            Self::F16(values) => bytemuck::cast_slice(values),
            Self::BF16(values) => bytemuck::cast_slice(values),
        }
    }

    /// Returns the elements as bytes that can be written, in the byte order of this machine.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::F32(values) => bytemuck::cast_slice_mut(values),
            Self::F16(values) => bytemuck::cast_slice_mut(values),
            Self::BF16(values) => bytemuck::cast_slice_mut(values),
        }
    }

    /// Sets the element type and the number of elements, whose values the caller overwrites. The allocation is kept if
    /// the element type is equal and the elements fit.
    pub fn resize(&mut self, row_type: FeatureDType, n_values: usize) {
        if self.dtype() != row_type {
            *self = Self::empty(row_type);
        }
        match self {
            Self::F32(values) => resize(values, n_values),
            Self::F16(values) => resize(values, n_values),
            Self::BF16(values) => resize(values, n_values),
        }
    }

    /// Replaces all elements by NaN.
    pub fn fill_nan(&mut self) {
        match self {
            Self::F32(values) => values.fill(f32::NAN),
            Self::F16(values) => values.fill(f16::NAN),
            Self::BF16(values) => values.fill(bf16::NAN),
        }
    }

    /// Converts the elements to 32-bit floats, which represent every stored value exactly. 32-bit elements are moved,
    /// not copied.
    pub fn into_f32(self) -> Vec<f32> {
        match self {
            Self::F32(values) => values,
            Self::F16(values) => values.to_f32_vec(),
            Self::BF16(values) => values.to_f32_vec(),
        }
    }
}

/// Resizes a vector whose values the caller overwrites. A new allocation is zeroed by the system, not value by value.
fn resize<T: Zeroable + Clone>(values: &mut Vec<T>, n: usize) {
    match n <= values.capacity() {
        true => values.resize(n, T::zeroed()),
        false => *values = bytemuck::zeroed_vec(n),
    }
}

/// A read-only array of all rows of a store, owned or in a mapped file. Clones share the array.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FeatureArray {
    /// 32-bit floats.
    F32(SharedArray<f32>),
    /// 16-bit IEEE 754 floats.
    F16(SharedArray<f16>),
    /// The upper halves of 32-bit floats (bfloat16).
    BF16(SharedArray<bf16>),
}

/// Implements `From` for arrays of each element type. The conversions do not copy the rows.
macro_rules! rows_from {
    ($($element:ty => $variant:ident),*) => {$(
        impl From<SharedArray<$element>> for FeatureArray {
            fn from(values: SharedArray<$element>) -> Self {
                Self::$variant(values)
            }
        }

        impl From<Vec<$element>> for FeatureArray {
            fn from(values: Vec<$element>) -> Self {
                Self::$variant(values.into())
            }
        }
    )*};
}

rows_from!(f32 => F32, f16 => F16, bf16 => BF16);

impl FeatureArray {
    /// Returns the element type.
    pub fn dtype(&self) -> FeatureDType {
        match self {
            Self::F32(_) => FeatureDType::F32,
            Self::F16(_) => FeatureDType::F16,
            Self::BF16(_) => FeatureDType::BF16,
        }
    }

    /// Returns the number of elements: rows times columns.
    pub fn n_values(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::BF16(values) => values.len(),
        }
    }

    /// Returns the memory in bytes that the rows occupy; 0 if they are mapped.
    pub fn owned_bytes(&self) -> usize {
        match self {
            Self::F32(values) => values.owned_bytes(),
            Self::F16(values) => values.owned_bytes(),
            Self::BF16(values) => values.owned_bytes(),
        }
    }

    /// Returns the same rows in memory: mapped rows are read and copied, owned rows are shared.
    pub fn in_memory(&self) -> Self {
        match self {
            Self::F32(values) => Self::F32(values.in_memory()),
            Self::F16(values) => Self::F16(values.in_memory()),
            Self::BF16(values) => Self::BF16(values.in_memory()),
        }
    }

    /// Implements [`FeatureStore::gather`](crate::FeatureStore::gather) for rows of `dim` columns.
    pub(crate) fn gather(&self, dim: usize, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()> {
        check_ids(ids, self.n_values() / dim)?;
        self.copy_rows(dim, bytemuck::cast_slice::<_, u32>(ids), out);
        Ok(())
    }

    /// Copies rows of `dim` columns to `out`, whose allocation is kept if its element type is that of the array.
    ///
    /// # Panics
    /// Panics if an id is out of range.
    pub(crate) fn copy_rows<I: RowId>(&self, dim: usize, ids: &[I], out: &mut FeatureBuffer) {
        match (self, &mut *out) {
            (Self::F32(rows), FeatureBuffer::F32(values)) => copy_rows(rows, dim, ids, values),
            (Self::F16(rows), FeatureBuffer::F16(values)) => copy_rows(rows, dim, ids, values),
            (Self::BF16(rows), FeatureBuffer::BF16(values)) => copy_rows(rows, dim, ids, values),
            (Self::F32(rows), _) => *out = FeatureBuffer::F32(gathered(rows, dim, ids)),
            (Self::F16(rows), _) => *out = FeatureBuffer::F16(gathered(rows, dim, ids)),
            (Self::BF16(rows), _) => *out = FeatureBuffer::BF16(gathered(rows, dim, ids)),
        }
    }

    /// Implements [`FeatureStore::gather_bytes`](crate::FeatureStore::gather_bytes) for rows of `dim` columns.
    pub(crate) fn gather_bytes(&self, dim: usize, ids: &[NodeId], out: &mut [u8]) -> Result<()> {
        check_ids(ids, self.n_values() / dim)?;
        self.copy_rows_to(dim, bytemuck::cast_slice::<_, u32>(ids), out);
        Ok(())
    }

    /// Copies rows of `dim` columns to memory that is not a vector.
    ///
    /// # Panics
    /// Panics if an id is out of range, or if `out` has another size than the rows.
    pub(crate) fn copy_rows_to<I: RowId>(&self, dim: usize, ids: &[I], out: &mut [u8]) {
        match self {
            Self::F32(rows) => copy_rows_to(rows, dim, ids, out),
            Self::F16(rows) => copy_rows_to(rows, dim, ids, out),
            Self::BF16(rows) => copy_rows_to(rows, dim, ids, out),
        }
    }
}

/// Returns an error if the number of columns is 0 or above [`MAX_DIM`].
pub(crate) fn check_dim(dim: usize) -> Result<()> {
    match dim {
        0 => Err(Error::ZeroDim),
        1..=MAX_DIM => Ok(()),
        _ => Err(Error::TooManyColumns { dim, max: MAX_DIM }),
    }
}

/// Returns an error for the first id that is not below `n_rows`.
pub(crate) fn check_ids(ids: &[NodeId], n_rows: usize) -> Result<()> {
    match ids.iter().find(|node| node.index() >= n_rows) {
        Some(&node) => Err(Error::NodeOutOfRange { node, n_rows }),
        None => Ok(()),
    }
}

fn gathered<T: Pod, I: RowId>(rows: &[T], dim: usize, ids: &[I]) -> Vec<T> {
    let mut out = Vec::new();
    copy_rows(rows, dim, ids, &mut out);
    out
}

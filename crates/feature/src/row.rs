use std::fmt;

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kiln_graph::{NodeId, SharedArray};
use kiln_mem::copy_rows;

use crate::{Error, MAX_DIM, Result};

/// How the elements of feature rows are stored. There is room for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RowType {
    /// 32-bit IEEE 754.
    F32,
    /// 16-bit IEEE 754.
    F16,
    /// The upper half of a 32-bit float.
    BF16,
}

impl RowType {
    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    /// The type's short name: `f32`, `f16` or `bf16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        }
    }
}

impl fmt::Display for RowType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Gathered rows as they are stored, in a buffer that its owner reuses.
///
/// The rows lie one after the other; how many columns there are is known by the source
/// ([`FeatureSource::dim`](crate::FeatureSource::dim)).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RowBuf {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 16-bit IEEE 754 floats.
    F16(Vec<f16>),
    /// Upper halves of 32-bit floats.
    BF16(Vec<bf16>),
}

impl Default for RowBuf {
    /// An empty buffer of 32-bit floats.
    fn default() -> Self {
        Self::F32(Vec::new())
    }
}

impl RowBuf {
    /// An empty buffer of one element type.
    pub fn empty(row_type: RowType) -> Self {
        match row_type {
            RowType::F32 => Self::F32(Vec::new()),
            RowType::F16 => Self::F16(Vec::new()),
            RowType::BF16 => Self::BF16(Vec::new()),
        }
    }

    /// How the elements are stored.
    pub fn row_type(&self) -> RowType {
        match self {
            Self::F32(_) => RowType::F32,
            Self::F16(_) => RowType::F16,
            Self::BF16(_) => RowType::BF16,
        }
    }

    /// Number of elements: rows times columns.
    pub fn n_values(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::BF16(values) => values.len(),
        }
    }

    /// Bytes of the elements.
    pub fn n_bytes(&self) -> usize {
        self.n_values() * self.row_type().bytes()
    }

    /// The elements as 32-bit floats: every stored value is kept exactly. Moves 32-bit rows without a copy.
    pub fn into_f32(self) -> Vec<f32> {
        match self {
            Self::F32(values) => values,
            Self::F16(values) => values.to_f32_vec(),
            Self::BF16(values) => values.to_f32_vec(),
        }
    }
}

/// All rows of a source, read-only: owned or a range of a mapped file. Cloning shares them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Rows {
    /// 32-bit floats.
    F32(SharedArray<f32>),
    /// 16-bit IEEE 754 floats.
    F16(SharedArray<f16>),
    /// Upper halves of 32-bit floats.
    BF16(SharedArray<bf16>),
}

/// Rows that are moved or mapped, never copied.
macro_rules! rows_from {
    ($($element:ty => $variant:ident),*) => {$(
        impl From<SharedArray<$element>> for Rows {
            fn from(values: SharedArray<$element>) -> Self {
                Self::$variant(values)
            }
        }

        impl From<Vec<$element>> for Rows {
            fn from(values: Vec<$element>) -> Self {
                Self::$variant(values.into())
            }
        }
    )*};
}

rows_from!(f32 => F32, f16 => F16, bf16 => BF16);

impl Rows {
    /// How the elements are stored.
    pub fn row_type(&self) -> RowType {
        match self {
            Self::F32(_) => RowType::F32,
            Self::F16(_) => RowType::F16,
            Self::BF16(_) => RowType::BF16,
        }
    }

    /// Number of elements: rows times columns.
    pub fn n_values(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::BF16(values) => values.len(),
        }
    }

    /// Bytes that the rows hold in this process's own memory: zero when they are mapped.
    pub fn owned_bytes(&self) -> usize {
        match self {
            Self::F32(values) => values.owned_bytes(),
            Self::F16(values) => values.owned_bytes(),
            Self::BF16(values) => values.owned_bytes(),
        }
    }

    /// The same rows in this process's own memory: mapped ones are read once and copied, owned ones are shared.
    pub fn in_memory(&self) -> Self {
        match self {
            Self::F32(values) => Self::F32(values.in_memory()),
            Self::F16(values) => Self::F16(values.in_memory()),
            Self::BF16(values) => Self::BF16(values.in_memory()),
        }
    }

    /// See [`FeatureSource::gather`](crate::FeatureSource::gather).
    pub(crate) fn gather(&self, dim: usize, ids: &[NodeId], out: &mut RowBuf) -> Result<()> {
        check_ids("feature row", ids, self.n_values() / dim)?;
        let ids: &[u32] = bytemuck::cast_slice(ids);
        match (self, &mut *out) {
            (Self::F32(rows), RowBuf::F32(values)) => copy_rows(rows, dim, ids, values),
            (Self::F16(rows), RowBuf::F16(values)) => copy_rows(rows, dim, ids, values),
            (Self::BF16(rows), RowBuf::BF16(values)) => copy_rows(rows, dim, ids, values),
            (Self::F32(rows), _) => *out = RowBuf::F32(gathered(rows, dim, ids)),
            (Self::F16(rows), _) => *out = RowBuf::F16(gathered(rows, dim, ids)),
            (Self::BF16(rows), _) => *out = RowBuf::BF16(gathered(rows, dim, ids)),
        }
        Ok(())
    }
}

/// An error for a number of columns that no source has.
pub(crate) fn check_dim(dim: usize) -> Result<()> {
    match dim {
        0 => Err(Error::ZeroDim),
        1..=MAX_DIM => Ok(()),
        _ => Err(Error::TooManyColumns { dim, max: MAX_DIM }),
    }
}

/// An error for the first id that is not below `n_rows`; `what` is the thing that is missing.
pub(crate) fn check_ids(what: &'static str, ids: &[NodeId], n_rows: usize) -> Result<()> {
    match ids.iter().find(|node| node.index() >= n_rows) {
        Some(&node) => Err(Error::NodeOutOfRange { what, node, n_rows }),
        None => Ok(()),
    }
}

fn gathered<T: Pod>(rows: &[T], dim: usize, ids: &[u32]) -> Vec<T> {
    let mut out = Vec::new();
    copy_rows(rows, dim, ids, &mut out);
    out
}

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kiln_graph::{MappedFile, NodeId, SharedArray};

use crate::array::check_dim;
use crate::{Error, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore, Result};

/// Dense feature rows in memory or in a mapped file; row `v` belongs to node `v`. Clones share the rows.
///
/// Rows of a mapped file are read when they are gathered and stay in the page cache of the operating system, not in
/// the memory of this process. The file must not change while it is mapped: see [`MappedFile`].
///
/// Invariant: the values are a whole number of rows of `dim >= 1` columns.
#[derive(Debug, Clone)]
pub struct DenseFeatures {
    rows: FeatureArray,
    dim: usize,
}

/// The position of feature rows in a file: `n_rows` x `dim` elements from `offset_bytes` on, row-major, without gaps.
/// Bytes before and after the rows are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedLayout {
    /// The element type.
    pub dtype: FeatureDType,
    /// The number of columns.
    pub dim: usize,
    /// The number of rows.
    pub n_rows: usize,
    /// The file offset of row 0, a multiple of the element size.
    pub offset_bytes: u64,
}

impl DenseFeatures {
    /// Creates features from rows of any element type, row-major.
    ///
    /// # Errors
    /// Returns [`Error::ZeroDim`] or [`Error::TooManyColumns`] if `dim` is out of range, and [`Error::PartialRow`] if
    /// the number of values is not a multiple of `dim`.
    pub fn new(rows: FeatureArray, dim: usize) -> Result<Self> {
        check_dim(dim)?;
        let n_values = rows.n_values();
        if !n_values.is_multiple_of(dim) {
            return Err(Error::PartialRow { n_values, dim });
        }
        Ok(Self { rows, dim })
    }

    /// Creates features from 32-bit floats, row-major.
    ///
    /// # Errors
    /// Returns the errors of [`DenseFeatures::new`].
    pub fn from_f32(rows: impl Into<SharedArray<f32>>, dim: usize) -> Result<Self> {
        Self::new(FeatureArray::F32(rows.into()), dim)
    }

    /// Maps the rows of a file of little-endian elements, row-major.
    ///
    /// # Errors
    /// Returns [`Error::Graph`] if the file cannot be opened or mapped, and the errors of [`DenseFeatures::mapped`].
    pub fn open(path: impl AsRef<Path>, layout: MappedLayout) -> Result<Self> {
        Self::mapped(&MappedFile::open(path)?, layout)
    }

    /// Creates features from the rows in an already mapped file.
    ///
    /// # Errors
    /// Returns [`Error::ZeroDim`] or [`Error::TooManyColumns`] if `dim` is out of range, [`Error::Misaligned`] if the
    /// offset is not a multiple of the element size, [`Error::FileTooShort`] if the file ends before the last row, and
    /// [`Error::TooLarge`] if the size of the layout overflows.
    pub fn mapped(mapping: &MappedFile, layout: MappedLayout) -> Result<Self> {
        let bytes = byte_range(mapping, layout)?;
        let rows = match layout.dtype {
            FeatureDType::F32 => FeatureArray::F32(mapping.slice(bytes)?),
            FeatureDType::F16 => FeatureArray::F16(mapping.slice(bytes)?),
            FeatureDType::BF16 => FeatureArray::BF16(mapping.slice(bytes)?),
        };
        Ok(Self { rows, dim: layout.dim })
    }

    /// Returns the array of all rows, row-major.
    pub fn rows(&self) -> &FeatureArray {
        &self.rows
    }

    /// Returns the same rows in memory: mapped rows are read and copied, owned rows are shared.
    pub(crate) fn copied(&self) -> Self {
        Self { rows: self.rows.in_memory(), dim: self.dim }
    }
}

impl FeatureStore for DenseFeatures {
    fn dim(&self) -> usize {
        self.dim
    }

    fn n_rows(&self) -> usize {
        self.rows.n_values() / self.dim
    }

    fn dtype(&self) -> FeatureDType {
        self.rows.dtype()
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()> {
        self.rows.gather(self.dim, ids, out)
    }

    fn gather_bytes(&self, ids: &[NodeId], out: &mut [u8]) -> Result<()> {
        self.rows.gather_bytes(self.dim, ids, out)
    }

    fn in_memory(&self) -> Option<Arc<dyn FeatureStore>> {
        Some(Arc::new(self.copied()))
    }

    fn as_dense(&self) -> Option<&DenseFeatures> {
        Some(self)
    }
}

fn byte_range(mapping: &MappedFile, layout: MappedLayout) -> Result<Range<usize>> {
    let MappedLayout { dtype: row_type, dim, n_rows, offset_bytes } = layout;
    check_dim(dim)?;
    let align_bytes = row_type.bytes();
    if !offset_bytes.is_multiple_of(align_bytes as u64) {
        return Err(Error::Misaligned { path: mapping.path().to_owned(), offset_bytes, align_bytes });
    }
    let row_type = row_type.name();
    let too_large = Error::TooLarge { n_rows, dim, row_type, offset_bytes };
    let n_bytes = n_rows.checked_mul(dim).and_then(|n_values| n_values.checked_mul(align_bytes));
    let start = usize::try_from(offset_bytes).ok();
    let (Some(n_bytes), Some(start)) = (n_bytes, start) else {
        return Err(too_large);
    };
    let Some(end) = start.checked_add(n_bytes) else {
        return Err(too_large);
    };
    let got = mapping.bytes().len();
    if end > got {
        let path = mapping.path().to_owned();
        return Err(Error::FileTooShort {
            path,
            n_rows,
            dim,
            row_type,
            expected: end as u64,
            got: got as u64,
        });
    }
    Ok(start..end)
}

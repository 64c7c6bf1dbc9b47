use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kiln_graph::{MappedFile, NodeId, SharedArray};

use crate::array::check_dim;
use crate::{Error, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore, Result};

/// Features of which every value is stored, in memory or in a mapped file: row `v` belongs to node `v`.
/// Cloning shares the rows.
///
/// Of a mapped file, rows are read when they are gathered. The system keeps the pages that are used;
/// nothing is held in this process's own memory. The file must not change while it is mapped: see [`MappedFile`].
///
/// Invariant: the values are a whole number of rows of `dim >= 1` columns.
#[derive(Debug, Clone)]
pub struct DenseFeatures {
    rows: FeatureArray,
    dim: usize,
}

/// Where the rows lie in their file: `n_rows` x `dim` elements, row-major, without gaps. Whatever comes
/// before and after them is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedLayout {
    /// How the elements are stored.
    pub dtype: FeatureDType,
    /// Number of columns.
    pub dim: usize,
    /// Number of rows.
    pub n_rows: usize,
    /// The byte of the file where row 0 starts, a multiple of the element's bytes.
    pub offset_bytes: u64,
}

impl DenseFeatures {
    /// Features from rows of any element type, row-major.
    ///
    /// # Errors
    /// [`Error::ZeroDim`] and [`Error::TooManyColumns`] for `dim`, [`Error::PartialRow`] when the values are not a multiple of `dim`.
    pub fn new(rows: FeatureArray, dim: usize) -> Result<Self> {
        check_dim(dim)?;
        let n_values = rows.n_values();
        if !n_values.is_multiple_of(dim) {
            return Err(Error::PartialRow { n_values, dim });
        }
        Ok(Self { rows, dim })
    }

    /// Features from 32-bit floats, row-major.
    ///
    /// # Errors
    /// As [`DenseFeatures::new`].
    pub fn from_f32(rows: impl Into<SharedArray<f32>>, dim: usize) -> Result<Self> {
        Self::new(FeatureArray::F32(rows.into()), dim)
    }

    /// Maps the rows of a file: little-endian, row by row.
    ///
    /// # Errors
    /// [`Error::Graph`] when the file cannot be opened; otherwise as [`DenseFeatures::mapped`].
    pub fn open(path: impl AsRef<Path>, layout: MappedLayout) -> Result<Self> {
        Self::mapped(&MappedFile::open(path)?, layout)
    }

    /// The rows in a file that is mapped already.
    ///
    /// # Errors
    /// [`Error::ZeroDim`] and [`Error::TooManyColumns`] for `dim`, [`Error::Misaligned`] for a start that is not a multiple of the
    /// element's bytes, [`Error::FileTooShort`] when the file ends before the last row, and
    /// [`Error::TooLarge`] when the layout's bytes cannot be counted.
    pub fn mapped(mapping: &MappedFile, layout: MappedLayout) -> Result<Self> {
        let bytes = byte_range(mapping, layout)?;
        let rows = match layout.dtype {
            FeatureDType::F32 => FeatureArray::F32(mapping.slice(bytes)?),
            FeatureDType::F16 => FeatureArray::F16(mapping.slice(bytes)?),
            FeatureDType::BF16 => FeatureArray::BF16(mapping.slice(bytes)?),
        };
        Ok(Self { rows, dim: layout.dim })
    }

    /// All rows, row-major.
    pub fn rows(&self) -> &FeatureArray {
        &self.rows
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

    fn in_memory(&self) -> Option<Arc<dyn FeatureStore>> {
        Some(Arc::new(Self { rows: self.rows.in_memory(), dim: self.dim }))
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

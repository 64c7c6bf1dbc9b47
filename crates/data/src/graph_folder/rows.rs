use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use half::bf16;
use kiln_feature::{DenseFeatures, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore, SparseFeatures};
use kiln_store::Error as StoreError;
use kiln_store::array_folder::{
    ArrayFolder, ArrayWriter, ElementType, Entries, Known, bad_key, check_together, missing_entry,
};

use crate::arrays::numbered;
use crate::check::{Place, check_features};
use crate::{Error, Result};

/// The names of the files of feature rows: one dense array, or the three arrays of a CSR matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFiles {
    /// The file of the dense array `[n_rows, dim]`.
    pub dense: Cow<'static, str>,
    /// The files of the CSR matrix: the offsets of each row's values, the column of each value, and the values.
    pub sparse: [Cow<'static, str>; 3],
}

/// The file names of a data set's feature rows: the dense array, and the three arrays of a CSR matrix.
pub(crate) const FEATURE_FILES: [&str; 4] =
    ["features.npy", "features_indptr.npy", "features_indices.npy", "features_data.npy"];

/// The file names of a data set's feature rows.
pub const FEATURES: RowFiles = RowFiles::new(FEATURE_FILES);

impl RowFiles {
    /// Returns files with these names: the dense array first, then the three arrays of a CSR matrix.
    pub const fn new([dense, indptr, columns, values]: [&'static str; 4]) -> Self {
        let sparse = [Cow::Borrowed(indptr), Cow::Borrowed(columns), Cow::Borrowed(values)];
        Self { dense: Cow::Borrowed(dense), sparse }
    }

    /// Returns the files of the node type at a position, such as `features.2.npy` ([`numbered`]).
    pub fn of_type(&self, position: usize) -> Self {
        let number = |name: &Cow<'static, str>| Cow::Owned(numbered(name, position));
        Self { dense: number(&self.dense), sparse: self.sparse.each_ref().map(number) }
    }

    /// Returns the types and shapes of these files for `n_rows` rows. All are optional here; [`RowFiles::check`]
    /// checks that the set has the dense array or all three sparse ones.
    pub fn known(&self, n_rows: usize, dim: usize) -> [Known; 4] {
        use ElementType::{BF16, F16, F32, U32, U64};
        let known = |name: &Cow<'static, str>, types, shape| Known {
            name: name.clone(),
            types,
            shape,
            is_needed: false,
        };
        let [indptr, columns, values] = &self.sparse;
        [
            known(&self.dense, &[F32, F16, BF16], Some(vec![n_rows, dim])),
            known(indptr, &[U64], Some(vec![n_rows.saturating_add(1)])),
            known(columns, &[U32], None),
            known(values, &[F32], None),
        ]
    }

    /// Checks that the entries contain either the dense array or all three sparse ones. If `are_needed` is false, all
    /// four may be absent.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::Metadata`] if entries are missing or both forms are present.
    pub fn check(&self, path: &Path, entries: &Entries, are_needed: bool) -> Result<()> {
        let has = |name: &str| entries.contains_key(name);
        let n_sparse = self.sparse.iter().filter(|name| has(name)).count();
        match (has(&self.dense), n_sparse) {
            (false, 0) if are_needed => Err(missing_entry(path, &self.dense).into()),
            (_, 0) | (false, 3) => Ok(()),
            (true, 3) => {
                let expected = format!("{} or {}", self.dense, self.sparse[0]);
                Err(bad_key(path, "files", expected, "both").into())
            }
            _ => Ok(check_together(path, entries, &self.sparse.each_ref().map(|name| &**name))?),
        }
    }
}

/// Returns the rows in these files, dense or sparse. The entries must have passed [`RowFiles::check`].
///
/// # Errors
/// Returns [`kiln_store::Error::Inconsistent`] if offsets do not end at the number of values, and [`Error::Feature`]
/// if the number of columns is not supported.
pub fn read_rows(arrays: &ArrayFolder, files: &RowFiles, dim: usize) -> Result<Arc<dyn FeatureStore>> {
    let Some(entry) = arrays.entries().get(&*files.dense) else {
        let [indptr, columns, values] = files.sparse.each_ref().map(|name| &**name);
        let sparse =
            SparseFeatures::new(arrays.values(indptr)?, arrays.values(columns)?, arrays.values(values)?, dim);
        return Ok(Arc::new(sparse.map_err(|error| match error {
            kiln_feature::Error::Sparse(kiln_feature::SparseError::BadSparse { what, expected, got }) => {
                StoreError::Inconsistent { file: arrays.folder().join(indptr), what, expected, got }.into()
            }
            other => Error::from(other),
        })?));
    };
    Ok(Arc::new(read_dense(arrays, &files.dense, entry.dtype, dim)?))
}

fn read_dense(arrays: &ArrayFolder, file: &str, dtype: ElementType, dim: usize) -> Result<DenseFeatures> {
    let rows = match dtype {
        ElementType::F16 => FeatureArray::F16(arrays.values(file)?),
        ElementType::BF16 => FeatureArray::BF16(arrays.values::<bf16>(file)?),
        _ => FeatureArray::F32(arrays.values(file)?),
    };
    Ok(DenseFeatures::new(rows, dim)?)
}

/// Reads all rows and checks that the values are finite, and in a CSR matrix that the offsets and the columns are in
/// range.
///
/// # Errors
/// Returns [`kiln_store::Error::BadValue`] or [`Error::Feature`] with the first invalid value.
pub fn verify_rows(arrays: &ArrayFolder, files: &RowFiles, dim: usize) -> Result<()> {
    let is_dense = arrays.array(&files.dense).is_some();
    let file = arrays.folder().join(if is_dense { &*files.dense } else { &*files.sparse[2] });
    check_features(&*read_rows(arrays, files, dim)?, Place::Set(&file))
}

/// Returns the element type of an array of feature rows.
///
/// # Errors
/// Returns [`Error::BadParameter`] if the type is not `f32`, `f16` or `bf16`.
pub fn row_element_type(row_type: FeatureDType) -> Result<ElementType> {
    match row_type {
        FeatureDType::F32 => Ok(ElementType::F32),
        FeatureDType::F16 => Ok(ElementType::F16),
        FeatureDType::BF16 => Ok(ElementType::BF16),
        other => Err(Error::unknown_row_type(other)),
    }
}

/// Appends rows from a feature store to an array, without conversion.
///
/// # Errors
/// Returns [`Error::BadParameter`] if the rows' element type differs from the array's, and [`kiln_store::Error::Io`] if
/// writing fails.
pub fn push_rows(array: &mut ArrayWriter, rows: &FeatureBuffer) -> Result<()> {
    if row_element_type(rows.dtype())? != array.dtype() {
        return Err(Error::unknown_row_type(rows.dtype()));
    }
    match rows {
        FeatureBuffer::F32(values) => array.push(values)?,
        FeatureBuffer::F16(values) => array.push(values)?,
        FeatureBuffer::BF16(values) => array.push(values)?,
        other => return Err(Error::unknown_row_type(other.dtype())),
    }
    Ok(())
}

use std::sync::Arc;

use half::bf16;
use kiln_feature::{DenseFeatures, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore, SparseFeatures};
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use kiln_store::array_folder::{ArrayFolder, ArrayWriter, ElementType};

use crate::check::{Place, check_chunk, check_features};
use crate::graph_folder::RowFiles;
use crate::{Error, Result};

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

pub(super) fn read_dense(
    arrays: &ArrayFolder,
    file: &str,
    dtype: ElementType,
    dim: usize,
) -> Result<DenseFeatures> {
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

/// Checks that the gathered rows of nodes are finite. `name` is that of the set, for the message.
///
/// # Errors
/// Returns [`kiln_store::Error::BadValue`] with the first node that has another value.
pub fn check_gathered(rows: &FeatureBuffer, nodes: &[NodeId], dim: usize, name: &str) -> Result<()> {
    check_chunk(rows, dim, |row| nodes[row].index(), Place::Set(name.as_ref()))
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

use std::fmt;
use std::sync::Arc;

use kiln_graph::NodeId;

use crate::{DenseFeatures, FeatureBuffer, FeatureDType, Result, SparseFeatures};

/// A store of feature rows by node id, in memory, in a mapped file or on a network.
///
/// All workers of a loader share one store, hence `Send + Sync` and `&self`.
pub trait FeatureStore: fmt::Debug + Send + Sync {
    /// Returns the number of columns, at least 1.
    fn dim(&self) -> usize;

    /// Returns the number of rows; valid ids are `0..n_rows`.
    fn n_rows(&self) -> usize;

    /// Returns the element type of a row.
    fn dtype(&self) -> FeatureDType;

    /// Writes the row of `ids[i]` to the elements `i * dim .. (i + 1) * dim` of `out`, as stored.
    ///
    /// `out` is overwritten: it gets this store's element type and `ids.len() * dim` elements. It keeps its
    /// allocation if its element type is already the store's. Ids may repeat and come in any order.
    ///
    /// # Errors
    /// Returns [`Error::NodeOutOfRange`](crate::Error::NodeOutOfRange) if an id is not below `n_rows`. A store that
    /// reads files or a network also returns its own errors. The content of `out` is then unspecified.
    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()>;

    /// Writes the rows of `ids`, as [`FeatureStore::gather`] does, to memory of the caller that need not be a vector, for
    /// example memory from which a device copies. The values are in the byte order of this machine. `out` is overwritten
    /// and may have any alignment.
    ///
    /// The default implementation gathers the rows into a buffer and copies it. [`DenseFeatures`]
    /// copies each row once.
    ///
    /// # Errors
    /// Returns the errors of [`FeatureStore::gather`].
    ///
    /// # Panics
    /// Panics if `out` has another size than `ids.len()` rows.
    fn gather_bytes(&self, ids: &[NodeId], out: &mut [u8]) -> Result<()> {
        let mut rows = FeatureBuffer::empty(self.dtype());
        self.gather(ids, &mut rows)?;
        assert_eq!(out.len(), rows.n_bytes(), "the output should have the size of {} rows", ids.len());
        out.copy_from_slice(rows.as_bytes());
        Ok(())
    }

    /// Returns one node's row as a new vector of 32-bit floats. For many rows, use [`FeatureStore::gather`], which
    /// reuses its buffer.
    ///
    /// # Errors
    /// Returns the errors of [`FeatureStore::gather`].
    fn row(&self, node: NodeId) -> Result<Vec<f32>> {
        let mut row = FeatureBuffer::empty(self.dtype());
        self.gather(&[node], &mut row)?;
        Ok(row.into_f32())
    }

    /// Returns the same store with its mapped arrays copied into memory. The default implementation returns `None`, for
    /// stores that map no file.
    fn in_memory(&self) -> Option<Arc<dyn FeatureStore>> {
        None
    }

    /// Returns the store as [`DenseFeatures`] if it has this type: if its rows are one array, in memory or in a mapped file,
    /// which can be read without gathering them. The default implementation returns `None`.
    fn as_dense(&self) -> Option<&DenseFeatures> {
        None
    }

    /// Returns the store as [`SparseFeatures`] if it has this type, so that it can be saved without zeros. The default
    /// implementation returns `None`, for stores of dense rows.
    fn as_sparse(&self) -> Option<&SparseFeatures> {
        None
    }
}

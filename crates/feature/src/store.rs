use std::fmt;
use std::sync::Arc;

use kiln_graph::NodeId;

use crate::{FeatureBuffer, FeatureDType, Result, SparseFeatures};

/// A store of feature rows by node id: memory, a mapped file or a network.
///
/// A source is shared by all workers of a loader, hence `Send + Sync` and `&self`.
pub trait FeatureStore: fmt::Debug + Send + Sync {
    /// Number of columns, at least 1.
    fn dim(&self) -> usize;

    /// Number of rows: valid ids are `0..n_rows`.
    fn n_rows(&self) -> usize;

    /// The element type of a row.
    fn dtype(&self) -> FeatureDType;

    /// Writes the row of `ids[i]` to the elements `i * dim .. (i + 1) * dim` of `out`, as stored.
    ///
    /// `out` is overwritten: it gets this source's element type and `ids.len() * dim` elements, and keeps
    /// its allocation where the element type already fits. Ids may repeat and come in any order; no ids
    /// give no rows.
    ///
    /// # Errors
    /// [`Error::NodeOutOfRange`](crate::Error::NodeOutOfRange) for an id that is not below `n_rows`; a
    /// source that reads files or a network adds its own. What `out` holds then is unspecified.
    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()>;

    /// One node's row as 32-bit floats, in a vector of its own: to look at single nodes. Many rows are
    /// [gathered](FeatureStore::gather).
    ///
    /// # Errors
    /// As [`FeatureStore::gather`].
    fn row(&self, node: NodeId) -> Result<Vec<f32>> {
        let mut row = FeatureBuffer::empty(self.dtype());
        self.gather(&[node], &mut row)?;
        Ok(row.into_f32())
    }

    /// The same source with its mapped arrays copied into the process's memory. Sources that map no file leave
    /// this as it is: `None`.
    fn in_memory(&self) -> Option<Arc<dyn FeatureStore>> {
        None
    }

    /// The source itself where it stores only what is not zero, so that it can be saved as it is. Sources
    /// that have whole rows leave this as it is.
    fn as_sparse(&self) -> Option<&SparseFeatures> {
        None
    }
}

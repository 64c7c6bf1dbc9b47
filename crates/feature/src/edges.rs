use std::fmt;
use std::sync::Arc;

use kiln_graph::{Block, ColumnValues, EdgeColumn, EdgeId};

use crate::{
    DenseFeatures, EdgeColumnError, Error, FeatureArray, FeatureBuffer, FeatureDType, FeatureStore, Result,
};

/// A store of feature rows by edge, in memory, in a mapped file or on a network.
///
/// Rows are gathered for the edges of a block, not for a list of ids: the edges of a partitioned graph are stored with
/// their destinations, which a block knows.
pub trait EdgeFeatureStore: fmt::Debug + Send + Sync {
    /// Returns the number of columns, at least 1.
    fn dim(&self) -> usize;

    /// Returns the number of rows; valid edge ids are below it.
    fn n_edges(&self) -> u64;

    /// Returns the element type of a row.
    fn dtype(&self) -> FeatureDType;

    /// Returns the number of columns of each relation, `[n_relations]`; `None` for a relation without the column. The default is
    /// that of a graph with one relation.
    fn relation_widths(&self) -> Vec<Option<usize>> {
        vec![Some(self.dim())]
    }

    /// Writes the row of the block's edge `e` to the elements `e * dim .. (e + 1) * dim` of `out`, as stored. `out` is
    /// overwritten as by [`FeatureStore::gather`].
    ///
    /// # Errors
    /// Returns [`Error::EdgeOutOfRange`](crate::Error::EdgeOutOfRange), or an error of a store that reads a network, if an
    /// edge of the block has no row. The content of `out` is then unspecified.
    fn gather_block(&self, block: &Block, out: &mut FeatureBuffer) -> Result<()>;

    /// Returns the store as [`EdgeFeatures`] if this process has all rows. The default implementation returns `None`.
    fn as_edge_features(&self) -> Option<&EdgeFeatures> {
        None
    }
}

/// Feature rows of edges, `[n_edges, dim]`, in memory or in a mapped file. Row `e` belongs to the edge with the id `e`,
/// which is its position in the graph's CSC order. Clones share the rows.
///
/// ```
/// use kiln_feature::{EdgeFeatures, FeatureBuffer};
/// use kiln_graph::EdgeId;
/// let features = EdgeFeatures::new(vec![0.0, 0.5, 1.0, 1.5], 2)?;
/// let mut rows = FeatureBuffer::default();
/// features.gather(&[EdgeId(1), EdgeId(0)], &mut rows)?;
/// assert_eq!(rows.into_f32(), [1.0, 1.5, 0.0, 0.5]);
/// # Ok::<(), kiln_feature::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct EdgeFeatures {
    rows: DenseFeatures,
}

impl EdgeFeatures {
    /// Creates features from rows of any element type, row-major.
    ///
    /// # Errors
    /// Returns the errors of [`DenseFeatures::new`].
    pub fn new(rows: impl Into<FeatureArray>, dim: usize) -> Result<Self> {
        Ok(DenseFeatures::new(rows.into(), dim)?.into())
    }

    /// Returns the rows as a column of edges. The values are shared.
    pub fn to_column(&self) -> EdgeColumn {
        let values: ColumnValues = match self.rows() {
            FeatureArray::F32(values) => values.clone().into(),
            FeatureArray::F16(values) => values.clone().into(),
            FeatureArray::BF16(values) => values.clone().into(),
        };
        EdgeColumn::new(values, self.dim()).expect("the values should be whole rows")
    }

    /// Returns the number of columns, at least 1.
    pub fn dim(&self) -> usize {
        self.rows.dim()
    }

    /// Returns the number of rows; valid ids are below it.
    pub fn n_edges(&self) -> u64 {
        self.rows.n_rows() as u64
    }

    /// Returns the element type of a row.
    pub fn dtype(&self) -> FeatureDType {
        self.rows.dtype()
    }

    /// Returns the array of all rows, row-major.
    pub fn rows(&self) -> &FeatureArray {
        self.rows.rows()
    }

    /// Writes the row of `ids[i]` to the elements `i * dim .. (i + 1) * dim` of `out`, as stored. `out` is overwritten, and
    /// keeps its allocation if its element type is already that of the rows. Ids may repeat and come in any order.
    ///
    /// # Errors
    /// Returns [`Error::EdgeOutOfRange`] if an id is not below the number of rows; the content of `out` is then
    /// unspecified.
    pub fn gather(&self, ids: &[EdgeId], out: &mut FeatureBuffer) -> Result<()> {
        self.check_ids(ids)?;
        self.rows().copy_rows(self.dim(), bytemuck::cast_slice::<_, u64>(ids), out);
        Ok(())
    }

    /// Writes the rows of `ids`, as [`EdgeFeatures::gather`] does, to memory of the caller that need not be a vector. The
    /// values are in the byte order of this machine. `out` is overwritten and may have any alignment.
    ///
    /// # Errors
    /// Returns the errors of [`EdgeFeatures::gather`].
    ///
    /// # Panics
    /// Panics if `out` has another size than `ids.len()` rows.
    pub fn gather_bytes(&self, ids: &[EdgeId], out: &mut [u8]) -> Result<()> {
        self.check_ids(ids)?;
        self.rows().copy_rows_to(self.dim(), bytemuck::cast_slice::<_, u64>(ids), out);
        Ok(())
    }

    /// Returns an error for the first id without a row.
    fn check_ids(&self, ids: &[EdgeId]) -> Result<()> {
        let n_rows = self.n_edges();
        match ids.iter().find(|edge| n_rows <= edge.0) {
            Some(&edge) => Err(Error::EdgeOutOfRange { edge, n_rows }),
            None => Ok(()),
        }
    }

    /// Returns the same rows in memory: mapped rows are read and copied, owned rows are shared.
    #[must_use]
    pub fn in_memory(&self) -> Self {
        Self { rows: self.rows.copied() }
    }
}

impl TryFrom<&EdgeColumn> for EdgeFeatures {
    type Error = Error;

    /// Returns the rows of a column of edges. The values are shared.
    ///
    /// # Errors
    /// Returns [`EdgeColumnError::NotFloats`] for a column of whole numbers, and [`Error::TooManyColumns`] for rows above
    /// [`MAX_DIM`](crate::MAX_DIM).
    fn try_from(column: &EdgeColumn) -> Result<Self> {
        let rows: FeatureArray = match column.values() {
            ColumnValues::F32(values) => values.clone().into(),
            ColumnValues::F16(values) => values.clone().into(),
            ColumnValues::BF16(values) => values.clone().into(),
            _ => return Err(EdgeColumnError::NotFloats { element_type: column.element_type() }.into()),
        };
        Self::new(rows, column.width())
    }
}

impl EdgeFeatureStore for EdgeFeatures {
    fn dim(&self) -> usize {
        self.dim()
    }

    fn n_edges(&self) -> u64 {
        self.n_edges()
    }

    fn dtype(&self) -> FeatureDType {
        self.dtype()
    }

    fn gather_block(&self, block: &Block, out: &mut FeatureBuffer) -> Result<()> {
        self.gather(block.edge_ids(), out)
    }

    fn as_edge_features(&self) -> Option<&EdgeFeatures> {
        Some(self)
    }
}

impl From<DenseFeatures> for EdgeFeatures {
    /// Uses the rows as those of edges, in the order of the edges' ids.
    fn from(rows: DenseFeatures) -> Self {
        Self { rows }
    }
}

impl From<EdgeFeatures> for Arc<dyn EdgeFeatureStore> {
    fn from(features: EdgeFeatures) -> Self {
        Arc::new(features)
    }
}

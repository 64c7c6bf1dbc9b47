use kiln_graph::{Buf, NodeId};

use crate::{Error, FeatureSource, Result, RowBuf, RowType, Rows};

/// Features in memory: row `v` belongs to node `v`. Cloning shares the rows.
///
/// Invariant: the values are a whole number of rows of `dim >= 1` columns.
#[derive(Debug, Clone)]
pub struct Dense {
    rows: Rows,
    dim: usize,
}

impl Dense {
    /// Features from rows of any element type, row-major.
    ///
    /// # Errors
    /// [`Error::ZeroDim`] for `dim` 0, [`Error::PartialRow`] when the values are not a multiple of `dim`.
    pub fn new(rows: Rows, dim: usize) -> Result<Self> {
        if dim == 0 {
            return Err(Error::ZeroDim);
        }
        let n_values = rows.n_values();
        if !n_values.is_multiple_of(dim) {
            return Err(Error::PartialRow { n_values, dim });
        }
        Ok(Self { rows, dim })
    }

    /// Features from 32-bit floats, row-major.
    ///
    /// # Errors
    /// As [`Dense::new`].
    pub fn from_f32(rows: impl Into<Buf<f32>>, dim: usize) -> Result<Self> {
        Self::new(Rows::F32(rows.into()), dim)
    }

    /// All rows, row-major.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// One node's row as 32-bit floats, in a vector of its own: to look at single nodes. Many rows are
    /// [gathered](FeatureSource::gather).
    ///
    /// # Errors
    /// [`Error::NodeOutOfRange`] when the node has no row.
    pub fn row(&self, node: NodeId) -> Result<Vec<f32>> {
        let mut row = RowBuf::empty(self.row_type());
        self.gather(&[node], &mut row)?;
        Ok(row.into_f32())
    }
}

impl FeatureSource for Dense {
    fn dim(&self) -> usize {
        self.dim
    }

    fn n_rows(&self) -> usize {
        self.rows.n_values() / self.dim
    }

    fn row_type(&self) -> RowType {
        self.rows.row_type()
    }

    fn gather(&self, ids: &[NodeId], out: &mut RowBuf) -> Result<()> {
        self.rows.gather(self.dim, ids, out)
    }
}

use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{NodeId, SharedArray};
use kiln_mem::{prefetch, prefetch_range};

use crate::array::{check_dim, check_ids};
use crate::{Error, FeatureBuffer, FeatureDType, FeatureStore, Result, SparseError};

/// Sparse feature rows in compressed sparse row (CSR) format, owned or mapped; row `v` belongs to node `v`. Rows are
/// gathered as dense rows. Clones share the arrays.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `indptr` | `u64` | `n_rows + 1` | row; `indptr[v]..indptr[v + 1]` are the values of row `v` |
/// | `columns` | `u32` | `n_values` | position of the value; its column, below `dim` |
/// | `values` | `f32` | `n_values` | position of the value; several values with the same row and column are summed |
#[derive(Debug, Clone)]
pub struct SparseFeatures {
    indptr: SharedArray<u64>,
    columns: SharedArray<u32>,
    values: SharedArray<f32>,
    dim: usize,
}

/// The distance in rows at which the values of later rows are prefetched during a gather.
const ROWS_AHEAD: usize = 8;

/// The maximum number of values to prefetch per row. The hardware prefetcher loads the rest of a longer row.
const MAX_ASKED: u64 = 128;

impl SparseFeatures {
    /// Creates features from the arrays of a CSR matrix with `dim` columns. Runs in constant time, so that mapped files
    /// need not be read; the rows are checked when they are gathered.
    ///
    /// # Errors
    /// Returns [`Error::ZeroDim`] or [`Error::TooManyColumns`] if `dim` is out of range, and [`SparseError::BadSparse`] if
    /// `indptr` does not run from 0 to the number of values, or if `columns` and `values` differ in length.
    pub fn new(
        indptr: SharedArray<u64>,
        columns: SharedArray<u32>,
        values: SharedArray<f32>,
        dim: usize,
    ) -> Result<Self> {
        check_dim(dim)?;
        let n_values = values.len() as u64;
        let bad = |what, expected, got| Err(Error::Sparse(SparseError::BadSparse { what, expected, got }));
        match (indptr.first(), indptr.last()) {
            (Some(0), Some(&last)) if last == n_values => {}
            (Some(0), Some(&last)) => return bad("the last entry of indptr", n_values, last),
            (Some(&first), _) => return bad("the first entry of indptr", 0, first),
            (None, _) => return bad("the number of entries of indptr", 1, 0),
        }
        if columns.len() != values.len() {
            return bad("the number of columns", n_values, columns.len() as u64);
        }
        Ok(Self { indptr, columns, values, dim })
    }

    /// Returns the number of stored values.
    pub fn n_values(&self) -> usize {
        self.values.len()
    }

    /// Returns the start of each row's values, followed by the number of all values; see the table on
    /// [`SparseFeatures`].
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// Returns the column of each value; see the table on [`SparseFeatures`].
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Returns the stored values; see the table on [`SparseFeatures`].
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns features with the same columns and other values: calls `change` with each node and a mutable copy of its
    /// values.
    ///
    /// # Errors
    /// Returns [`SparseError::BadSparseRow`] if the value range of a row is invalid, and the errors of `change`.
    pub fn map_rows<E: From<Error>>(
        &self,
        mut change: impl FnMut(NodeId, &mut [f32]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut values = self.values.to_vec();
        for row in (0..self.n_rows() as u32).map(NodeId) {
            change(row, &mut values[self.value_range(row)?])?;
        }
        Ok(Self { values: values.into(), ..self.clone() })
    }

    /// Reads and checks `indptr` and all columns.
    ///
    /// # Errors
    /// Returns [`SparseError::BadSparseRow`] for the first row whose value range is invalid, or
    /// [`SparseError::ColumnOutOfRange`] for the first column that is not below `dim`.
    pub fn validate(&self) -> Result<()> {
        for row in 0..self.n_rows() as u32 {
            for &column in &self.columns[self.value_range(NodeId(row))?] {
                if column as usize >= self.dim {
                    return Err(self.out_of_range(NodeId(row), column));
                }
            }
        }
        Ok(())
    }

    /// Returns the range of a row's values in [`SparseFeatures::columns`] and [`SparseFeatures::values`].
    ///
    /// # Errors
    /// Returns [`SparseError::BadSparseRow`] if the range ends before its start or after the last value.
    ///
    /// # Panics
    /// Panics if the node has no row.
    pub fn value_range(&self, node: NodeId) -> Result<Range<usize>> {
        let start = self.indptr[node.index()];
        let end = self.indptr[node.index() + 1];
        let n_values = self.values.len() as u64;
        if start > end || end > n_values {
            return Err(Error::Sparse(SparseError::BadSparseRow { node, start, end, n_values })
                .in_file(self.indptr.path()));
        }
        Ok(start as usize..end as usize)
    }

    /// Adds a row's values to `out`, which has `dim` elements.
    fn add_row(&self, node: NodeId, out: &mut [f32]) -> Result<()> {
        let range = self.value_range(node)?;
        for (&column, value) in self.columns[range.clone()].iter().zip(&self.values[range]) {
            *out.get_mut(column as usize).ok_or_else(|| self.out_of_range(node, column))? += value;
        }
        Ok(())
    }

    /// Prefetches the values of row `ids[ROWS_AHEAD]` and the `indptr` entries of row `ids[2 * ROWS_AHEAD]`. A gather
    /// of random rows otherwise waits for memory at each row.
    #[inline(always)]
    fn ask_ahead(&self, ids: &[NodeId]) {
        if let Some(later) = ids.get(2 * ROWS_AHEAD) {
            prefetch(&self.indptr, later.index());
        }
        if let Some(later) = ids.get(ROWS_AHEAD) {
            // A damaged range is harmless here: a prefetch reads no data, and `add_row` checks the range.
            let start = self.indptr[later.index()];
            let end = self.indptr[later.index() + 1];
            let n_values = end.saturating_sub(start).min(MAX_ASKED) as usize;
            prefetch_range(&self.columns, start as usize, n_values);
            prefetch_range(&self.values, start as usize, n_values);
        }
    }

    fn out_of_range(&self, node: NodeId, column: u32) -> Error {
        Error::Sparse(SparseError::ColumnOutOfRange { node, column, dim: self.dim })
            .in_file(self.columns.path())
    }
}

impl FeatureStore for SparseFeatures {
    fn dim(&self) -> usize {
        self.dim
    }

    fn n_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    fn dtype(&self) -> FeatureDType {
        FeatureDType::F32
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()> {
        check_ids(ids, self.n_rows())?;
        let mut rows = match std::mem::take(out) {
            FeatureBuffer::F32(rows) => rows,
            _ => Vec::new(),
        };
        rows.clear();
        rows.reserve(ids.len() * self.dim);
        for (at, &node) in ids.iter().enumerate() {
            self.ask_ahead(&ids[at..]);
            // Each row is zeroed just before its values are added, so that it is still in the cache.
            let start = rows.len();
            rows.resize(start + self.dim, 0.0);
            self.add_row(node, &mut rows[start..])?;
        }
        *out = FeatureBuffer::F32(rows);
        Ok(())
    }

    fn in_memory(&self) -> Option<Arc<dyn FeatureStore>> {
        let Self { indptr, columns, values, dim } = self;
        let indptr = indptr.in_memory();
        let columns = columns.in_memory();
        let values = values.in_memory();
        Some(Arc::new(Self { indptr, columns, values, dim: *dim }))
    }

    fn as_sparse(&self) -> Option<&SparseFeatures> {
        Some(self)
    }
}

//! The operands of matrix products.

use std::ops::Range;

use crate::cpu::row_value::RowValue;

/// A strided read-only view of a matrix.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrix<'a, E = f32> {
    values: &'a [E],
    shape: [usize; 2],
    strides: [usize; 2],
}

impl<'a, E: RowValue> Matrix<'a, E> {
    /// Creates a view of a matrix in row-major order.
    ///
    /// # Panics
    /// Panics if the number of values is not the product of the shape.
    pub(super) fn new(values: &'a [E], shape: [usize; 2]) -> Self {
        let n_values = shape[0].checked_mul(shape[1]);
        assert_eq!(
            Some(values.len()),
            n_values,
            "got {} values for a {shape:?} matrix, expected one per element",
            values.len()
        );
        Self { values, shape, strides: [shape[1], 1] }
    }

    /// The numbers of rows and columns.
    pub(super) fn shape(self) -> [usize; 2] {
        self.shape
    }

    /// The distances between the values of adjacent rows and columns.
    pub(super) fn strides(self) -> [usize; 2] {
        self.strides
    }

    /// The values in their order in memory, which is row-major for this matrix or for the transposed one.
    pub(super) fn values(self) -> &'a [E] {
        self.values
    }

    /// Returns a range of the rows of a row-major matrix.
    pub(super) fn rows(self, rows: Range<usize>) -> Self {
        let width = self.shape[1];
        assert_eq!(self.strides, [width, 1], "only a row-major matrix can be cut by rows");
        Self::new(&self.values[rows.start * width..rows.end * width], [rows.len(), width])
    }

    /// Calls `read` with a range of the rows of a row-major matrix as f32. Rows of half precision are widened, so the range
    /// should fit in the caches.
    pub(super) fn widened_rows<R>(self, rows: Range<usize>, read: impl FnOnce(Matrix<'_>) -> R) -> R {
        let rows = self.rows(rows);
        E::with_widened(rows.values, |values| read(Matrix::new(values, rows.shape)))
    }

    /// The transposed matrix, as a view of the same values.
    pub(super) fn transposed(self) -> Self {
        let Self { values, shape: [n_rows, n_columns], strides: [row, column] } = self;
        Self { values, shape: [n_columns, n_rows], strides: [column, row] }
    }
}

/// The summand that a product is added to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start<'a> {
    /// No summand: the output is overwritten and not read.
    Nothing,
    /// The output itself, which must be initialised.
    There,
    /// The same row for each row of the product.
    Row(&'a [f32]),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "5 values for a [2, 3] matrix")]
    fn rejects_a_matrix_with_the_wrong_number_of_values() {
        Matrix::new(&[0.0; 5], [2, 3]);
    }
}

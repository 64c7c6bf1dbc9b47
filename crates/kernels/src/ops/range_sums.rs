//! The references of sums over equal ranges of the columns of a matrix, and of their adjoints.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::Shape;

/// The sums over equal ranges of columns, of which there are the given number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ranges {
    /// The sum of each range, `[n, k * d] -> [n, k]`.
    Each(usize),
    /// The sum of all ranges, `[n, k * d] -> [n, d]`.
    All(usize),
}

impl Ranges {
    pub(crate) fn n(self) -> usize {
        match self {
            Self::Each(n) | Self::All(n) => n,
        }
    }

    /// Returns the number of sums of a row with `width` columns.
    pub(crate) fn n_sums(self, width: usize) -> usize {
        match self {
            Self::Each(n) => n,
            Self::All(n) => width / n,
        }
    }

    /// Returns the dimension that the sums reduce in `[n_rows, n_ranges, range_width]`.
    fn dim(self) -> usize {
        match self {
            Self::Each(_) => 2,
            Self::All(_) => 1,
        }
    }
}

/// The reference of the sums.
pub(crate) fn sum_ranges<B: Backend>(x: FloatTensor<B>, ranges: Ranges) -> FloatTensor<B> {
    let [n_rows, width] = x.shape().dims();
    let n = ranges.n();
    let x = B::float_reshape(x, Shape::new([n_rows, n, width / n]));
    B::float_reshape(B::float_sum_dim(x, ranges.dim()), Shape::new([n_rows, ranges.n_sums(width)]))
}

/// The adjoint of the sums: repeats each sum for the columns that it is of. A single range is not copied.
pub(crate) fn spread_ranges<B: Backend>(
    sums: FloatTensor<B>,
    ranges: Ranges,
    width: usize,
) -> FloatTensor<B> {
    let [n_rows, n_sums] = sums.shape().dims();
    let n = ranges.n();
    if n_sums == 1 {
        return B::float_expand(sums, Shape::new([n_rows, width]));
    }
    let mut shape = [n_rows, n, width / n];
    let all = Shape::new(shape);
    shape[ranges.dim()] = 1;
    let sums = B::float_expand(B::float_reshape(sums, Shape::new(shape)), all);
    B::float_reshape(sums, Shape::new([n_rows, width]))
}

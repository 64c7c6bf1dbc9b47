//! Conversions between Flex tensors and slices.

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::TensorData;

use crate::cpu::matrix::Matrix;
use crate::cpu::rows::Rows;

/// Returns the tensor with contiguous values. Copies it only if its values are not contiguous.
pub(super) fn contiguous(x: FloatTensor<Flex>) -> FloatTensor<Flex> {
    if x.as_slice::<f32>().is_some() { x } else { x.to_contiguous() }
}

/// Returns the tensor after `change` has changed its values: in place, or in a copy if another tensor refers to the
/// same memory or the tensor is a view of a larger one.
pub(super) fn changed(x: FloatTensor<Flex>, change: impl FnOnce(&mut [f32])) -> FloatTensor<Flex> {
    let mut x = contiguous(x);
    // A view of a part of a larger tensor is copied, because the rest must not change and should not stay allocated.
    let is_whole = x.storage::<f32>().len() == x.shape().num_elements();
    match x.try_storage_mut::<f32>().filter(|_| is_whole) {
        Some(values) => {
            change(values);
            x
        }
        None => {
            let mut values = floats(&x).to_vec();
            change(&mut values);
            FloatTensor::<Flex>::from_data(TensorData::new(values, x.shape()))
        }
    }
}

/// Same as [`changed`], but for a matrix: `change` gets the values in row-major order and the number of columns.
pub(super) fn in_place(x: FloatTensor<Flex>, change: impl FnOnce(&mut [f32], usize)) -> FloatTensor<Flex> {
    let width = x.shape()[1];
    changed(x, |values| change(values, width))
}

/// Returns the tensor as an operand of a matrix product.
pub(super) fn dense_matrix(x: &FloatTensor<Flex>) -> Matrix<'_> {
    Matrix::new(floats(x), x.shape().dims())
}

/// The values of a contiguous tensor.
pub(super) fn floats(x: &FloatTensor<Flex>) -> &[f32] {
    x.as_slice().expect("the tensor should be contiguous f32")
}

/// The indices in one of a block's index tensors.
pub(super) fn ints(x: &IntTensor<Flex>) -> &[i32] {
    x.as_slice().expect("a block's index tensors should be contiguous i32")
}

/// The ids in a tensor of nodes.
pub(super) fn node_ids(x: &IntTensor<Flex>) -> &[u32] {
    x.as_slice().expect("node ids should be contiguous u32")
}

/// Creates a matrix tensor of `n_rows` rows with the width of `like`.
pub(super) fn matrix(values: Vec<f32>, n_rows: usize, like: &FloatTensor<Flex>) -> FloatTensor<Flex> {
    FloatTensor::<Flex>::from_data(TensorData::new(values, [n_rows, like.shape()[1]]))
}

/// The rows of a contiguous tensor, with all their columns.
pub(super) fn rows(x: &FloatTensor<Flex>) -> Rows<'_> {
    let width = x.shape()[1];
    Rows::new(floats(x), 0, width, width)
}

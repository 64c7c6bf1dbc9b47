//! Tensors of Flex as slices, and slices as tensors.

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::TensorData;

use crate::cpu::dense;
use crate::cpu::rows::Rows;

/// The tensor with its values one after the other; copies only if they are not.
pub(super) fn contiguous(x: FloatTensor<Flex>) -> FloatTensor<Flex> {
    if x.as_slice::<f32>().is_some() { x } else { x.to_contiguous() }
}

/// Changes the tensor's values where they are, or in a copy if something else refers to them.
pub(super) fn changed(x: FloatTensor<Flex>, change: impl FnOnce(&mut [f32])) -> FloatTensor<Flex> {
    let mut x = contiguous(x);
    // A view of a part of a larger tensor is copied, so that the rest is left alone and not kept.
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

/// The same for a matrix: `change` is given the values, row by row, and the width of a row.
pub(super) fn in_place(x: FloatTensor<Flex>, change: impl FnOnce(&mut [f32], usize)) -> FloatTensor<Flex> {
    let width = x.shape()[1];
    changed(x, |values| change(values, width))
}

/// The matrix as products read it.
pub(super) fn dense_matrix(x: &FloatTensor<Flex>) -> dense::Matrix<'_> {
    dense::Matrix::new(floats(x), x.shape().dims())
}

/// The values of a contiguous tensor.
pub(super) fn floats(x: &FloatTensor<Flex>) -> &[f32] {
    x.as_slice().expect("the tensor should be contiguous f32")
}

/// The indices of one of a block's tensors.
pub(super) fn ints(x: &IntTensor<Flex>) -> &[i32] {
    x.as_slice().expect("a block's index tensors should be contiguous i32")
}

/// The ids of a tensor of nodes.
pub(super) fn node_ids(x: &IntTensor<Flex>) -> &[u32] {
    x.as_slice().expect("node ids should be contiguous u32")
}

/// A matrix of rows as wide as the given one's.
pub(super) fn matrix(values: Vec<f32>, n_rows: usize, like: &FloatTensor<Flex>) -> FloatTensor<Flex> {
    FloatTensor::<Flex>::from_data(TensorData::new(values, [n_rows, like.shape()[1]]))
}

/// All columns of the rows.
pub(super) fn rows(x: &FloatTensor<Flex>) -> Rows<'_> {
    let width = x.shape()[1];
    Rows::new(floats(x), 0, width, width)
}

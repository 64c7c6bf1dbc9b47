//! Conversions between Flex tensors and slices.

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, TensorData};
use half::{bf16, f16};

use crate::cpu::matrix::Matrix;
use crate::cpu::row_value::RowValue;
use crate::cpu::rows::Rows;

/// Returns the tensor with contiguous values. Copies it only if its values are not contiguous.
pub(super) fn contiguous(x: FloatTensor<Flex>) -> FloatTensor<Flex> {
    let is_contiguous = match x.dtype() {
        DType::F16 => x.as_slice::<f16>().is_some(),
        DType::BF16 => x.as_slice::<bf16>().is_some(),
        _ => x.as_slice::<f32>().is_some(),
    };
    if is_contiguous { x } else { x.to_contiguous() }
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

/// Returns the contiguous f32 tensor as an operand of a matrix product.
pub(super) fn dense_matrix(x: &FloatTensor<Flex>) -> Matrix<'_> {
    matrix_of(x)
}

/// Returns the contiguous tensor with elements of type `E` as an operand of a matrix product.
pub(super) fn matrix_of<E: RowValue>(x: &FloatTensor<Flex>) -> Matrix<'_, E> {
    Matrix::new(values(x), x.shape().dims())
}

/// The values of a contiguous f32 tensor.
pub(super) fn floats(x: &FloatTensor<Flex>) -> &[f32] {
    values(x)
}

/// The values of a contiguous tensor with elements of type `E`.
fn values<E: RowValue>(x: &FloatTensor<Flex>) -> &[E] {
    match x.as_slice() {
        Some(values) => values,
        None => {
            panic!("the tensor should be contiguous {:?}, its element type is {:?}", E::dtype(), x.dtype())
        }
    }
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

/// The rows of a contiguous f32 tensor, with all their columns.
pub(super) fn rows(x: &FloatTensor<Flex>) -> Rows<'_> {
    rows_of(x)
}

/// The rows of a contiguous tensor with elements of type `E`, with all their columns.
pub(super) fn rows_of<E: RowValue>(x: &FloatTensor<Flex>) -> Rows<'_, E> {
    let width = x.shape()[1];
    Rows::new(values(x), 0, width, width)
}

/// Evaluates an expression in which `$type` is the element type of a tensor of f32, f16 or bf16.
macro_rules! with_row_type {
    ($type:ident of $x:expr => $result:expr) => {
        match $x.dtype() {
            ::burn::tensor::DType::F16 => {
                type $type = ::half::f16;
                $result
            }
            ::burn::tensor::DType::BF16 => {
                type $type = ::half::bf16;
                $result
            }
            _ => {
                type $type = f32;
                $result
            }
        }
    };
}
pub(super) use with_row_type;

/// Returns true if the tensor has elements of half precision.
pub(super) fn is_half(x: &FloatTensor<Flex>) -> bool {
    matches!(x.dtype(), DType::F16 | DType::BF16)
}

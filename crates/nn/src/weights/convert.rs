//! Conversion between the tensors of a file and the parameters of a model.

use burn::module::Param;
use burn::tensor::{Tensor, TensorData};
use half::{bf16, f16};
use safetensors::{Dtype, tensor::TensorView};

use crate::{Error, Result, WeightsError};

pub(super) fn check_shape(name: &str, tensor: &TensorView<'_>, expected: &[usize]) -> Result<()> {
    if tensor.shape() != expected {
        let expected = expected.to_vec();
        let got = tensor.shape().to_vec();
        return Err(Error::Weights(WeightsError::TensorShape { name: name.to_owned(), expected, got }));
    }
    Ok(())
}

/// Converts the values of a tensor to f32.
pub(super) fn values(name: &str, tensor: &TensorView<'_>) -> Result<Vec<f32>> {
    let bytes = tensor.data();
    Ok(match tensor.dtype() {
        Dtype::F32 => bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect(),
        Dtype::F64 => bytes.as_chunks().0.iter().map(|value| f64::from_le_bytes(*value) as f32).collect(),
        Dtype::F16 => bytes.as_chunks().0.iter().map(|value| f16::from_le_bytes(*value).to_f32()).collect(),
        Dtype::BF16 => bytes.as_chunks().0.iter().map(|value| bf16::from_le_bytes(*value).to_f32()).collect(),
        dtype => {
            return Err(Error::Weights(WeightsError::TensorType {
                name: name.to_owned(),
                dtype: format!("{dtype:?}"),
            }));
        }
    })
}

/// Returns the transpose of a row-major matrix with `n_columns` columns.
pub(super) fn transposed(values: &[f32], n_columns: usize) -> Vec<f32> {
    let columns = (0..n_columns).map(|column| values.iter().skip(column).step_by(n_columns));
    columns.flatten().copied().collect()
}

/// Returns the mean of the rows of a row-major matrix with `n_columns` columns. The mean of equal rows is exact.
pub(super) fn mean_of_rows(values: &[f32], n_columns: usize) -> Vec<f32> {
    let n_rows = (values.len() / n_columns) as f64;
    let column = |idx| values.iter().skip(idx).step_by(n_columns).map(|value| f64::from(*value));
    (0..n_columns).map(|idx| (column(idx).sum::<f64>() / n_rows) as f32).collect()
}

/// Sets a parameter to the next values of the iterator. The parameter keeps its id, device, element type and gradient
/// tracking.
pub(super) fn set<const D: usize>(param: &mut Param<Tensor<D>>, values: &mut impl Iterator<Item = Vec<f32>>) {
    let values = values.next().expect("each slot should have values");
    *param = param.clone().map(|old| {
        let data = TensorData::new(values, old.dims());
        Tensor::from_data(data, (&old.device(), old.dtype())).set_require_grad(old.is_require_grad())
    });
}
